"""Each round of each cell as a point, with the mean and its interval: the numbers behind the estimates."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from storlab.analysis.summary import Estimate
from storlab.report.charts.lanes import by_round, rows, spread
from storlab.report.charts.scales import PLAIN, axis_title, display_unit, finite, fitting_scale
from storlab.report.charts.theme import COLOURS, INK, SHAPES, Chart, of

_ROW, _AXIS = 52, 46  # px a level, and for the axis below


def rounds_chart(values: pl.DataFrame, estimates: Mapping[str, Estimate], levels: list[str]) -> Chart:
    """``values``: ``level, round, value`` in base units; ``estimates`` by level; ``levels`` of all charts.

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
    scale, hint = fitting_scale([*values["value"], *means["value"], *ends])
    if scale.type == "log":  # where an interval's end at 0 would lie infinitely far away, and take all else with it
        shown = [*values["value"], *means["value"], *ends]
        means = means.with_columns(pl.col("low").clip(lower_bound=min(value for value in shown if value > 0)))
    present = [level for level in levels if level in estimates]
    x = alt.X("value:Q", title=axis_title(first.metric, unit, hint), scale=scale, axis=PLAIN)
    y = alt.Y("level:N", title=None, scale=rows(present), axis=alt.Axis(grid=False))
    colour = alt.Color("level:N", legend=None, scale=of(levels, COLOURS))
    bands = (
        alt.Chart(means.drop_nulls(["low", "high"]))
        .mark_bar(fillOpacity=0.22, cornerRadius=2)
        .encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=colour)
    )
    centres = alt.Chart(means).mark_tick(thickness=2, color=INK, opacity=1, bandSize=_ROW * 0.75).encode(x=x, y=y)
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
    layers = alt.layer(alt.layer(bands, centres), points, height=_ROW * len(present) + _AXIS)
    chart: Chart = layers.resolve_scale(y="independent")
    return chart
