"""Latency over time: percentiles of each interval of a trial, where its tool kept a histogram of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import altair as alt
import polars as pl

from storlab.percentiles import percentile_name
from storlab.report import words
from storlab.report.charts.combinations import Combination, file_stem
from storlab.report.charts.panel import Panel
from storlab.report.charts.scales import SECONDS, decades
from storlab.report.charts.theme import Chart
from storlab.report.charts.variability.axes import Axes, Clock
from storlab.report.charts.variability.sampled import INSTANTS, Sampled, sampled
from storlab.report.input import ReportInput

_DRAWN = (99.0, 50.0)
_DASHES: dict[str, list[int]] = {"p99": [1, 0], "p50": [4, 3]}
_TOLD = {"p99": "p99", "p50": "p50 (dashed)"}
_NO_LINES = pl.DataFrame(
    schema={"level": pl.String, "percentile": pl.String, **dict.fromkeys(("t", "mean", "low", "high"), pl.Float64)}
)


def percentile_panels(
    given: ReportInput, combination: Combination, levels: Sequence[str], taken: set[str]
) -> Iterator[Panel]:
    """``combination.metric`` over time, such as ``read.latency``; nothing where its percentiles have no course."""
    found = [(percentile_name(p), _percentile(given, combination, levels, p)) for p in _DRAWN]
    courses = [(name, of) for name, of in found if of is not None and of.samples["t"].n_unique() >= INSTANTS]
    lines = pl.concat([_NO_LINES, *(_in_seconds(name, of) for name, of in courses)])
    if lines.is_empty():
        return
    longest = max((of for _, of in courses), key=lambda of: of.clock.duration)
    title = f"Percentiles of each interval: {' and '.join(_TOLD[name] for name, _ in courses)}"
    shown = words.listed(list(longest.axes.shown))
    told = (
        f"{words.listed([name for name, _ in courses])} of {combination.metric} over the time of a trial, of {shown}."
    )
    draw = partial(percentiles_chart, lines, longest.axes, longest.clock)
    stem = file_stem("course", [combination.title, "percentiles"], taken)
    yield Panel("course", stem, combination.title, title, told, draw, wide=True)


def _percentile(given: ReportInput, of: Combination, levels: Sequence[str], percentile: float) -> Sampled | None:
    name = given.declared[of.source].statistic(of.metric, "percentile", percentile)
    return sampled(given, replace(of, metric=name), levels, "none") if name else None


def _in_seconds(name: str, of: Sampled) -> pl.DataFrame:
    """Its course, but for what a log axis can't show."""
    values = pl.col("mean", "low", "high") * of.axes.unit.factor
    return of.course.select("level", pl.lit(name).alias("percentile"), "t", values).filter(pl.col("low") > 0)


def percentiles_chart(course: pl.DataFrame, axes: Axes, clock: Clock) -> Chart:
    """``course``: ``level, percentile, t, mean, low, high``, latencies in s; bands as in charts of throughput."""
    marks = decades([*course["low"], *course["high"]])
    scale = alt.Scale(type="log", nice=False)
    axis = alt.Axis(values=marks, tickCount=len(marks), labelExpr=SECONDS)
    x, colour = clock.axis("t"), axes.colour()
    dash = alt.StrokeDash("percentile:N", legend=None, scale=alt.Scale(domain=[*_DASHES], range=[*_DASHES.values()]))
    detail = alt.Detail("percentile:N")
    band = (
        alt.Chart(course)
        .mark_area(fillOpacity=0.16)
        .encode(x=x, y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q"), color=colour, detail=detail)
    )
    y = alt.Y("mean:Q", title="latency (log scale)", scale=scale, axis=axis)
    line = alt.Chart(course).mark_line(strokeWidth=1.4).encode(x=x, y=y, color=colour, strokeDash=dash)
    chart: Chart = alt.layer(band, line, height=240)
    return chart
