"""Quartiles, whiskers and outliers: of all samples of a level, and round by round or part by part."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from storlab.report.charts.scales import PLAIN
from storlab.report.charts.theme import INK, Chart
from storlab.report.charts.variability.axes import Axes

_ROW, _AXIS = 64, 46  # px a level, and for the axis below


def box_chart(boxes: pl.DataFrame, outliers: pl.DataFrame, axes: Axes) -> Chart:
    """``boxes``: ``level, low, first, median, third, high``; ``outliers``: ``level, value, aside``; a row a level.

    Outliers lie at random heights, so that none hides another.
    """
    y = axes.rows()
    colour = axes.colour(legend=False)
    x = axes.values("low")
    whiskers = alt.Chart(boxes).mark_rule(strokeWidth=1.5).encode(x=x, x2=alt.X2("high:Q"), y=y, color=colour)
    quartiles = (
        alt.Chart(boxes)
        .mark_bar(fillOpacity=0.55, size=24)
        .encode(x=axes.values("first"), x2=alt.X2("third:Q"), y=y, color=colour)
    )
    middle = (
        alt.Chart(boxes).mark_tick(thickness=2.5, color=INK, size=24, opacity=1).encode(x=axes.values("median"), y=y)
    )
    points = (
        alt.Chart(outliers)
        .mark_circle(size=14, fillOpacity=0.6)
        .encode(
            x=axes.values("value"),
            y=y,
            yOffset=alt.YOffset("aside:Q", scale=alt.Scale(domain=[-0.6, 0.6])),
            color=colour,
        )
    )
    chart: Chart = alt.layer(whiskers, quartiles, middle, points, height=_ROW * boxes.height + _AXIS)
    return chart


def boxes_chart(boxes: pl.DataFrame, axes: Axes, column: str, title: str, names: Sequence[str]) -> Chart:
    """``boxes``: as above, with ``column``, one of ``names``: side by side from left to right, levels within."""
    x = alt.X(f"{column}:N", title=title, sort=list(names), axis=alt.Axis(grid=False, labelAngle=0, labelOverlap=True))
    offset = alt.XOffset("level:N", sort=list(axes.shown))
    hint = alt.Scale(zero=False, nice=True)
    colour = axes.colour()

    def y(of: str) -> alt.Y:
        return alt.Y(f"{of}:Q", title=axes.beside("not from zero"), scale=hint, axis=PLAIN)

    whiskers = (
        alt.Chart(boxes)
        .mark_rule(strokeWidth=1.5)
        .encode(x=x, xOffset=offset, y=y("low"), y2=alt.Y2("high:Q"), color=colour)
    )
    quartiles = (
        alt.Chart(boxes)
        .mark_bar(fillOpacity=0.55)
        .encode(x=x, xOffset=offset, y=y("first"), y2=alt.Y2("third:Q"), color=colour)
    )
    middle = (
        alt.Chart(boxes)
        .mark_tick(thickness=2, color=INK, opacity=1, bandSize=14)
        .encode(x=x, xOffset=offset, y=y("median"))
    )
    chart: Chart = alt.layer(whiskers, quartiles, middle, height=220)
    return chart
