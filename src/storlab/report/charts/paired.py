"""Ratios of two levels, round by round, with the interval that the verdict rests on and the margin around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import polars as pl

from storlab.analysis.summary import Comparison, Verdict
from storlab.report import format as fmt
from storlab.report.charts.scales import finite
from storlab.report.charts.theme import INK, SOFT, ZONE, Chart, of

_ROW, _AXIS = 52, 64
_VERDICTS: tuple[Verdict, ...] = ("better", "worse", "equivalent", "undecided")
# Better and worse differ in the side of 1 already; the colour only says decided, same, or open.
_HUES = ("#0072b2", "#d55e00", "#009e73", "#57606a")


def ratios(values: pl.DataFrame, comparison: Comparison, a: int, b: int) -> pl.DataFrame:
    """``pair, round, ratio, verdict``: cell ``a`` over cell ``b`` in each round that has both."""
    left = values.filter(pl.col("cell") == a).select("round", "value")
    right = values.filter(pl.col("cell") == b).select("round", other="value")
    pairs = left.join(right, on="round").select("round", ratio=pl.col("value") / pl.col("other"))
    shown = finite(pairs, "ratio").filter(pl.col("ratio") > 0)
    return shown.with_columns(pair=pl.lit(pair_name(comparison)), verdict=pl.lit(comparison.verdict))


def pair_name(comparison: Comparison) -> str:
    """"ext4 vs xfs"."""
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
    reach = _reach([*points["ratio"], *(v for name in ("ratio", "low", "high") for v in shown[name].drop_nulls())])
    reach = max(reach, 1 + 2 * first.margin, 1.1)
    scale = alt.Scale(type="log", domain=[1 / reach, reach], nice=False)
    ticks = _ticks(reach)
    axis = alt.Axis(values=ticks, format="~r", labelExpr="datum.label + '×'", labelOverlap=True)
    meaning = f", {first.better} is better" if first.better in ("higher", "lower") else ""
    title = [first.metric, f"first ÷ second (log scale{meaning})"]
    x = alt.X("ratio:Q", title=title, scale=scale, axis=axis)
    y = alt.Y("pair:N", title=None, scale=alt.Scale(domain=pairs, padding=0.25), axis=alt.Axis(grid=False))
    colour = alt.Color("verdict:N", legend=None, scale=of(list(_VERDICTS), _HUES))
    margin = pl.DataFrame({"low": [1 / (1 + first.margin)], "high": [1 + first.margin]})
    zone = alt.Chart(margin).mark_rect(color=ZONE).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    one = alt.Chart(pl.DataFrame({"ratio": [1.0]})).mark_rule(color=SOFT, strokeWidth=1).encode(x=x)
    bands = (
        alt.Chart(shown.drop_nulls(["low", "high"]))
        .mark_bar(opacity=0.25, cornerRadius=2)
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, color=colour)
    )
    centres = alt.Chart(shown).mark_tick(thickness=2, color=INK, bandSize=_ROW * 0.75).encode(x=x, y=y)
    rounds = (
        alt.Chart(points)
        .mark_point(filled=True, size=26, opacity=0.9)
        .encode(x=x, y=y, yOffset=alt.YOffset("round:O", sort="ascending"), color=colour)
    )
    return alt.layer(zone, one, bands, centres, rounds).properties(height=_ROW * len(pairs) + _AXIS)


def _end(value: float | None) -> float | None:
    """An end of an interval that a log axis can show."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _reach(values: Sequence[float]) -> float:
    """How far the axis goes to both sides of 1, so that the same distance means the same factor."""
    return max((max(value, 1 / value) for value in values if value > 0), default=1.0) * 1.04


def _ticks(reach: float) -> list[float]:
    """Round ratios on both sides of 1, at most seven."""
    for steps in ((1.05, 1.1), (1.1, 1.2, 1.3), (1.25, 1.5), (1.5, 2, 3), (2, 4, 8), (3, 10, 30), (10, 100, 1000)):
        if steps[-1] * 1.3 >= reach:
            break
    above = [step for step in steps if step <= reach]
    return [*(float(fmt.number(1 / step, 3)) for step in reversed(above)), 1.0, *above]
