"""A metric over the time of a trial: one thin line a round, their median bold."""

from __future__ import annotations

import altair as alt
import polars as pl

from storlab.report import format as fmt
from storlab.report.charts.scales import PLAIN, finite
from storlab.report.charts.theme import COLOURS, Chart, of
from storlab.report.charts.variability.axes import Clock

_POINTS = 120  # a line; more than that is finer than the pixels of a phone


def over_time(series: pl.DataFrame, source: str, metric: str, across: str) -> pl.DataFrame:
    """``cell, round, t, value``: all nodes and jobs together, in steps of a whole second at least."""
    rows = series.filter(source=source, metric=metric)
    if rows.is_empty():
        return pl.DataFrame(schema={"cell": pl.Int64, "round": pl.Int64, "t": pl.Float64, "value": pl.Float64})
    whole = pl.col("job").is_null()
    last = float(str(rows["t"].max()))
    step = max(1.0, last / _POINTS)
    together = pl.col("value").sum() if across == "sum" else pl.col("value").mean()
    lanes = ["cell", "round", "trial", "node"]
    return (
        rows.filter(whole | ~whole.any().over(lanes))
        .with_columns(t=((pl.col("t") / step).round() * step))
        .group_by(*lanes, "job", "t")
        .agg(pl.col("value").mean())
        .group_by("cell", "round", "t")
        .agg(together)
        .sort("cell", "round", "t")
    )


def series_chart(
    values: pl.DataFrame, level: str, levels: list[str], metric: str, unit: fmt.Scale, top: float
) -> Chart:
    """``values``: ``round, t, value`` of one cell in base units; ``top`` is the axis's end, shared by like charts."""
    values = finite(values).with_columns(pl.col("value") / unit.factor, level=pl.lit(level))
    clock = Clock(float(str(values["t"].max() or 0.0)))
    values = values.with_columns(pl.col("t") / clock.unit)
    median = values.group_by("level", "t").agg(pl.col("value").median()).sort("t")
    x = clock.axis("t")
    y = alt.Y(
        "value:Q", title=unit.symbol or metric, scale=alt.Scale(domain=[0, top / unit.factor], nice=True), axis=PLAIN
    )
    colour = alt.Color("level:N", legend=None, scale=of(levels, COLOURS))
    rounds = (
        alt.Chart(values)
        .mark_line(strokeWidth=1, opacity=0.35)
        .encode(x=x, y=y, color=colour, detail=alt.Detail("round:O"))
    )
    middle = alt.Chart(median).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour)
    return alt.layer(rounds, middle).properties(height=190)
