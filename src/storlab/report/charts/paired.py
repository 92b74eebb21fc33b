"""Ratios of two levels, round by round, with the interval that the verdict rests on and the margin around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import polars as pl

from storlab.analysis.summary import Comparison, Verdict
from storlab.report.charts.lanes import by_round, rows, spread
from storlab.report.charts.scales import finite
from storlab.report.charts.theme import INK, SOFT, ZONE, Chart, of

_ROW, _AXIS = 52, 64
_VERDICTS: tuple[Verdict, ...] = ("better", "worse", "equivalent", "undecided")
# Long names in two lines. Constants only, no text from outside.
_TWO_LINES = "length(datum.label) > 22 ? split(replace(datum.label, ' vs ', '\\nvs '), '\\n') : datum.label"
# As the marks of the sentences beside it. Better and worse differ in the side of 1 already.
_HUES = ("#009e73", "#d55e00", "#0072b2", "#57606a")


def ratios(values: pl.DataFrame, comparison: Comparison, a: int, b: int) -> pl.DataFrame:
    """``pair, round, ratio, verdict``: cell ``a`` over cell ``b`` in each round that has both."""
    left = values.filter(pl.col("cell") == a).select("round", "value")
    right = values.filter(pl.col("cell") == b).select("round", other="value")
    pairs = left.join(right, on="round").select("round", ratio=pl.col("value") / pl.col("other"))
    shown = finite(pairs, "ratio").filter(pl.col("ratio") > 0)
    return shown.with_columns(pair=pl.lit(pair_name(comparison)), verdict=pl.lit(comparison.verdict))


def pair_name(comparison: Comparison) -> str:
    """ "ext4 vs xfs"."""
    return f"{comparison.a} vs {comparison.b}"


def paired_chart(points: pl.DataFrame, comparisons: Sequence[Comparison]) -> Chart:
    """``points``: ``pair, round, ratio, verdict``, as ``ratios`` gives them, of all ``comparisons``."""
    first = comparisons[0]
    shown = pl.DataFrame(
        [(pair_name(c), c.ratio, _end(c.low), _end(c.high), c.verdict) for c in comparisons],
        schema={"pair": pl.String, "ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64, "verdict": pl.String},
        orient="row",
    )
    pairs = [pair_name(c) for c in comparisons]
    ends = [v for name in ("ratio", "low", "high") for v in shown[name].drop_nulls()]
    low, high = _domain([*points["ratio"], *ends], first.margin)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    ticks = _ticks(low, high)
    axis = alt.Axis(values=ticks, tickCount=len(ticks), format=".2~f", labelExpr="datum.label + '×'")
    meaning = f", {first.better} is better" if first.better in ("higher", "lower") else ""
    title = [first.metric, f"first ÷ second (log scale{meaning})"]
    x = alt.X("ratio:Q", title=title, scale=scale, axis=axis)
    y = alt.Y("pair:N", title=None, scale=rows(pairs), axis=alt.Axis(grid=False, labelExpr=_TWO_LINES))
    colour = alt.Color("verdict:N", legend=None, scale=of(list(_VERDICTS), _HUES))
    margin = pl.DataFrame({"low": [1 / (1 + first.margin)], "high": [1 + first.margin]})
    zone = alt.Chart(margin).mark_rect(color=ZONE).encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"))
    one = alt.Chart(pl.DataFrame({"ratio": [1.0]})).mark_rule(color=SOFT, strokeWidth=1).encode(x=x)
    bands = (
        alt.Chart(shown.drop_nulls(["low", "high"]))
        .mark_bar(fillOpacity=0.25, cornerRadius=2)
        .encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"), y=y, color=colour)
    )
    centres = alt.Chart(shown).mark_tick(thickness=2, color=INK, opacity=1, bandSize=_ROW * 0.75).encode(x=x, y=y)
    rounds = (
        alt.Chart(spread(points, "pair", pairs))
        .mark_point(filled=True, size=26, fillOpacity=0.9)
        .encode(x=x, y=by_round(len(pairs)), color=colour)
    )
    layers = alt.layer(alt.layer(zone, one, bands, centres), rounds, height=_ROW * len(pairs) + _AXIS)
    chart: Chart = layers.resolve_scale(y="independent")
    return chart


def _end(value: float | None) -> float | None:
    """An end of an interval that a log axis can show."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _domain(values: Sequence[float], margin: float) -> tuple[float, float]:
    """Ends of the axis: all values, and always 1 with the margin around it."""
    shown = [value for value in values if value > 0]
    least, most = 1 / (1 + 2 * margin) / 1.02, (1 + 2 * margin) * 1.02
    low, high = min([*shown, least]), max([*shown, most])
    room = (high / low) ** 0.03
    return low / room, high * room


def _ticks(low: float, high: float) -> list[float]:
    """Round ratios between ``low`` and ``high``: the finest of some sets that has at most six there."""
    for steps in ((1.05, 1.1, 1.15), (1.1, 1.2, 1.3), (1.25, 1.5), (1.5, 2), (2, 4, 8), (3, 10, 30), (10, 100, 1000)):
        ticks = [1 / step for step in reversed(steps)] + [1.0, *steps]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= 6 and max(high, 1 / low) < steps[-1] * steps[0] ** 1.5:
            return inside
    return [tick for power in range(-9, 10) if low <= (tick := 10.0**power) <= high] or [1.0]
