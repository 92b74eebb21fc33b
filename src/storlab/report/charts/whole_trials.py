"""Each round as a point, with the cell's mean or the ratio of two levels; latencies of all operations by percentile,
and by bins, which show whether there are two kinds of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from storlab.analysis.summary import Comparison, Estimate, Verdict
from storlab.measurements import merge_histograms
from storlab.report.charts.theme import (
    COLOURS,
    DASHES,
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
    seconds_axis,
    title_of,
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
