"""Latencies of all operations: by percentile, and by bins, which show whether there are two kinds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from storlab.measurements import merge_histograms
from storlab.report.charts.theme import COLOURS, DASHES, Chart, of, seconds_axis, title_of

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


# Latency by bins: where most operations lie, and whether they are of two kinds, as hits and misses of a cache are.

_BINS = 10  # a decade, unless the tool's own are wider
_HEIGHT = 230


def shares_of_bins(histograms: pl.DataFrame, cells: Mapping[str, int], source: str, metric: str) -> pl.DataFrame:
    """``level, lower, share``: what part of a cell's operations took longer than ``lower`` (s), but not than the next.

    ``cells``: level → its cell. Bins are a tenth of a decade; where a tool has kept wider ones, all are the tool's. All
    cells have the same bins, also those with nothing in them, the last of which ends the chart.
    """
    levels = [
        merged(histograms, cell, source, metric).with_columns(level=pl.lit(level)) for level, cell in cells.items()
    ]
    bins = pl.concat(levels).filter(pl.col("upper") > 0, pl.col("lower").is_finite())
    if not bins.height:  # nothing that a log axis can show
        return pl.DataFrame(schema={"level": pl.String, "lower": pl.Float64, "share": pl.Float64})
    upper = pl.when(pl.col("upper").is_finite()).then("upper").otherwise(2 * pl.col("lower"))
    bins = bins.with_columns(upper=upper).with_columns(
        lower=pl.when(pl.col("lower") > 0).then("lower").otherwise(pl.col("upper") / 2)
    )
    grid, bins = _as_they_are(bins) if _wide(bins) else _fine(bins)
    counts = bins.group_by("level", "lower").agg(pl.col("count").sum())
    everywhere = pl.DataFrame({"level": list(cells)}).join(grid, how="cross")
    filled = everywhere.join(counts, on=["level", "lower"], how="left", maintain_order="left")
    count = pl.col("count").fill_null(0)
    return filled.select("level", "lower", share=count / count.sum().over("level"))


def _wide(bins: pl.DataFrame) -> bool:
    return bool((bins["upper"] / bins["lower"] > 10 ** (1.05 / _BINS)).any())


def _fine(bins: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The grid, and bins by it: each lies where its middle is."""
    at = (((pl.col("lower") * pl.col("upper")).log(10) / 2) * _BINS).floor()
    numbered = bins.with_columns(at=at.cast(pl.Int64))
    first, last = (int(str(end)) for end in (numbered["at"].min(), numbered["at"].max()))
    grid = pl.DataFrame({"at": range(first - 1, last + 2)}).with_columns(lower=10 ** (pl.col("at") / _BINS))
    return grid.select("lower"), numbered.drop("lower").join(grid, on="at")


def _as_they_are(bins: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    edges = sorted({*bins["lower"], *bins["upper"]})
    return pl.DataFrame({"lower": edges}), bins


def histogram_chart(shares: pl.DataFrame, latency: str, levels: Sequence[str]) -> Chart:
    """``shares``: ``level, lower, share``, as ``shares_of_bins`` gives them."""
    x = alt.X(
        "lower:Q",
        title=f"{latency} (log scale)",
        scale=alt.Scale(type="log", nice=False),
        axis=seconds_axis(shares["lower"]),
    )
    y = alt.Y("share:Q", title="operations in each bin (%)", axis=alt.Axis(format="%", tickCount=5), stack=None)
    legend = alt.Legend(title=None, symbolOpacity=1)
    colour = alt.Color("level:N", scale=of(list(levels), COLOURS), legend=legend)
    dash = alt.StrokeDash("level:N", scale=of(list(levels), DASHES), legend=legend)
    base = alt.Chart(shares).encode(x=x, y=y, color=colour)
    areas = base.mark_area(opacity=0.15, interpolate="step-after")
    lines = base.mark_line(strokeWidth=2, interpolate="step-after").encode(strokeDash=dash)
    return alt.layer(areas, lines, height=_HEIGHT)
