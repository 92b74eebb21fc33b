"""Whether loads measured the disk or memory: whose bytes mostly stayed in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from storlab.records.derived.amplification import METRICS, SOURCE

_LEAST = {"write": 0.5, "read": 0.1}
"""Bytes at the disk for each byte of the loads; what was cached before is read again, so little tells nothing there."""
_MOST = 3  # cells that are named
_SAID = {
    "write": (
        "When the load ended, only {share} of what was written{where} had reached the disk: its rates are those of "
        "memory, unless the rest was compressed away. What is written again before it was written back never reaches "
        "the disk, whatever waits at the end: to measure the disk, give fio direct = 1 or fsync = 1, and the workload "
        "files fsync"
    ),
    "read": (
        "Of what was read{where}, only {share} came from the disk: its rates are those of memory. fio reads from the "
        "disk with direct = 1, and mostly where a file is much larger than memory"
    ),
}


def warnings(metrics: pl.DataFrame, levels: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """A sentence for writes and one for reads. ``metrics``: the table of that name; ``levels``: by cell."""
    own = metrics.filter(pl.col("node").is_null(), source=SOURCE)
    for way, least in _LEAST.items():
        spec = METRICS[way, "amplification"]
        cells = own.filter(metric=spec.name).group_by("cell").agg(pl.col("value").median()).sort("cell")
        found = cells.filter(pl.col("value") < least)
        if found.height:
            yield _SAID[way].format(where=_where(found, cells, levels), share=_share(found["value"]))


def _where(found: pl.DataFrame, cells: pl.DataFrame, levels: Mapping[int, Mapping[str, str]]) -> str:
    if found.height == cells.height:
        return ""
    if found.height > _MOST:
        return f" in {found.height} of {cells.height} cells"
    each = (", ".join(f"{name}={level}" for name, level in levels.get(cell, {}).items()) for cell in found["cell"])
    return f" ({' and '.join(each)})"


def _share(values: pl.Series) -> str:
    low, high = (f"{100 * value:.2g} %" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
