"""Latency by bins: where most operations lie, and whether they are of two kinds, as hits and misses of a cache are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from storlab.report.charts.latency import merged
from storlab.report.charts.scales import seconds_axis
from storlab.report.charts.theme import COLOURS, DASHES, Chart, of

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
