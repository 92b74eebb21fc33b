"""Charts of means over levels: main effects and interactions, curves and heat maps of sweeps, knees.

In an interaction plot (Montgomery, "Design and Analysis of Experiments", section 5.1) lines of two factors that do not
interact are parallel, on the log axis that belongs to logarithms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from storlab.analysis.data import Effects, LevelMean
from storlab.report.charts.theme import (
    ABOVE,
    COLOURS,
    DASHES,
    INK,
    PAPER,
    PLAIN,
    SHAPES,
    SOFT,
    Chart,
    axis_title,
    decades,
    display_unit,
    fitting_scale,
    log_axis,
    of,
    seconds_axis,
    title_of,
)
from storlab.report.language import format as fmt

_ROW, _AXIS = 24, 46  # px a level, and for the axis below
_NEAR = 3.0


def main_effects_chart(found: Effects) -> Chart:
    """The mean of every level of every factor, factors one below the other."""
    unit = display_unit([mean.mean for mean in found.main], found.unit)
    rows = [
        (factor, f"{factor} = {level}", place, mean.mean / unit.factor)
        for place, mean in enumerate(found.main)
        for factor, level in mean.levels.items()
    ]
    frame = pl.DataFrame(rows, schema=["factor", "level", "place", "mean"], orient="row")
    scale, hint, axis = _scale([row[3] for row in rows])
    x = alt.X("mean:Q", title=axis_title(found.metric, unit, hint), scale=scale, axis=axis)
    y = alt.Y("level:N", title=None, sort=[row[1] for row in rows], axis=alt.Axis(grid=False))
    base = alt.Chart(frame).encode(
        x=x, y=y, color=alt.Color("factor:N", legend=None, scale=of(list(found.factors), COLOURS))
    )
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(order="place:Q"), base.mark_point(filled=True, size=60, opacity=1)
    ).properties(height=_ROW * len(rows) + _AXIS)


def _scale(values: Sequence[float]) -> tuple[alt.Scale, str, alt.Axis]:
    """Log, or where that would have no ticks linear, which so near is hardly another; with the words for its title."""
    if max(values) / min(values) < _NEAR:
        return alt.Scale(zero=False, nice=True), "not from zero", PLAIN
    return alt.Scale(type="log", nice=False, zero=False, padding=12), "log scale", log_axis(values)


def interaction_chart(found: Effects, means: Sequence[LevelMean], across: str, by: str) -> Chart:
    """Means over the levels of ``across``, a line for each level of ``by``."""
    unit = display_unit([mean.mean for mean in means], found.unit)
    rows = [(mean.levels[across], mean.levels[by], mean.mean / unit.factor) for mean in means]
    frame = pl.DataFrame(rows, schema=["across", "by", "mean"], orient="row")
    levels = list(dict.fromkeys(row[1] for row in rows))
    order = list(dict.fromkeys(row[0] for row in rows))
    x = alt.X("across:N", title=across, sort=order, axis=alt.Axis(labelAngle=0, grid=False))
    scale, hint, axis = _scale([row[2] for row in rows])
    y = alt.Y("mean:Q", title=axis_title(found.metric, unit, hint), scale=scale, axis=axis)
    base = alt.Chart(frame).encode(x=x, y=y, color=alt.Color("by:N", scale=of(levels, COLOURS), title=title_of(by)))
    lines = base.mark_line(strokeWidth=2)
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        shape=alt.Shape("by:N", scale=of(levels, SHAPES), title=title_of(by))
    )
    return alt.layer(lines, points).properties(height=230)


# Curves with intervals, heat maps of two factors that are numbers, and latency against throughput with the knee.

_HEIGHT, _LARGE, _DRAW_ROW, _AXES = 230, 300, 26, 54  # px
_POWERS = 4.0  # levels that span more than this are powers, and stand on a log axis


@dataclass(frozen=True)
class Marks:
    """What is marked on curves: ``limits`` of objectives, in base units, and ``knees``: line and level."""

    limits: tuple[float, ...] = ()
    knees: tuple[tuple[str, str], ...] = ()


def curve_chart(
    points: pl.DataFrame,
    factor: str,
    by: str,
    metric: str,
    unit: str,
    marked: Marks = Marks(),
    *,
    log: bool | None = None,
) -> Chart:
    """``points``: ``number, label, line, mean, low, high`` in base units; ``by``: what the lines are levels of.

    ``log``: whether the axis of values is logarithmic; ``None``: if that shows them better.
    """
    shown = display_unit(points["mean"], unit)
    drawn = points.with_columns(pl.col("mean", "low", "high") / shown.factor)
    scale, hint = fitting_scale(drawn["mean"], log=log)
    axis = log_axis(drawn["mean"]) if scale.type == "log" else PLAIN
    if scale.type == "log":  # an interval's end at 0 would lie infinitely far away
        drawn = drawn.with_columns(pl.col("low").clip(lower_bound=float(str(drawn["mean"].min())) / 10))
    x = _steps(drawn, factor)
    y = alt.Y("mean:Q", title=axis_title(metric, shown, hint), scale=scale, axis=axis)
    lines = list(dict.fromkeys(drawn["line"]))
    legend = alt.Legend(title=title_of(by), symbolOpacity=1) if by else None
    colour = alt.Color("line:N", scale=of(lines, COLOURS), legend=legend)
    base = alt.Chart(drawn).encode(x=x, color=colour)
    bands = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    strokes = base.mark_line(strokeWidth=2).encode(
        y=y, strokeDash=alt.StrokeDash("line:N", scale=of(lines, DASHES), legend=legend)
    )
    points_ = base.mark_point(filled=True, size=40, opacity=1).encode(
        y=y, shape=alt.Shape("line:N", scale=of(lines, SHAPES), legend=legend)
    )
    limits = pl.DataFrame({"limit": [limit / shown.factor for limit in marked.limits]}, schema={"limit": pl.Float64})
    rules = alt.Chart(limits).mark_rule(color=SOFT, strokeDash=[6, 4]).encode(y=alt.Y("limit:Q"))
    wanted = pl.DataFrame(list(marked.knees), schema={"line": pl.String, "label": pl.String}, orient="row")
    knees = alt.Chart(drawn.join(wanted, on=["line", "label"], how="semi"))
    rings = knees.mark_point(size=190, strokeWidth=2, color=INK, opacity=1).encode(x=x, y=y)
    more = [*([rules] if marked.limits else []), *([rings] if marked.knees else [])]
    return alt.layer(bands, strokes, points_, *more, height=_LARGE)


def _steps(points: pl.DataFrame, factor: str) -> alt.X:
    """The factor's axis: logarithmic where its levels are powers, with the levels themselves as ticks."""
    pairs = points.select("number", "label").unique(maintain_order=True).sort("number")
    numbers: list[float] = pairs["number"].to_list()
    names: list[str] = pairs["label"].to_list()
    log = numbers[0] > 0 and numbers[-1] / numbers[0] > _POWERS
    said = " : ".join(
        f"abs(datum.value - {number!r}) <= {abs(number) * 1e-9!r} ? '{name}'"
        for number, name in zip(numbers, names, strict=True)
    )  # labels of levels that are numbers: digits and units, no text from outside
    axis = alt.Axis(values=numbers, tickCount=len(numbers), labelExpr=f"{said} : ''", grid=False)
    scale = alt.Scale(type="log" if log else "linear", nice=False, zero=False, padding=10)
    hint = " (log scale)" if log else ""
    return alt.X("number:Q", title=f"{title_of(factor)}{hint}", scale=scale, axis=axis)


