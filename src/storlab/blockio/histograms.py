"""Requests of one disk by length and by alignment: what the BPF tools show, and what their files hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from storlab.blockio.alignment import by_alignment, by_length


@dataclass(frozen=True)
class DiskHistograms:
    """Bytes → number of requests, by length and by alignment, both ascending. ``without_data``: flushes and the like.

    ``exact``: lengths are what they were; otherwise each stands for all up to twice as much.
    """

    granularity: Mapping[int, int] = field(default_factory=dict)
    alignment: Mapping[int, int] = field(default_factory=dict)
    without_data: int = 0
    exact: bool = True

    @property
    def total(self) -> int:
        """All requests with data."""
        return sum(self.granularity.values())


def by_disk(requests: pl.DataFrame) -> dict[str, DiskHistograms]:
    """Histograms of each disk in a frame of ``REQUEST_COLUMNS``, all operations together, disks in order."""
    lengths, alignments = by_length(requests, ["disk"]), by_alignment(requests, ["disk"])
    empty = requests.filter(pl.col("length") == 0).group_by("disk").agg(pl.col("count").sum())
    without = dict(empty.iter_rows())
    return {
        disk: DiskHistograms(_pairs(lengths, disk), _pairs(alignments, disk), without.get(disk, 0))
        for disk in requests["disk"].unique().sort().to_list()
    }


def _pairs(counts: pl.DataFrame, disk: str) -> dict[int, int]:
    return {value: count for _, value, count in counts.filter(pl.col("disk") == disk).iter_rows()}
