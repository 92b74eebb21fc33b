"""Each round of each cell as a point, with the mean and its interval: the numbers behind the estimates."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from storlab.analysis.summary import Estimate
from storlab.report.charts.lanes import by_round, rows, spread
from storlab.report.charts.scales import PLAIN, above_rows, axis_title, display_unit, finite, fitting_scale, log_axis
from storlab.report.charts.theme import COLOURS, INK, SHAPES, Chart, of

_ROW, _LOW_ROW, _AXIS = 52, 30, 46  # px a level, one with a single round or among many, and for the axis below
_MANY = 12


def rounds_chart(values: pl.DataFrame, estimates: Mapping[str, Estimate], factor: str, levels: list[str]) -> Chart:
    """``values``: ``level, round, value`` in base units; ``estimates`` by level; ``levels``: all of ``factor``.

    Rounds run downwards within a level, so drift shows as a slope.
    """
    first = next(iter(estimates.values()))
    values = finite(values)
    unit = display_unit([*values["value"], *(e.mean for e in estimates.values())], first.unit)
    means = pl.DataFrame(
        [(level, e.mean, e.low, e.high) for level, e in estimates.items()],
        schema={"level": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64},
        orient="row",
    ).with_columns(pl.col("value", "low", "high") / unit.factor)
    values = values.with_columns(pl.col("value") / unit.factor)
    ends = [end for column in ("low", "high") for end in means[column].drop_nulls() if end > 0]
    shown = [*values["value"], *means["value"], *ends]
    scale, hint = fitting_scale(shown)
    axis = PLAIN
    if scale.type == "log":  # where an interval's end at 0 would lie infinitely far away, and take all else with it
        axis = log_axis(shown)
        means = means.with_columns(pl.col("low").clip(lower_bound=min(value for value in shown if value > 0)))
    present = [level for level in levels if level in estimates]
    row = _ROW if values["round"].n_unique() > 1 and len(present) <= _MANY else _LOW_ROW
    x = alt.X("value:Q", title=axis_title(first.metric, unit, hint), scale=scale, axis=axis)
    y = alt.Y("level:N", scale=rows(present), axis=above_rows(factor))
    colour = alt.Color("level:N", legend=None, scale=of(levels, COLOURS))
    bands = (
        alt.Chart(means.drop_nulls(["low", "high"]))
        .mark_bar(fillOpacity=0.22, cornerRadius=2)
        .encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=colour)
    )
    centres = alt.Chart(means).mark_tick(thickness=2, color=INK, opacity=1, bandSize=row * 0.75).encode(x=x, y=y)
    points = (
        alt.Chart(spread(values, "level", present))
        .mark_point(filled=True, size=30, fillOpacity=0.9)
        .encode(
            x=x,
            y=by_round(len(present)),
            color=colour,
            shape=alt.Shape("level:N", legend=None, scale=of(levels, SHAPES)),
        )
    )
    layers = alt.layer(alt.layer(bands, centres), points, height=row * len(present) + _AXIS)
    chart: Chart = layers.resolve_scale(y="independent")
    return chart
