"""A sweep of two factors, as a report has it."""

from __future__ import annotations

import altair as alt
import polars as pl

from analysis.sweeps.test_found import sweep
from storlab.report.charts.theme import Chart
from storlab.report.model.input import ReportInput


def sweep_sample(jobs: tuple[str, ...] = ("1", "2", "4")) -> ReportInput:
    return ReportInput(sweep(jobs=jobs, rounds=10))


def marked(chart: Chart) -> list[str]:
    """The levels that a chart of latency against throughput marks as knees."""
    assert isinstance(chart, alt.LayerChart)
    rings = chart.layer[2].data
    assert isinstance(rings, pl.DataFrame)
    return rings["label"].to_list()
