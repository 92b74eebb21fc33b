"""The columns of a run's tables, but for those of ``trials``, which depend on the study's factors."""

from __future__ import annotations

import polars as pl

from storlab.measurements import CHECK_COLUMNS, HISTOGRAM_COLUMNS, METRIC_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS

PLACES: dict[str, pl.DataType] = {
    **dict.fromkeys(("trial", "round", "cell"), pl.Int64()),
    **dict.fromkeys(("node", "source"), pl.String()),
}
"""Where something was measured: what every row begins with."""

_FINDINGS: dict[str, pl.DataType] = {
    **dict.fromkeys(("metric", "unit"), pl.String()),
    "n": pl.Int64(),
    **dict.fromkeys(("interval", "duration", "mean", "variance", "sigma", "cv"), pl.Float64()),
    "outliers": pl.Int64(),
    **dict.fromkeys(("longest_stall", "effective", "steady_snia", "steady_fio", "warm_up"), pl.Float64()),
    **dict.fromkeys(("warm_up_effect", "drift", "drift_low", "drift_high", "drift_share", "drift_steps"), pl.Float64()),
    "changes": pl.List(pl.Struct({"t": pl.Float64(), "before": pl.Float64(), "after": pl.Float64()})),
}
"""Those of ``timeseries.findings.SeriesFindings``."""

COLUMNS: dict[str, dict[str, pl.DataType]] = {
    "metrics": PLACES | METRIC_COLUMNS,
    "series": PLACES | SERIES_COLUMNS,
    "histograms": PLACES | HISTOGRAM_COLUMNS,
    "requests": PLACES | REQUEST_COLUMNS,
    "checks": PLACES | CHECK_COLUMNS,
    "findings": PLACES | _FINDINGS,
}
