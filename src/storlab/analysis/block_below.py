"""What goes below a unit, by kind: flags, command, why, and the lengths that are most frequent."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from storlab.analysis.block_io import BelowUnit
from storlab.analysis.block_rounds import PLACE, Place, over_rounds, share_of

_KINDS = 10  # a cell's kinds that are told apart
_LENGTHS = 3  # of each kind


def below(counted: pl.DataFrame, unit: int) -> dict[Place, list[BelowUnit]]:
    """Kinds of requests that are no whole number of units, the most frequent first."""
    length = pl.col("length")
    why = pl.when(length < unit).then(pl.lit("shorter")).when(length % unit != 0).then(pl.lit("uneven"))
    rows = counted.with_columns(why=pl.when(pl.col("alignment") < unit).then(why.otherwise(pl.lit("across"))))
    kinds = ["flags", "comm", "why"]
    ranked = (
        over_rounds(rows, kinds)
        .filter(pl.col("why").is_not_null())
        .with_columns(rank=pl.col("count").rank("ordinal", descending=True).over(PLACE))
    )
    rows = (
        rows.join(ranked.select(*PLACE, *kinds, "rank"), on=[*PLACE, *kinds], how="left", nulls_equal=True)
        .with_columns(further=(pl.col("rank") > _KINDS).fill_null(False))
        .with_columns(pl.when(~pl.col("further")).then(pl.col(name)).alias(name) for name in ("flags", "comm"))
        .with_columns(why=pl.when(pl.col("further")).then(pl.lit("several")).otherwise(pl.col("why")))
    )
    table = over_rounds(rows, kinds).filter(pl.col("why").is_not_null())
    lengths = _frequent_lengths(rows.filter(pl.col("why").is_not_null()), kinds)
    found: dict[Place, list[BelowUnit]] = {}
    order = [pl.col("flags").is_null(), -pl.col("count")]
    for row in table.sort(*order, *PLACE, *kinds, nulls_last=True).iter_rows(named=True):
        key = tuple(row[name] for name in (*PLACE, *kinds))
        kind = BelowUnit(
            row["flags"],
            row["comm"],
            None if row["why"] == "several" else row["why"],
            row["count"],
            share_of(row, "requests"),
            share_of(row, "bytes"),
            lengths[key],
        )
        found.setdefault((row["cell"], row["operation"]), []).append(kind)
    return found


def _frequent_lengths(
    rows: pl.DataFrame, kinds: Iterable[str]
) -> dict[tuple[object, ...], tuple[tuple[int, float], ...]]:
    keys = [*PLACE, *kinds]
    counts = rows.group_by([*keys, "length"]).agg(pl.col("count").sum())
    shared = counts.with_columns(share=pl.col("count") / pl.col("count").sum().over(keys))
    top = shared.sort(["count", "length"], descending=[True, False]).group_by(keys, maintain_order=True).head(_LENGTHS)
    found: dict[tuple[object, ...], tuple[tuple[int, float], ...]] = {}
    for *key, length, _, share in top.select(*keys, "length", "count", "share").iter_rows():
        found[tuple(key)] = (*found.get(tuple(key), ()), (length, share))
    return found
