"""Shares as areas: which sizes the block requests of set-ups have, and where CPUs were.

Sizes: a row a set-up, a column a power of two, in each square the share of requests in per cent. Orange is below the
unit, blue is not; squares are darker the more there is, in steps of a factor of ten, so that one request in ten
thousand is seen as well as half of them. The numbers in the squares say the same, for those who see no such colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from storlab.analysis.summary import SizeShare
from storlab.probes.stacks import Box, Kind
from storlab.report.charts.theme import (
    ABOVE,
    BELOW,
    COLOURS,
    INK,
    PAPER,
    PLAIN,
    SOFT,
    WIDE,
    ZONE,
    Chart,
    of,
    title_of,
    width_of,
)
from storlab.report.language import format as fmt

SIZES = tuple(1 << power for power in range(9, 21))
"""B: the columns; the last one is for everything from there on."""

_STEPS = (0.0001, 0.001, 0.01, 0.1)
"""Shares at which a darker step begins."""

_ROW, _AXES, _BARS = 22, 54, 200  # px
_TEXT = 215  # px, beside the longest names of set-ups; what is longer ends in "…", and stands in the chart's words
_SHADES = [f"{side}-{step}" for side in ("below", "above") for step in range(len(_STEPS) + 1)]


def sizes_chart(
    shares: Mapping[str, Sequence[SizeShare]], levels: Sequence[str], unit: int, what: str, absent: Mapping[str, str]
) -> Chart:
    """``shares``: level → its classes. Of ``levels``, those that have none are ``absent``: level → why."""
    squares = _squares(shares, unit)
    empty = pl.DataFrame(
        [(level, label(size)) for level in levels for size in SIZES if level in shares],
        schema={"level": pl.String, "size": pl.String},
        orient="row",
    )
    columns = [label(size) for size in SIZES]
    axis = alt.Axis(labelAngle=0, labelOverlap=False, labelFontSize=10, domain=False, ticks=False, labelPadding=4)
    x_scale = alt.Scale(domain=columns, paddingInner=0.08, paddingOuter=0.04)
    x = alt.X("size:N", title=f"{what} (KiB), % of requests", scale=x_scale, axis=axis)
    y_scale = alt.Scale(domain=list(levels), paddingInner=0.12, paddingOuter=0.06)
    y = alt.Y("level:N", title=None, scale=y_scale, axis=alt.Axis(grid=False, labelLimit=120))
    shade = alt.Color("shade:N", legend=None, scale=alt.Scale(domain=_SHADES, range=[*BELOW, *ABOVE]))
    ink = alt.Color("ink:N", legend=None, scale=alt.Scale(domain=["dark", "light"], range=[INK, PAPER]))
    ground = alt.Chart(empty).mark_rect(color=ZONE, cornerRadius=2).encode(x=x, y=y)
    filled = alt.Chart(squares).mark_rect(cornerRadius=2).encode(x=x, y=y, color=shade)
    numbers = alt.Chart(squares).mark_text(fontSize=10).encode(x=x, y=y, text=alt.Text("text:N"), color=ink)
    edge = pl.DataFrame({"size": [label(unit)]})
    begin = alt.X("size:N", scale=x_scale, bandPosition=0)
    rule = alt.Chart(edge).mark_rule(color=INK, strokeWidth=1.5, xOffset=-1).encode(x=begin)
    missing = _absent(shares, levels, absent, y)
    layers = alt.layer(ground, filled, numbers, rule, *missing).resolve_scale(color="independent")
    chart: Chart = layers.properties(height=_ROW * len(levels) + _AXES)
    return chart


def bars_chart(shares: Mapping[str, Sequence[SizeShare]], factor: str, what: str) -> Chart:
    """The same as bars, those of all set-ups side by side at each size, on one scale."""
    summed: dict[tuple[str, str], float] = {}
    for level, classes in shares.items():
        for each in classes:
            key = level, label(min(each.size, SIZES[-1]))
            summed[key] = summed.get(key, 0.0) + 100 * each.requests.mean
    rows = pl.DataFrame(
        [(*key, share) for key, share in summed.items()],
        schema={"level": pl.String, "size": pl.String, "share": pl.Float64},
        orient="row",
    )
    axis = alt.Axis(labelAngle=0, labelOverlap=False, labelFontSize=10, grid=False)
    x = alt.X("size:N", title=f"{what} (KiB)", scale=alt.Scale(domain=[label(size) for size in SIZES]), axis=axis)
    y = alt.Y("share:Q", title="% of requests", scale=alt.Scale(zero=True), axis=PLAIN)
    legend = alt.Legend(title=title_of(factor), values=[*shares], symbolType="square")
    colour = alt.Color("level:N", scale=of([*shares], COLOURS), legend=legend)
    offset = alt.XOffset("level:N", sort=[*shares])
    chart: Chart = alt.Chart(rows, height=_BARS).mark_bar().encode(x=x, xOffset=offset, y=y, color=colour)
    return chart


def _squares(shares: Mapping[str, Sequence[SizeShare]], unit: int) -> pl.DataFrame:
    rows = []
    for level, classes in shares.items():
        for each in classes:
            share = each.requests.mean
            if share > 0:
                step = sum(share >= start for start in _STEPS)
                side = "below" if each.size < unit else "above"
                ink = "light" if step >= len(_STEPS) - 1 else "dark"
                rows.append((level, label(min(each.size, SIZES[-1])), f"{side}-{step}", _number(share), ink))
    names = ("level", "size", "shade", "text", "ink")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _absent(
    shares: Mapping[str, Sequence[SizeShare]], levels: Sequence[str], absent: Mapping[str, str], y: alt.Y
) -> list[alt.Chart]:
    missing = [level for level in levels if level not in shares]
    if not missing:
        return []
    frame = pl.DataFrame({"level": missing, "text": [absent.get(level, "not measured") for level in missing]})
    text = alt.Chart(frame).mark_text(align="left", color=SOFT, fontSize=10, dx=4, limit=_TEXT)
    return [text.encode(x=alt.value(0), y=y, text=alt.Text("text:N"))]


def label(size: int) -> str:
    """ "16", in KiB; the last class is "≥1M"."""
    return "≥1M" if size == SIZES[-1] else f"{size / 1024:.3g}".removeprefix("0")


def _number(share: float) -> str:
    """In as few signs as fit a square: "38", "4.2", ".03", "<"."""
    if share < 0.00005:
        return "<"
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00095 else 2
    text = fmt.number(share * 100, digits)
    return ">99" if text == "100" and share < 1 else text.removeprefix("0")


# Where the CPUs were: stacks as nested boxes, callers above what they call, as wide as their share of CPU.

_ICICLE_ROW, _AXIS = 16, 40  # px a call, and for the axis below
_SIZE = 10  # px of letters
_KINDS: dict[Kind, str] = {"command": "#d8dee4", "kernel": "#f8bb7a", "user": "#a9cfea", "idle": "#eaeef2"}
_TITLES: dict[Kind, str] = {"command": "command", "kernel": "in the kernel", "user": "in programs", "idle": "idle"}


def icicle_chart(boxes: Sequence[Box]) -> Chart:
    """All of them, with as much of each name as its box has room for."""
    rows = [
        (each.left, each.right, each.depth, each.depth + 1, _TITLES[each.kind], _cut(each), each.depth + 0.5)
        for each in boxes
    ]
    columns = ["left", "right", "top", "bottom", "kind", "name", "middle"]
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    deepest = max((each.depth for each in boxes), default=0) + 1
    share = alt.Axis(format=".0%", grid=False)
    across = alt.X("left:Q", title="share of CPU", scale=alt.Scale(domain=[0, 1], nice=False), axis=share)
    down = alt.Y("top:Q", title=None, axis=None, scale=alt.Scale(domain=[0, deepest], reverse=True, nice=False))
    kinds = [_TITLES[kind] for kind in _KINDS]
    colour = alt.Scale(domain=kinds, range=list(_KINDS.values()))
    legend = alt.Legend(title=None, symbolType="square", symbolStrokeWidth=0)
    base = alt.Chart(frame)
    drawn = base.mark_rect(stroke=PAPER, strokeWidth=0.5).encode(
        x=across, x2="right:Q", y=down, y2="bottom:Q", color=alt.Color("kind:N", scale=colour, legend=legend)
    )
    names = base.mark_text(align="left", baseline="middle", dx=2, fontSize=_SIZE, color=INK).encode(
        x=across, y=alt.Y("middle:Q"), text="name:N"
    )
    return alt.layer(drawn, names).properties(height=_ICICLE_ROW * deepest + _AXIS)


def _cut(box: Box) -> str:
    """As much of the name as fits; nothing where that would be a letter or two."""
    room = (box.right - box.left) * (WIDE - 20) - 4
    if width_of(box.name, _SIZE) <= room:
        return box.name
    kept = int(room / (width_of(box.name, _SIZE) / max(len(box.name), 1))) - 1
    return f"{box.name[:kept]}…" if kept > 2 else ""
