"""Whether loads measured the disk or memory: whose bytes mostly stayed in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import polars as pl

from storlab.findings.runs import InMemory
from storlab.records.derived.amplification import METRICS, SOURCE

_LEAST: dict[Literal["write", "read"], float] = {"write": 0.5, "read": 0.1}
"""Bytes at the disk for each byte of the loads; what was cached before is read again, so little tells nothing there."""
_MOST = 3  # cells that are named


def warnings(metrics: pl.DataFrame, levels: Mapping[int, Mapping[str, str]]) -> Iterator[InMemory]:
    """One for writes and one for reads. ``metrics``: the table of that name; ``levels``: by cell."""
    own = metrics.filter(pl.col("node").is_null(), source=SOURCE)
    for way, least in _LEAST.items():
        spec = METRICS[way, "amplification"]
        cells = own.filter(metric=spec.name).group_by("cell").agg(pl.col("value").median()).sort("cell")
        found = cells.filter(pl.col("value") < least)
        if found.height:
            few = found.height < cells.height and found.height <= _MOST
            each = (levels.get(cell, {}).items() for cell in found["cell"])
            named = tuple(", ".join(f"{name}={level}" for name, level in of) for of in each) if few else ()
            shares = min(found["value"]), max(found["value"])
            yield InMemory(way, *shares, named, found.height, cells.height)
