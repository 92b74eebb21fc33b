"""One level against another: variance with its factor, and the difference of each quantile."""

from __future__ import annotations

import altair as alt
import polars as pl

from storlab.report.charts.scales import PLAIN
from storlab.report.charts.theme import INK, SOFT, Chart
from storlab.report.charts.variability.axes import Axes


def factor_chart(variances: pl.DataFrame, axes: Axes, unit: str) -> Chart:
    """``variances``: ``level, variance`` in display units, and ``label``, which says how many times the least it is."""
    y = axes.rows()
    x = alt.X("variance:Q", title=f"variance ({unit})", scale=alt.Scale(zero=True, nice=True), axis=PLAIN)
    bars = alt.Chart(variances).mark_bar(size=22, fillOpacity=0.75).encode(x=x, y=y, color=axes.colour(legend=False))
    words = (
        alt.Chart(variances)
        .mark_text(align="left", baseline="bottom", dy=-13, fontSize=12, color=INK)
        .encode(x=alt.XDatum(0), y=y, text=alt.Text("label:N"))
    )
    chart: Chart = alt.layer(bars, words, height=58 * variances.height + 46)
    return chart


def quantiles_chart(differences: pl.DataFrame, axes: Axes) -> Chart:
    """``differences``: ``level, quantile, difference``, both as shares. Against which level, its heading says."""
    rows = differences.select("level", quantile=100 * pl.col("quantile"), difference=100 * pl.col("difference"))
    x = alt.X(
        "quantile:Q", title="quantile (%)", scale=alt.Scale(domain=[0, 100], nice=False), axis=alt.Axis(grid=False)
    )
    y = alt.Y("difference:Q", title="difference (%)", scale=alt.Scale(zero=True, nice=True), axis=PLAIN)
    line = alt.Chart(rows).mark_line(strokeWidth=2).encode(x=x, y=y, color=axes.colour())
    zero = alt.Chart(pl.DataFrame({"difference": [0.0]})).mark_rule(color=SOFT).encode(y=y)
    chart: Chart = alt.layer(zero, line, height=220)
    return chart
