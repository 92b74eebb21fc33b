"""Many trials of one source on one node as rows of the tables, all at once: trial by trial takes five times as long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from storlab.measurements import Measurements, metric_frame
from storlab.records.columns import COLUMNS
from storlab.records.fairness import of_jobs
from storlab.records.tables import TrialTables, place_of
from storlab.records.trial_record import TrialRecord


def stacked(measured: Sequence[tuple[TrialRecord, Measurements]], source: str, node: str) -> TrialTables:
    """What each trial's only node measured, as that node's and as that of all nodes together. Without warnings."""
    tables = TrialTables()
    if not measured:
        return tables
    places = pl.DataFrame([place_of(record, source, node) for record, _ in measured])
    tables.metrics.append(_placed("metrics", places, [each.metrics for _, each in measured]))
    tables.series.append(_placed("series", places, [each.series for _, each in measured]))
    tables.histograms.append(_placed("histograms", places, [each.histograms for _, each in measured]))
    tables.requests.append(_placed("requests", places, [each.requests for _, each in measured]))
    together = tables.metrics[0].filter(pl.col("job").is_null(), pl.col("across") != "none")
    tables.metrics.append(together.with_columns(pl.lit(None, pl.String).alias("node")))
    tables.metrics.append(_among_jobs(tables.metrics[0], places))
    return tables


def _among_jobs(metrics: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """How fairly the jobs of each trial share, as rows of all nodes together."""
    trials, values = [], []
    for (trial,), value in of_jobs(metrics, ["trial"]):
        trials.append(trial)
        values.append(value)
    of = pl.DataFrame({"trial": trials}, schema={"trial": pl.Int64}).join(places, on="trial", maintain_order="left")
    rows = metric_frame(values).hstack(of.with_columns(node=pl.lit(None, pl.String)))
    return rows.select(list(COLUMNS["metrics"]))


def _placed(table: str, places: pl.DataFrame, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    of = np.repeat(np.arange(len(frames)), [frame.height for frame in frames])
    filled = [frame for frame in frames if frame.height]
    if not filled:
        return pl.DataFrame(schema=COLUMNS[table])
    return pl.concat(filled).hstack(places[of]).select(list(COLUMNS[table]))
