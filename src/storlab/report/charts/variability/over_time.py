"""Levels over the time of a trial in one chart: their course with its range, where their level changes, and how much
they vary from one part to the next.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from storlab.report.charts.scales import PLAIN
from storlab.report.charts.theme import SOFT, Chart
from storlab.report.charts.variability.axes import Axes, Clock


def course_chart(
    course: pl.DataFrame, steps: pl.DataFrame, axes: Axes, clock: Clock, span: tuple[float, float] | None = None
) -> Chart:
    """``course``: ``level, t, mean, low, high``; ``steps``: ``level, begin, end, mean`` of levels between changes.

    The line is the mean of a step of time, the band from the least sample in it to the largest. ``span``: what the
    chart is zoomed in on, beyond which both end at its edge; else it is all of them from zero.
    """
    lowest, highest = span or (min(0.0, float(str(course["low"].min()))), float(str(course["high"].max())))
    room = 0.1 * (highest - lowest) or 0.04 * abs(highest) or 1.0
    domain = (lowest - room, highest + room) if span else (lowest, highest + room / 2)
    course = course.select("level", "t", pl.col("mean", "low", "high").clip(*domain))
    scale = alt.Scale(domain=list(domain), zero=not span, nice=False)
    y = alt.Y("mean:Q", title=axes.beside("not from zero" if span else ""), scale=scale, axis=PLAIN)
    x, colour = clock.axis("t"), axes.colour()
    band = (
        alt.Chart(course)
        .mark_area(fillOpacity=0.16)
        .encode(x=x, y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q"), color=colour)
    )
    line = alt.Chart(course).mark_line(strokeWidth=1.2, strokeOpacity=0.75).encode(x=x, y=y, color=colour)
    layers = [band, line]
    if steps.height:
        changes = steps.filter(pl.col("begin") > 0)
        layers.append(
            alt.Chart(steps)
            .mark_rule(strokeWidth=3)
            .encode(x=clock.axis("begin"), x2=alt.X2("end:Q"), y=y, color=colour)
        )
        layers.append(
            alt.Chart(changes)
            .mark_rule(strokeWidth=1.5, strokeDash=[4, 3], color=SOFT)
            .encode(x=clock.axis("begin"), color=colour)
        )
    chart: Chart = alt.layer(*layers, height=240)
    return chart


def series_chart(course: pl.DataFrame, median: pl.DataFrame, axes: Axes, clock: Clock, top: float) -> Chart:
    """``course``: ``level, round, t, mean`` of one level: a thin line a round. ``median``: theirs, without ``round``.

    ``top`` is the axis's end, shared by like charts.
    """
    x, colour = clock.axis("t"), axes.colour(legend=False)
    y = alt.Y("mean:Q", title=axes.beside(), scale=alt.Scale(domain=[0, top], nice=True), axis=PLAIN)
    rounds = alt.Chart(course.select("level", "round", "t", "mean")).mark_line(strokeWidth=1, strokeOpacity=0.35)
    middle = alt.Chart(median.select("level", "t", "mean")).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour)
    lines = rounds.encode(x=x, y=y, color=colour, detail=alt.Detail("round:O"))
    chart: Chart = alt.layer(lines, middle, height=190)
    return chart


def variance_chart(course: pl.DataFrame, axes: Axes, clock: Clock, unit: str) -> Chart:
    """``course``: ``level, t, variance``, the variance within each part of a trial, in display units."""
    chart: Chart = (
        alt.Chart(course.select("level", "t", "variance"), height=200)
        .mark_line(strokeWidth=1.6, interpolate="step")
        .encode(
            x=clock.axis("t"),
            y=alt.Y("variance:Q", title=f"variance in a part ({unit})", scale=alt.Scale(zero=True), axis=PLAIN),
            color=axes.colour(),
        )
    )
    return chart
