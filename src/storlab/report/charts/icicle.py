"""Where the CPUs were: stacks as nested boxes, callers above what they call, as wide as their share of CPU."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from storlab.probes.stacks import Box, Kind
from storlab.report.charts.names import width_of
from storlab.report.charts.theme import INK, PAPER, WIDE, Chart

_ROW, _AXIS = 16, 40  # px a call, and for the axis below
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
    return alt.layer(drawn, names).properties(height=_ROW * deepest + _AXIS)


def _cut(box: Box) -> str:
    """As much of the name as fits; nothing where that would be a letter or two."""
    room = (box.right - box.left) * (WIDE - 20) - 4
    if width_of(box.name, _SIZE) <= room:
        return box.name
    kept = int(room / (width_of(box.name, _SIZE) / max(len(box.name), 1))) - 1
    return f"{box.name[:kept]}…" if kept > 2 else ""
