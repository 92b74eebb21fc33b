"""How long requests to a pool's disks waited, and which were made of several: ``zpool iostat -w`` and ``-r``.

ZFS counts these from the import of a pool on. So they are asked for twice, right before the load and after it, and what
came in between is that of the load: nothing is sampled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import polars as pl

from storlab.errors import ParseError
from storlab.measurements import HISTOGRAM_COLUMNS
from storlab.metrics import MetricSpec, Value, percentiles_of
from storlab.percentiles import percentiles_of_bins
from storlab.probes.base import ProbeContext, ProbeRecord
from storlab.reading import read_file
from storlab.tools.zfs import (
    DIRECTIONS,
    KINDS,
    MAINTENANCE,
    QUEUES,
    STAGES,
    Bins,
    What,
    between,
    parse_histograms,
    wait_name,
)

_MOST = 1 << 20  # bytes of a pool's histogram; it has 5,000
_OPTIONS: dict[What, str] = {"waits": "-w", "sizes": "-r"}
_PERCENTILES = (50.0, 99.0)
_WAITS = {
    column: MetricSpec(f"vdev.{column}.wait", "s", "lower", "merge", "latency")
    for column in (*(wait_name(way, stage) for way in DIRECTIONS for stage in STAGES), *MAINTENANCE)
}
_OF_WAITS = {column: percentiles_of(spec.name, _PERCENTILES) for column, spec in _WAITS.items()}
_AGGREGATED = {
    queue: MetricSpec(
        f"vdev.{queue}.aggregated.share", "1", across="mean", domain="share", evidence="none",
        noun=f"of the requests of the queue {queue} made of several",
    )
    for queue in QUEUES
}  # fmt: skip
METRICS = (*_WAITS.values(), *(spec for specs in _OF_WAITS.values() for spec in specs), *_AGGREGATED.values())


@asynccontextmanager
async def looking_twice(context: ProbeContext) -> AsyncIterator[None]:
    await _look(context, "before")
    yield
    await _look(context, "after")


async def _look(context: ProbeContext, when: str) -> None:
    for what, option in _OPTIONS.items():
        argv = ["zpool", "iostat", "-Hp", option, *context.subject.pools]
        ended = await context.node.run(argv, check=False)
        if ended.ok:
            (context.raw / f"{what}-{when}.txt").write_bytes(ended.stdout)


def read(record: ProbeRecord) -> dict[What, Bins]:
    """What the load did. Without what was not asked for, or not answered. Raises ``ParseError``."""
    found: dict[What, Bins] = {}
    for what in get_args(What):
        paths = [record.raw / f"{what}-{when}.txt" for when in ("before", "after")]
        if all(path.exists() for path in paths):
            before, after = (parse_histograms(_text(path), what, str(path)) for path in paths)
            found[what] = between(before, after, str(paths[1]))
    return found


def _text(path: Path) -> str:
    try:
        return read_file(path, _MOST).decode(errors="replace")
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def histograms(bins: Bins) -> pl.DataFrame:
    rows = [
        (None, _WAITS[column].name, lower / 1e9, 2 * lower / 1e9, count)
        for (column, lower), count in sorted(bins.items())
    ]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")


def values(found: dict[What, Bins]) -> Iterator[Value]:
    waits = found.get("waits", {})
    for column, specs in _OF_WAITS.items():
        bins = [(at / 1e9, 2 * at / 1e9, count) for (name, at), count in sorted(waits.items()) if name == column]
        if bins:
            for spec, seconds in zip(specs, percentiles_of_bins(bins, _PERCENTILES).values(), strict=True):
                yield spec.value(seconds)
    for queue, spec in _AGGREGATED.items():
        single, several = (
            sum(count for (name, _), count in found.get("sizes", {}).items() if name == f"{queue}.{kind}")
            for kind in KINDS
        )
        if single or several:
            yield spec.value(several / (single + several))
