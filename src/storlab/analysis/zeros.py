"""Members of families that a trial lacks because there was nothing to count, as the zeros that they are.

A function that never waits for a lock has no row in that trial's metrics. Left out, its mean would be that of the
trials in which it did wait, and no pair of rounds could tell that one level has it and the other does not.
"""

from __future__ import annotations

import polars as pl

from storlab.metrics import Declarations


def with_zeros(metrics: pl.DataFrame, declared: Declarations) -> pl.DataFrame:
    """``metrics`` with a row of 0 for each member that another trial of the run has, of families that are declared so.

    Only in trials that have the family's total or another of its members: those were watched.
    """
    sources = [source for source, specs in declared.items() if any(spec.zero_if_absent for spec in specs)]
    own = metrics.filter(pl.col("source").is_in(sources), pl.col("node").is_null(), pl.col("job").is_null())
    if own.is_empty():
        return metrics
    told = own.select("source", "metric").unique()
    families = [_family(declared, *row) for row in told.iter_rows()]
    own = own.join(told.with_columns(family=pl.Series(families, dtype=pl.String)), on=["source", "metric"])
    members = own.filter(pl.col("family") != pl.col("metric"))
    described = [name for name in metrics.columns if name in ("unit", "better", "across")]
    names = members.group_by("source", "family", "metric").agg(pl.col(described).first())
    watched = own.select("trial", "cell", "round", "source", "family").unique()
    zeros = watched.join(names, on=["source", "family"]).join(own, on=["trial", "source", "metric"], how="anti")
    rows = zeros.with_columns(value=0.0).sort("trial", "metric").drop("family")
    return pl.concat([metrics, rows], how="diagonal_relaxed").select(metrics.columns)


def _family(declared: Declarations, source: str, metric: str) -> str | None:
    """The total to which it belongs, ``waits`` of ``waits.mutex.vfs_write``; ``None`` of what is no such family's."""
    spec = declared[source].find(metric)
    if spec.zero_if_absent and spec.subject:
        return metric.removesuffix(f".{spec.subject}")
    return None if spec.subject else metric
