"""What was measured, as narrow columns: each cell × source × metric is one *series*, with one value a round.

A study of 10,000 trials with 100 metrics has a million rows; carried along with all their text they would take half
a gigabyte, so text stays in one row a series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

KEYS = ("cell", "source", "metric")


@dataclass(frozen=True, eq=False)
class Recorded:
    """``series``: ``series``, ``cell``, ``source``, ``metric``, ``unit``, ``better``; cells in the design's order.

    ``values``: ``series``, ``round``, ``value``, sorted by the first two (null, NaN and infinities as they came).
    """

    series: pl.DataFrame
    values: pl.DataFrame


def collect(metrics: pl.DataFrame, done: pl.DataFrame, cells: Sequence[int], node: str | None = None) -> Recorded:
    """The rows of ``metrics`` for all jobs together, and all nodes or one, of trials in ``done`` and of ``cells``.

    ``metrics`` as in ``docs/reference/records.md``; ``done`` has a column ``trial``, at most one for each cell and
    round.
    """
    text = pl.Categorical()
    rows = (
        metrics.lazy()
        .filter(
            pl.col("node").eq_missing(pl.lit(node, pl.String)), pl.col("job").is_null(), pl.col("cell").is_in(cells)
        )
        .join(done.lazy().select("trial"), on="trial", how="semi", maintain_order="left")
        .select(
            "cell", "round", pl.col("source", "metric", "unit", "better").cast(text), pl.col("value").cast(pl.Float64)
        )
        .collect()
    )
    place = {cell: index for index, cell in enumerate(cells)}
    series = (
        rows.lazy()
        .group_by(KEYS, maintain_order=True)
        .agg(pl.col("unit", "better").first())
        .sort(pl.col("cell").replace_strict(place, return_dtype=pl.Int64), maintain_order=True)
        .with_row_index("series")
        .collect()
    )
    values = rows.lazy().select(*KEYS, "round", "value").join(series.lazy(), on=KEYS)
    # Sorted, so that sums are the same to the last bit whenever a run is analysed again.
    return Recorded(
        series.with_columns(pl.col("source", "metric", "unit", "better").cast(pl.String)),
        values.select("series", "round", "value").sort("series", "round").collect(),
    )
