"""The columns of a run's tables, but for those of ``trials``, which depend on the study's factors."""

from __future__ import annotations

import polars as pl

from storlab.measurements import HISTOGRAM_COLUMNS, METRIC_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS

PLACES: dict[str, pl.DataType] = {
    "trial": pl.Int64(),
    "round": pl.Int64(),
    "cell": pl.Int64(),
    "node": pl.String(),
    "source": pl.String(),
}
"""Where something was measured: what every row begins with."""

COLUMNS: dict[str, dict[str, pl.DataType]] = {
    "metrics": PLACES | METRIC_COLUMNS,
    "series": PLACES | SERIES_COLUMNS,
    "histograms": PLACES | HISTOGRAM_COLUMNS,
    "requests": PLACES | REQUEST_COLUMNS,
}
