"""Two long trials that were imported, one of each level: the sample of what a report says of series."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import polars as pl

from storlab.analysis.summary import CellState, Estimate, Summary
from storlab.formats.sysbench.metrics import DECLARED
from storlab.records.columns import COLUMNS
from storlab.records.manifest import Manifest
from storlab.records.tables import ExaminedSeries, findings_frame
from storlab.report.model.input import ReportInput
from storlab.timeseries.findings import findings
from storlab.timeseries.variability import Floats, variability

from .declared import declared

LEVELS = ("off", "on")
INTERVAL = 10.0


def values_of(level: str, n: int = 1000) -> Floats:
    """Transactions a second; what ends in "on" falls by 4 % at 60 % of its time, and "off" has some outliers."""
    on = level.endswith("on")
    drawn = np.random.default_rng(int(on))
    values = drawn.normal(5400 if on else 5300, 40, n)
    if on:
        values[int(0.6 * n) :] -= 216
    else:
        values[::97] -= 300
    return values


def series_sample(levels: Sequence[str] = LEVELS, n: int = 1000, factor: str = "doublewrite") -> ReportInput:
    """Of ``levels`` of ``factor``, with ``n`` samples of each."""
    series, examined = [], []
    estimates: list[Estimate] = []
    t = INTERVAL * np.arange(1, n + 1, dtype=np.float64)
    for cell, level in enumerate(levels, start=1):
        values = values_of(level, n)
        place = {"trial": cell, "round": 1, "cell": cell, "node": "host", "source": "sysbench"}
        rows = pl.DataFrame({"t": t, "value": values})
        fixed = {**place, "job": None, "metric": "tps", "unit": "1/s"}
        literals = [pl.lit(value, dtype=COLUMNS["series"][name]).alias(name) for name, value in fixed.items()]
        series.append(rows.with_columns(literals).select(list(COLUMNS["series"])))
        found = findings(t, values)
        if found is not None:
            examined.append(ExaminedSeries({**place, "node": None}, "tps", "1/s", found))
        estimates += _estimates(cell, {factor: level}, values)
    cells = tuple(CellState(cell, {factor: level}, "measured", 1) for cell, level in enumerate(levels, start=1))
    summary = Summary("Two long trials", "tps", 0.95, 1, "It was imported.", cells, tuple(estimates))
    began = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
    manifest = Manifest("20260314-092653-abcd", "Two long trials", "0.1.0", (), began)
    known = declared("sysbench", specs=DECLARED)
    return ReportInput(
        summary, series=pl.concat(series), findings=findings_frame(examined), manifest=manifest, declared=known
    )


def _estimates(cell: int, levels: dict[str, str], values: Floats) -> list[Estimate]:
    found = variability(values, INTERVAL)
    numbers = {
        "tps": (found.mean, "1/s"),
        "tps.variance": (found.variance, "1/s²"),
        "tps.sigma": (found.sigma, "1/s"),
        "tps.cv": (found.cv or 0.0, "1"),
        "tps.outliers": (float(found.outliers), "1"),
        "tps.longest_stall": (found.longest_stall, "s"),
    }
    return [
        Estimate(
            cell,
            levels,
            "sysbench",
            metric,
            unit,
            "higher" if metric == "tps" else "lower",
            *(1, value, value, None, None, None, None, 0.95),
        )
        for metric, (value, unit) in numbers.items()
    ]
