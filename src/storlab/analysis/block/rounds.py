"""Shares of each round, and then their mean, least and most over the rounds.

All frames have the columns ``cell``, ``operation`` and ``round`` (``ROUND``), and ``count``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from storlab.analysis.summary import Share, SizeShare, UnitShare
from storlab.blockio.requests import UNITS, shares, sum_or_null
from storlab.grouping import grouped

PLACE = ["cell", "operation"]
ROUND = [*PLACE, "round"]

LARGEST = 1 << 20
"""B: the last class of sizes; all that is larger belongs to it, and offset 0, which is aligned to anything."""

Place = tuple[int, str]
"""A cell and an operation."""

Total = tuple[int, float, float | None]
"""Rounds, and the means over them of requests and of bytes."""


def totals(rows: pl.DataFrame) -> dict[Place, Total]:
    """Of each cell and operation, from ``count`` and ``bytes``."""
    by_round = rows.group_by(ROUND).agg(pl.col("count").sum(), sum_or_null("bytes"))
    means = by_round.group_by(PLACE).agg(pl.len(), pl.col("count").mean(), pl.col("bytes").mean()).sort(PLACE)
    return {(cell, operation): (n, count, size) for cell, operation, n, count, size in means.iter_rows()}


def sizes(rows: pl.DataFrame, column: str) -> dict[Place, list[SizeShare]]:
    """Shares by size class: the largest power of two that is not above ``column``."""
    powers = [1 << power for power in range(9, LARGEST.bit_length())]
    column_class = pl.lit(powers[0], pl.Int64)
    for power in powers[1:]:
        column_class = pl.when(pl.col(column) >= power).then(power).otherwise(column_class)
    found = over_rounds(rows.with_columns(size=column_class), ["size"]).iter_rows(named=True)
    return grouped(
        (place_of(row), SizeShare(row["size"], share_of(row, "requests"), share_or_none(row, "bytes"))) for row in found
    )


def place_of(row: Mapping[str, Any]) -> Place:
    return row["cell"], row["operation"]


def over_rounds(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Shares of each ``by`` in its cell and operation: mean, least and most over the rounds, requests and bytes.

    A round in which there were other requests only counts as 0.
    """
    totals = rows.group_by(ROUND).agg(pl.col("count").sum().alias("all"), sum_or_null("bytes").alias("all_bytes"))
    rounds = totals.group_by(PLACE).agg(pl.len().alias("rounds"))
    each = (
        rows.group_by([*ROUND, *by])
        .agg(pl.col("count").sum(), sum_or_null("bytes"))
        .join(totals, on=ROUND)
        .with_columns(requests=pl.col("count") / pl.col("all"), bytes=pl.col("bytes") / pl.col("all_bytes"))
    )
    everywhere, number = pl.len() == pl.col("rounds").first(), pl.col("rounds").first()
    statistics = []
    for name in ("requests", "bytes"):
        least = pl.when(everywhere).then(pl.col(name).min()).otherwise(0.0)
        statistics += _spread(name, pl.col(name).sum() / number, least)
    return (
        each.join(rounds, on=PLACE)
        .sort([*PLACE, *by, "round"])  # so that sums are the same to the last bit whenever a run is analysed again
        .group_by([*PLACE, *by], maintain_order=True)
        .agg(*statistics, (pl.col("count").sum() / pl.col("rounds").first()).alias("count"))
    )


def _spread(name: str, mean: pl.Expr, low: pl.Expr) -> list[pl.Expr]:
    """The columns that ``share_of`` takes; no mean where a value is unknown."""
    known = pl.when(pl.col(name).null_count() == 0).then(mean)
    return [known.alias(f"{name}.mean"), low.alias(f"{name}.low"), pl.col(name).max().alias(f"{name}.high")]


def share_of(row: Mapping[str, float], name: str) -> Share:
    """The share whose three columns begin with ``name``."""
    return Share(row[f"{name}.mean"], row[f"{name}.low"], row[f"{name}.high"])


def share_or_none(row: Mapping[str, float], name: str) -> Share | None:
    return None if row[f"{name}.mean"] is None else share_of(row, name)


def unit_shares(counted: pl.DataFrame) -> dict[Place, list[UnitShare]]:
    """``UnitShare`` of each unit; ``counted`` has the columns of ``storlab.blockio.requests.shares``."""
    names = ["share", "byte_share", "offset_share", "shorter", "amplification"]
    rows = shares(counted, UNITS, ROUND).with_columns(shorter=pl.col("below") / pl.col("requests"))
    statistics = [each for name in names for each in _spread(name, pl.col(name).mean(), pl.col(name).min())]
    ordered = rows.sort(*PLACE, "unit", "round")
    found = ordered.group_by([*PLACE, "unit"], maintain_order=True).agg(*statistics).iter_rows(named=True)
    return grouped((place_of(row), UnitShare(row["unit"], *(share_or_none(row, n) for n in names))) for row in found)


def at_least(bins: pl.DataFrame, *, shorter: bool = False) -> dict[tuple[int, str, int], Share]:
    """Share of requests in bins from each unit on, or below it, by cell, operation and unit."""
    found: dict[tuple[int, str, int], Share] = {}
    for unit in UNITS:
        wanted = pl.col("size") < unit if shorter else pl.col("size") >= unit
        part = pl.col("count").filter(wanted).sum() / pl.col("count").sum()
        by_round = bins.group_by(ROUND).agg(share=part).sort(ROUND)
        share = pl.col("share")
        for cell, operation, *values in (
            by_round.group_by(PLACE, maintain_order=True)
            .agg(mean=share.mean(), low=share.min(), high=share.max())
            .iter_rows()
        ):
            found[cell, operation, unit] = Share(*values)
    return found