Ordered = tuple[str, Sequence[str]]
"""A factor, and its levels in their order."""


def heat_map_chart(squares: pl.DataFrame, across: Ordered, down: Ordered, metric: str, unit: str) -> Chart:
    """``squares``: ``across, down`` (levels) and ``mean`` in base units."""
    shown = display_unit(squares["mean"], unit)
    low, high = (float(str(end)) for end in (squares["mean"].min(), squares["mean"].max()))
    step = (pl.col("mean") - low) / ((high - low) or 1.0) * len(ABOVE)
    drawn = squares.with_columns(
        shade=step.floor().clip(0, len(ABOVE) - 1).cast(pl.Int64).cast(pl.String),
        text=pl.col("mean").map_elements(lambda value: f"{value / shown.factor:.3g}", return_dtype=pl.String),
    ).with_columns(ink=pl.when(pl.col("shade").is_in(["3", "4"])).then(pl.lit("light")).otherwise(pl.lit("dark")))
    columns, rows = (
        [level for level in order if level in set(drawn[name])]
        for name, (_, order) in (("across", across), ("down", down))
    )
    axis = alt.Axis(labelAngle=0, grid=False, domain=False, ticks=False)
    x = alt.X("across:N", title=title_of(across[0]), scale=alt.Scale(domain=columns, paddingInner=0.06), axis=axis)
    y = alt.Y("down:N", title=title_of(down[0]), scale=alt.Scale(domain=rows[::-1], paddingInner=0.08), axis=axis)
    shades = alt.Scale(domain=[str(number) for number in range(len(ABOVE))], range=list(ABOVE))
    ink = alt.Scale(domain=["dark", "light"], range=[INK, PAPER])
    filled = (
        alt.Chart(drawn)
        .mark_rect(cornerRadius=2)
        .encode(x=x, y=y, color=alt.Color("shade:N", scale=shades, legend=None))
    )
    numbers = (
        alt.Chart(drawn)
        .mark_text(fontSize=11)
        .encode(x=x, y=y, text="text:N", color=alt.Color("ink:N", scale=ink, legend=None))
    )
    title = alt.TitleParams(axis_title(metric, shown), fontSize=12, fontWeight="normal", anchor="start", color=INK)
    layers = alt.layer(filled, numbers, height=_DRAW_ROW * len(rows) + _AXES, title=title)
    chart: Chart = layers.resolve_scale(color="independent")
    return chart


