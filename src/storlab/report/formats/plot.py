"""Ratios of a table's rows, drawn within the row: an interval, a point for each round, on one logarithmic axis.

Plain SVG with places in per cent, so that it is as wide as the page lets it be. Colours are the style sheet's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import Markup

from storlab.report.document import Plot, Span, Tone

_TOP, _BOTTOM = 14, 86  # %: between which heights of a row its points lie
_STEPS = ((1.01, 1.02, 1.03), (1.05, 1.1, 1.15, 1.2), (1.25, 1.5, 1.75), (1.5, 2, 3), (2, 5, 10, 20), (10, 100, 1000))
_MOST = 7  # ticks


def domain(spans: list[Span | None], margin: float) -> tuple[float, float]:
    """All that is drawn, and always 1 with the margin around it."""
    values = [v for span in spans if span for v in (span.low, span.value, span.high, *span.points) if v > 0]
    low, high = min([*values, 1 / (1 + 1.5 * margin)]), max([*values, 1 + 1.5 * margin, 1.02])
    room = (high / low) ** 0.03
    return low / room, high * room


def ticks(low: float, high: float) -> list[float]:
    """Round ratios between ``low`` and ``high``: of the finest steps that give few there."""
    for steps in _STEPS:
        inside = [t for t in (*(1 / step for step in reversed(steps)), 1.0, *steps) if low <= t <= high]
        if max(high, 1 / low) <= steps[-1] ** 1.35 and len(inside) <= _MOST:
            return inside
    return [10.0**power for power in range(-9, 10) if low <= 10.0**power <= high]


def row(plot: Plot, number: int, tone: Tone) -> Markup:
    """The picture of one row; what it shows is written beside it."""
    span = plot.spans[number]
    parts = [_zone(plot), f'<line class="one" {_x(plot, 1.0, "x1", "x2")} y1="0" y2="100%"/>']
    parts += [f'<line class="grid" {_x(plot, tick, "x1", "x2")} y1="0" y2="100%"/>' for tick in ticks(*plot.domain)]
    if span is not None:
        parts += _span(plot, span)
    return Markup(f'<svg class="span {tone}" aria-hidden="true">{"".join(parts)}</svg>')


def axis(plot: Plot) -> Markup:
    """The labels above the rows."""
    labels = (
        f'<text {_x(plot, tick, "x")} y="13" text-anchor="{_anchor(plot, tick)}">{f"{tick:.3g}"}×</text>'
        for tick in ticks(*plot.domain)
    )
    return Markup(f'<svg class="span" height="18" aria-hidden="true">{"".join(labels)}</svg>')


def _anchor(plot: Plot, tick: float) -> str:
    """So that no label is cut off at an end of the axis."""
    place = _place(plot, tick)
    return "start" if place < 3 else "end" if place > 97 else "middle"


def _span(plot: Plot, span: Span) -> Iterator[str]:
    low, high = (_place(plot, end) for end in (span.low, span.high))
    if span.sure:
        yield f'<rect class="band" x="{low:.2f}%" width="{max(high - low, 0.3):.2f}%" y="5%" height="90%" rx="2"/>'
    for at, point in enumerate(span.points):
        y = _TOP + (_BOTTOM - _TOP) * (at / (len(span.points) - 1) if len(span.points) > 1 else 0.5)
        far = point in span.far
        what = f"{point:.3g}×{', an outlier' if far else ''}"
        kind = "point far" if far else "point"
        yield f'<circle class="{kind}" {_x(plot, point, "cx")} cy="{y:.0f}%" r="3.2"><title>{what}</title></circle>'
    if span.sure:
        yield f'<line class="value" {_x(plot, span.value, "x1", "x2")} y1="5%" y2="95%"/>'
    else:
        where = _x(plot, span.value, "cx")
        yield f'<circle class="point far" {where} cy="50%" r="5"><title>no interval</title></circle>'


def _zone(plot: Plot) -> str:
    low, high = (_place(plot, end) for end in (1 / (1 + plot.margin), 1 + plot.margin))
    return f'<rect class="zone" x="{low:.2f}%" width="{high - low:.2f}%" y="0" height="100%"/>'


def _place(plot: Plot, ratio: float) -> float:
    low, high = map(math.log, plot.domain)
    at = (math.log(ratio) - low) / (high - low) if ratio > 0 else 0.0
    return 100 * min(max(at, 0.0), 1.0)


def _x(plot: Plot, ratio: float, *names: str) -> str:
    return " ".join(f'{name}="{_place(plot, ratio):.2f}%"' for name in names)
