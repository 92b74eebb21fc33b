"""Latency by percentile: how slow the slowest tenth, hundredth, thousandth … of all operations are.

The horizontal axis counts nines, −log10(1 − p), as HdrHistogram's plots do (https://hdrhistogram.github.io/): the
tail, which users feel, gets the room.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from storlab.measurements import merge_histograms
from storlab.report.charts.names import title_of
from storlab.report.charts.scales import seconds_axis
from storlab.report.charts.theme import COLOURS, DASHES, Chart, of

_LABELS = "format(100 * (1 - pow(10, -datum.value)), '.6~r')"
_POINTS = 60  # a curve, for each nine: as many as it has pixels on a phone
_MEDIAN = 0.30103  # −log10(1 − 0.5)


def merged(histograms: pl.DataFrame, cell: int, source: str, metric: str) -> pl.DataFrame:
    """``lower, upper, count`` of all nodes, jobs and rounds of a cell, in order, without empty bins."""
    rows = histograms.filter(cell=cell, source=source, metric=metric)
    whole = pl.col("job").is_null()
    kept = rows.filter(whole | ~whole.any().over("trial", "node"))
    return merge_histograms(kept).filter(pl.col("count") > 0).sort("upper").select("lower", "upper", "count")


def percentile_curve(histograms: pl.DataFrame, cell: int, source: str, metric: str) -> pl.DataFrame:
    """``nines, latency``: cumulated counts of all nodes, jobs and rounds of a cell; latencies are upper edges."""
    bins = merged(histograms, cell, source, metric)
    beyond = 1 - pl.col("count").cum_sum() / pl.col("count").sum()
    # The slowest operation has nothing beyond it; its bin ends the curve where half an operation would be.
    least = 0.5 / pl.col("count").sum()
    curve = bins.select(nines=-pl.max_horizontal(beyond, least).log(10), latency=pl.col("upper")).filter(
        pl.col("latency").is_finite() & (pl.col("latency") > 0)
    )
    pixel = (pl.col("nines") * _POINTS).floor()
    return curve.group_by(pixel.alias("pixel"), maintain_order=True).last().drop("pixel")


def latency_chart(curves: pl.DataFrame, factor: str, levels: list[str]) -> Chart:
    """``curves``: ``level, nines, latency`` (s), of some of the ``levels`` of ``factor``."""
    most = min(6.0, float(str(curves["nines"].max())))
    ticks = [_MEDIAN, *(float(nine) for nine in range(1, int(most) + 1))]
    scale = alt.Scale(domain=[0, most], nice=False, clamp=True)
    axis = alt.Axis(values=ticks, tickCount=len(ticks), labelExpr=_LABELS, labelOverlap="greedy")
    x = alt.X("nines:Q", title="percentile (%)", scale=scale, axis=axis)
    log = alt.Scale(type="log", nice=False)
    y = alt.Y("latency:Q", title="latency (log scale)", scale=log, axis=seconds_axis(curves["latency"]))
    present = set(curves["level"])
    shown = [level for level in levels if level in present]
    legend = alt.Legend(title=title_of(factor), values=shown)
    lines = alt.Chart(curves, height=230).mark_line(strokeWidth=2, interpolate="step-before")
    colour = alt.Color("level:N", scale=of(levels, COLOURS), legend=legend)
    dash = alt.StrokeDash("level:N", scale=of(levels, DASHES), legend=legend)
    chart: Chart = lines.encode(x=x, y=y, color=colour, strokeDash=dash)
    return chart
