"""Tables of a run, reshaped for display: one value a trial, and nothing estimated from them."""

from __future__ import annotations

import polars as pl

_COMBINED: dict[str, pl.Expr] = {
    "sum": pl.col("value").sum(),
    "max": pl.col("value").max(),
    "min": pl.col("value").min(),
    "mean": pl.col("value").mean(),
}
# Percentiles and the like can't be combined: a lone value stands, several give none.
_ALONE = pl.when(pl.len() == 1).then(pl.col("value").first())


def across_of(metrics: pl.DataFrame, source: str, metric: str) -> str:
    """How ``metric`` combines over jobs and nodes; ``sum`` where the metrics don't say."""
    rows = metrics.filter(source=source, metric=metric)
    return str(rows["across"][0]) if rows.height and "across" in rows.columns else "sum"


def combined(rows: pl.DataFrame, keys: list[str], part: str, across: str) -> pl.DataFrame:
    """``value`` by ``keys``, over the ``part`` (``job`` or ``node``).

    The tool's own row for all parts (``part`` is null) goes before anything that is added up here.
    """
    whole = pl.col(part).is_null()
    kept = rows.filter(whole | ~whole.any().over(keys))
    value = _COMBINED.get(across, _ALONE).alias("value")
    return kept.group_by(keys, maintain_order=True).agg(value).drop_nulls("value")


def per_node(metrics: pl.DataFrame, source: str, metric: str) -> pl.DataFrame:
    """``trial, round, cell, node, value``, all jobs together; ``node`` may be null for all nodes together."""
    rows = metrics.filter(source=source, metric=metric)
    return combined(rows, ["trial", "round", "cell", "node"], "job", across_of(metrics, source, metric))


def per_trial(metrics: pl.DataFrame, source: str, metric: str) -> pl.DataFrame:
    """``trial, round, cell, value``, all nodes and jobs together."""
    nodes = per_node(metrics, source, metric)
    return combined(nodes, ["trial", "round", "cell"], "node", across_of(metrics, source, metric)).sort("round")
