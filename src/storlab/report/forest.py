"""Intervals of ratios as a line of text: where they lie, and whether they reach 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from storlab.report.tables import Span

_LEAST = 1.1  # the axis reaches this far at least, or noise would look like a difference


def forest(spans: Sequence[Span | None], width: int, styles: Sequence[str]) -> list[Text]:
    """Each span as ``├──●──┤`` on one log axis, which always holds 1 (``│``); empty for a span that is missing."""
    ends = [math.log(end) for span in spans if span is not None for end in span]
    low = min([*ends, -math.log(_LEAST)])
    high = max([*ends, math.log(_LEAST)])

    def column(ratio: float) -> int:
        return round((math.log(ratio) - low) / (high - low) * (width - 1))

    return [
        _line(None if span is None else tuple(column(end) for end in span), column(1.0), width, style)
        for span, style in zip(spans, styles, strict=True)
    ]


def _line(columns: tuple[int, ...] | None, one: int, width: int, style: str) -> Text:
    signs = [" "] * width
    signs[one] = "│"
    if columns is not None:
        low, value, high = columns
        signs[low : high + 1] = "─" * (high - low + 1)
        signs[low], signs[high] = "├", "┤"
        if low <= one <= high:
            signs[one] = "┼"
        signs[value] = "●"
    line = Text("".join(signs), "dim")
    if columns is not None and style:
        line.stylize(f"not dim {style}", columns[0], columns[2] + 1)
    return line
