"""Families whose members come and go, such as functions that wait: the members that matter, with zeros where they lack.

A function that never waits for a lock has no row in that trial's metrics. Left out, its mean would be that of the
trials in which it did wait, and no pair of rounds could tell that one level has it and the other does not. What is
looked at is chosen for the run as a whole: chosen by trial, a member that another displaced there would look like 0.
"""

from __future__ import annotations

import polars as pl

from storlab.metrics import Declarations


def with_zeros(metrics: pl.DataFrame, declared: Declarations) -> pl.DataFrame:
    """``metrics`` with a row of 0 for each member that another trial of the run has, of families that are declared so.

    Only in trials that have the family's total or another of its members: those were watched. Without the members that
    are among the ``foremost`` of no trial.
    """
    sources = [source for source, specs in declared.items() if any(spec.zero_if_absent for spec in specs)]
    own = metrics.filter(pl.col("source").is_in(sources), pl.col("node").is_null(), pl.col("job").is_null())
    if own.is_empty():
        return metrics
    told = own.select("source", "metric").unique()
    told = pl.DataFrame([(*row, *_family(declared, *row)) for row in told.iter_rows()], _TOLD, orient="row")
    own = own.join(told, on=["source", "metric"])
    members = own.filter(pl.col("family") != pl.col("metric"))
    idle = _never_foremost(members)
    metrics = metrics.join(idle, on=["source", "metric"], how="anti", maintain_order="left")
    members = members.join(idle, on=["source", "metric"], how="anti")
    described = [name for name in metrics.columns if name in ("unit", "better", "across")]
    names = members.group_by("source", "family", "metric").agg(pl.col(described).first())
    watched = own.select("trial", "cell", "round", "source", "family").unique()
    zeros = watched.join(names, on=["source", "family"]).join(own, on=["trial", "source", "metric"], how="anti")
    rows = zeros.with_columns(value=0.0).sort("trial", "metric").drop("family")
    return pl.concat([metrics, rows], how="diagonal_relaxed").select(metrics.columns)


_TOLD = {
    "source": pl.String, "metric": pl.String,
    "family": pl.String, "subject": pl.String, "foremost": pl.Int64, "least": pl.Float64,
}  # fmt: skip


def _family(declared: Declarations, source: str, metric: str) -> tuple[str | None, str, int, float]:
    """The total to which it belongs, ``waits`` of ``waits.mutex.vfs_write``; ``None`` of what is no such family's.

    And what it is a member by, and which members of that family are looked at.
    """
    spec = declared[source].find(metric)
    if spec.zero_if_absent and spec.subject:
        return metric.removesuffix(f".{spec.subject}"), spec.subject, spec.foremost, spec.least
    return (None if spec.subject else metric), "", 0, 0.0


def _never_foremost(members: pl.DataFrame) -> pl.DataFrame:
    """``source`` and ``metric`` of those to leave out. What a member is in one family, it is in all of its source."""
    place = pl.col("value").rank("ordinal", descending=True).over("trial", "source", "family")
    ranked = members.filter(pl.col("foremost") > 0)
    foremost = ranked.filter(place <= pl.col("foremost"), pl.col("value") >= pl.col("least"))
    chosen = members.join(ranked.select("source").unique(), on="source", how="semi")
    return chosen.join(foremost, on=["source", "subject"], how="anti").select("source", "metric").unique()