def hockey_stick_chart(points: pl.DataFrame, knees: Sequence[tuple[str, str]], names: tuple[str, str, str]) -> Chart:
    """``points``: ``line, label, rate, time`` (1/s, s), a line's in order of its steps. ``knees``: line and label.

    ``names``: metrics of throughput and latency, and what the lines are levels of.
    """
    throughput, latency, by = names
    shown = display_unit(points["rate"], fmt.unit_of(throughput, "1/s"))
    drawn = points.with_columns(pl.col("rate") / shown.factor).with_row_index("at")
    x_scale, hint = fitting_scale(drawn["rate"])
    x_axis = log_axis(drawn["rate"]) if x_scale.type == "log" else PLAIN
    x = alt.X("rate:Q", title=axis_title(throughput, shown, hint), scale=x_scale, axis=x_axis)
    log = alt.Scale(type="log", nice=False, padding=12)
    y = alt.Y("time:Q", title=f"{latency} (log scale)", scale=log, axis=_seconds(drawn["time"]))
    lines = list(dict.fromkeys(drawn["line"]))
    legend = alt.Legend(title=title_of(by)) if by else None
    base = alt.Chart(drawn).encode(x=x, y=y, color=alt.Color("line:N", scale=of(lines, COLOURS), legend=legend))
    strokes = base.mark_line(strokeWidth=2).encode(order="at:Q")
    marks = base.mark_point(filled=True, size=36, opacity=1).encode(
        shape=alt.Shape("line:N", scale=of(lines, SHAPES), legend=legend)
    )
    wanted = pl.DataFrame(list(knees), schema={"line": pl.String, "label": pl.String}, orient="row")
    at_knee = alt.Chart(drawn.join(wanted, on=["line", "label"], how="semi"))
    rings = at_knee.mark_point(size=190, strokeWidth=2, color=INK, opacity=1).encode(x=x, y=y)
    text = at_knee.mark_text(dy=-15, fontSize=11, color=INK).encode(x=x, y=y, text="label:N")
    return alt.layer(strokes, marks, rings, text, height=_HEIGHT)


def _seconds(values: Iterable[float]) -> alt.Axis:
    known = list(values)
    return seconds_axis(known if decades(known) else [*known, 1.0])


def in_words(points: pl.DataFrame, factor: str, metric: str, unit: str) -> str:
    """For whoever can't see the curve."""
    parts = []
    for (line,), rows in points.group_by("line", maintain_order=True):
        first, last = rows.row(0, named=True), rows.row(-1, named=True)
        ends = (f"{fmt.quantity(row['mean'], unit)} at {row['label']}" for row in (first, last))
        parts.append(f"{line}: {' to '.join(ends)}" if line else " to ".join(ends))
    return f"{metric} over {factor}, with intervals. {'; '.join(parts)}."


def cdf_chart(curves: pl.DataFrame, latency: str, lines: Sequence[str]) -> Chart:
    """``curves``: ``level, nines, latency`` (s), as ``percentile_curve`` gives them."""
    drawn = curves.with_columns(share=1 - (10.0 ** -pl.col("nines")))
    log = alt.Scale(type="log", nice=False)
    x = alt.X("latency:Q", title=f"{latency} (log scale)", scale=log, axis=_seconds(drawn["latency"]))
    y = alt.Y("share:Q", title="operations (%)", axis=alt.Axis(format="%", tickCount=5))
    legend = alt.Legend(title=None)
    colour = alt.Color("level:N", scale=of(list(lines), COLOURS), legend=legend)
    dash = alt.StrokeDash("level:N", scale=of(list(lines), DASHES), legend=legend)
    base = alt.Chart(drawn, height=_HEIGHT).mark_line(strokeWidth=2, interpolate="step-after")
    chart: Chart = base.encode(x=x, y=y, color=colour, strokeDash=dash)
    return chart
