"""Probe ``dirty-pages``: how much written data waits in the page cache. See ``Dirty`` in proc_meminfo(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.api import (
    SERIES_COLUMNS,
    Duration,
    Kind,
    Measurements,
    MetricSpec,
    Probe,
    ProbeContext,
    ProbeRecord,
    metric_frame,
    read_samples,
    sampling,
)

_MEMINFO = "/proc/meminfo"
_LINE = re.compile(r"^(Dirty|Writeback): +(\d+) kB$", re.MULTILINE)
_METRICS = {name: MetricSpec(f"{name}.max", "B", across="max") for name in ("dirty", "writeback")}


class DirtyPagesProbe(Probe):
    """Watches the page cache of each machine."""

    kind: ClassVar[str] = "dirty-pages"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})  # the page cache is the machine's, not the node's
    metrics: ClassVar[tuple[MetricSpec, ...]] = tuple(_METRICS.values())

    interval: Duration = Field(0.05, gt=0, description="Between two samples.")

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return sampling(context.node, [_MEMINFO], self.interval, context.raw)

    def parse(self, record: ProbeRecord) -> Measurements:
        window = record.window
        points = [
            (None, metric, snapshot.t - window.start, value, "B")
            for snapshot in read_samples(record.raw)
            if window.start <= snapshot.t <= window.end
            for metric, value in parse_meminfo(snapshot.texts.get(_MEMINFO, ""))
        ]
        series = pl.DataFrame(points, schema=SERIES_COLUMNS, orient="row")
        most = series.group_by("metric", maintain_order=True).agg(pl.col("value").max())
        values = [_METRICS[metric].value(value) for metric, value in most.iter_rows()]
        warnings = () if values else ("dirty-pages: the measured phase was too short to watch",)
        return Measurements(metrics=metric_frame(values), series=series, warnings=warnings)


def parse_meminfo(text: str) -> Iterator[tuple[str, float]]:
    """``dirty`` and ``writeback`` in bytes."""
    for name, kibibytes in _LINE.findall(text):
        yield name.lower(), float(kibibytes) * 1024
