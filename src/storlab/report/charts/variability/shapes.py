"""Distributions of samples, of several levels in one chart: histogram, density, bell curve, or two of them."""

from __future__ import annotations

import altair as alt
import polars as pl

from storlab.report.charts.scales import PLAIN
from storlab.report.charts.theme import Chart
from storlab.report.charts.variability.axes import Axes

_HEIGHT = 220
_SHARE = "samples in a bin (%)"


def histogram_chart(bins: pl.DataFrame, axes: Axes, curves: pl.DataFrame | None = None) -> Chart:
    """``bins``: ``level, low, high, share``. ``curves``: ``level, value, density``, drawn over them on their scale."""
    bars = bins.select("level", "low", "high", share=100 * pl.col("share"))
    y = alt.Y("share:Q", title=_SHARE, scale=alt.Scale(zero=True), axis=PLAIN)
    x = axes.values("low")
    layers: list[alt.Chart] = [
        alt.Chart(bars.filter(pl.col("share") > 0))
        .mark_rect(fillOpacity=0.4, stroke=None)
        .encode(x=x, x2=alt.X2("high:Q"), y=y, y2=alt.Y2Datum(0), color=axes.colour())
    ]
    if curves is not None and curves.height:
        lines = curves.select("level", low="value", share=pl.col("density") * 100 * _width(bins))
        layers.append(alt.Chart(lines).mark_line(strokeWidth=2).encode(x=x, y=y, color=axes.colour()))
    chart: Chart = alt.layer(*layers, height=_HEIGHT)
    return chart


def density_chart(curves: pl.DataFrame, bins: pl.DataFrame, axes: Axes) -> Chart:
    """``curves``: ``level, value, density``, and for bell curves ``mean`` and ``sigma``, whose places are dotted.

    On the scale of the histogram of ``bins``, so that all of these charts can be held against each other.
    """
    lines = curves.select("level", "value", pl.col("density") * 100 * _width(bins))
    y = alt.Y("density:Q", title=_SHARE, scale=alt.Scale(zero=True), axis=PLAIN)
    x = axes.values("value")
    layers = [
        alt.Chart(lines).mark_area(fillOpacity=0.12).encode(x=x, y=y, color=axes.colour()),
        alt.Chart(lines).mark_line(strokeWidth=2).encode(x=x, y=y, color=axes.colour()),
    ]
    if "sigma" in curves.columns:
        marks = curves.group_by("level", maintain_order=True).first().select("level", "mean", "sigma")
        places = pl.concat(
            marks.select("level", value=pl.col("mean") + times * pl.col("sigma"), middle=pl.lit(times == 0))
            for times in (-1, 0, 1)
        )
        for middle, size in ((True, 1.6), (False, 1.0)):
            layers.append(
                alt.Chart(places.filter(middle=middle))
                .mark_rule(strokeDash=[2, 3], strokeWidth=size)
                .encode(x=x, color=axes.colour())
            )
    chart: Chart = alt.layer(*layers, height=_HEIGHT)
    return chart


def _width(bins: pl.DataFrame) -> float:
    return float(str((bins["high"] - bins["low"])[0]))
