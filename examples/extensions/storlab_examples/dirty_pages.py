"""Probe ``dirty-pages``: how much written data waits in the page cache. See ``Dirty`` in proc_meminfo(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar

import polars as pl

from storlab.measurements import SERIES_COLUMNS, Measurements, Value, metric_frame
from storlab.probes.base import Post, Probe, Where, Window
from storlab.probes.sampling import read_samples, sampling
from storlab.units import Duration

_MEMINFO = "/proc/meminfo"
_LINE = re.compile(r"^(Dirty|Writeback): +(\d+) kB$", re.MULTILINE)


class DirtyPagesProbe(Probe):
    """Watches the page cache of each machine."""

    kind: ClassVar[str] = "dirty-pages"
    where: ClassVar[Where] = "machines"  # the page cache is the machine's, not the node's

    interval: Duration = 0.05

    def watch(self, post: Post) -> AbstractAsyncContextManager[None]:
        return sampling(post.node, [_MEMINFO], self.interval, post.raw)

    def parse(self, raw: Path, window: Window, disk: str | None) -> Measurements:
        points = [
            (None, metric, snapshot.t - window.start, value, "B")
            for snapshot in read_samples(raw)
            if window.start <= snapshot.t <= window.end
            for metric, value in parse_meminfo(snapshot.texts.get(_MEMINFO, ""))
        ]
        series = pl.DataFrame(points, schema=SERIES_COLUMNS, orient="row")
        most = series.group_by("metric", maintain_order=True).agg(pl.col("value").max())
        values = [Value(f"{metric}.max", value, "B", "neither", "max") for metric, value in most.iter_rows()]
        warnings = () if values else ("dirty-pages: the measured phase was too short to watch",)
        return Measurements(metrics=metric_frame(values), series=series, warnings=warnings)


def parse_meminfo(text: str) -> Iterator[tuple[str, float]]:
    """``dirty`` and ``writeback`` in bytes."""
    for name, kibibytes in _LINE.findall(text):
        yield name.lower(), float(kibibytes) * 1024
