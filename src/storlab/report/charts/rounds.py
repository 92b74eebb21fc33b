"""Round by round, as points: each cell with its mean and interval; ratios of two levels with the margin around 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from storlab.analysis.summary import Comparison, Estimate, Verdict
from storlab.report.charts.theme import (
    COLOURS,
    INK,
    PLAIN,
    SHAPES,
    SOFT,
    ZONE,
    Chart,
    above_rows,
    axis_title,
    display_unit,
    finite,
    fitting_scale,
    log_axis,
    of,
)
from storlab.report.document import Span
from storlab.report.formats.plot import domain, ticks

_FILLED = 0.75  # the part of a row's height that its band and its rounds take


def rows(names: Sequence[str]) -> alt.Scale:
    """A band for each name. Padding outside is half of that between, so that row i is centred at i + ½ steps."""
    gap = 1 - _FILLED
    return alt.Scale(domain=list(names), paddingInner=gap, paddingOuter=gap / 2)


def spread(points: pl.DataFrame, column: str, names: Sequence[str]) -> pl.DataFrame:
    """``points`` with ``lane``: the row of their name, and within it downwards by ``round``, first above."""
    first, last = points["round"].min(), points["round"].max()
    span = float(str(last)) - float(str(first)) if points.height else 0.0
    part = (pl.col("round") - (first or 0)) / span - 0.5 if span else pl.lit(0.0)
    order = pl.DataFrame({column: list(names), "_row": [float(i) for i in range(len(names))]})
    joined = points.join(order, on=column, maintain_order="left")
    return joined.with_columns(lane=pl.col("_row") + part * _FILLED * 0.8).drop("_row")


def by_round(count: int) -> alt.Y:
    """The axis of ``lane``: unseen, and in step with the bands of ``rows``."""
    scale = alt.Scale(domain=[-0.5, count - 0.5], reverse=True, nice=False, zero=False)
    return alt.Y("lane:Q", axis=None, scale=scale)


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
    bars = alt.Chart(means.drop_nulls(["low", "high"])).mark_bar(fillOpacity=0.22, cornerRadius=2)
    bands = bars.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=colour)
    centres = alt.Chart(means).mark_tick(thickness=2, color=INK, opacity=1, bandSize=row * 0.75).encode(x=x, y=y)
    shape = alt.Shape("level:N", legend=None, scale=of(levels, SHAPES))
    marks = alt.Chart(spread(values, "level", present)).mark_point(filled=True, size=30, fillOpacity=0.9)
    points = marks.encode(x=x, y=by_round(len(present)), color=colour, shape=shape)
    layers = alt.layer(alt.layer(bands, centres), points, height=row * len(present) + _AXIS)
    chart: Chart = layers.resolve_scale(y="independent")
    return chart


_PAIR, _PAIR_AXIS = 52, 64
_VERDICTS: tuple[Verdict, ...] = ("better", "worse", "equivalent", "undecided")
# Long names in two lines. Constants only, no text from outside.
_TWO_LINES = "length(datum.label) > 22 ? split(replace(datum.label, ' vs ', '\\nvs '), '\\n') : datum.label"
# As the marks of the sentences beside it. Better and worse differ in the side of 1 already.
_HUES = ("#009e73", "#d55e00", "#0072b2", "#57606a")


def pair_name(comparison: Comparison) -> str:
    """ "ext4 vs xfs"."""
    return f"{comparison.a} vs {comparison.b}"


def paired_chart(comparisons: Sequence[Comparison], spans: Sequence[Span | None]) -> Chart:
    """Ratios of ``comparisons``, whose ``spans`` say how many times ahead the first side is, as in their table."""
    first, pairs = comparisons[0], [pair_name(c) for c in comparisons]
    drawn = list(zip(comparisons, spans, strict=True))
    shown = pl.DataFrame(
        [(pair_name(c), span.value, span.low, span.high, c.verdict) for c, span in drawn if span],
        schema={"pair": pl.String, "ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64, "verdict": pl.String},
        orient="row",
    )
    points = pl.DataFrame(
        [(pair_name(c), n, ratio, c.verdict) for c, span in drawn if span for n, ratio in enumerate(span.points)],
        schema={"pair": pl.String, "round": pl.Int64, "ratio": pl.Float64, "verdict": pl.String},
        orient="row",
    )
    low, high = domain(list(spans), first.margin)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    marks = ticks(low, high)
    axis = alt.Axis(values=marks, tickCount=len(marks), format=".3~r", labelExpr="datum.label + '×'")
    meaning = f", {first.better} is better" if first.better in ("higher", "lower") else ""
    sides = "second ÷ first" if first.better == "lower" else "first ÷ second"
    x = alt.X("ratio:Q", title=[first.metric, f"{sides} (log scale{meaning})"], scale=scale, axis=axis)
    y = alt.Y("pair:N", title=None, scale=rows(pairs), axis=alt.Axis(grid=False, labelExpr=_TWO_LINES))
    colour = alt.Color("verdict:N", legend=None, scale=of(list(_VERDICTS), _HUES))
    margin = pl.DataFrame({"low": [1 / (1 + first.margin)], "high": [1 + first.margin]})
    zone = alt.Chart(margin).mark_rect(color=ZONE).encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"))
    one = alt.Chart(pl.DataFrame({"ratio": [1.0]})).mark_rule(color=SOFT, strokeWidth=1).encode(x=x)
    bars = alt.Chart(shown).mark_bar(fillOpacity=0.25, cornerRadius=2)
    bands = bars.encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"), y=y, color=colour)
    centres = alt.Chart(shown).mark_tick(thickness=2, color=INK, opacity=1, bandSize=_PAIR * 0.75).encode(x=x, y=y)
    rounds = alt.Chart(spread(points, "pair", pairs)).mark_point(filled=True, size=26, fillOpacity=0.9)
    each = rounds.encode(x=x, y=by_round(len(pairs)), color=colour)
    layers = alt.layer(alt.layer(zone, one, bands, centres), each, height=_PAIR * len(pairs) + _PAIR_AXIS)
    chart: Chart = layers.resolve_scale(y="independent")
    return chart
