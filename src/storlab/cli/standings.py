"""What a run's comparisons say so far: a short table after each round, or a line where a verdict is new."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from storlab.analysis.summary import Comparison, Summary
from storlab.report.formats.terminal import STYLES, foreign
from storlab.report.model import format as fmt
from storlab.report.model import words
from storlab.report.model.tables import heading
from storlab.report.model.view import ordered_comparisons

MOST = 10
"""Lines of the table: more would push what runs now off the screen."""

Key = tuple[object, ...]


def table(summary: Summary) -> Group | None:
    """Ratios with their intervals, and verdicts, of the first comparisons; ``None`` while there are no ratios."""
    comparisons = ordered_comparisons(summary)
    if not comparisons:
        return None
    shown = comparisons[:MOST]
    columns = [
        [f"{words.MARKS[c.verdict]} {c.a} vs {c.b}" for c in shown],
        [f"{words.ratio(c)} ({fmt.ratio_interval(c.low, c.high, c.ratio) or 'no interval yet'})" for c in shown],
        [_state(c) for c in shown],
    ]
    widths = [max(map(cell_len, column)) for column in columns]
    lines = []
    for c, *cells in zip(shown, *columns, strict=True):
        style = STYLES[c.verdict] if c.verdict != "undecided" else "dim"
        line = Text()
        for cell, width in zip(cells, widths, strict=True):
            line += foreign(cell, style) + Text(" " * (width - cell_len(cell) + 2))
        line += foreign(_where(c), "dim")
        line.no_wrap, line.overflow = True, "ellipsis"  # what is measured and where comes last: it may be cut
        lines.append(line)
    if len(comparisons) > MOST:
        lines.append(Text(f"and {len(comparisons) - MOST} more", "dim"))
    return Group(*lines)


def _where(c: Comparison) -> str:
    place = heading(c.metric, c.source, c.within)
    return f"{place}, {words.POOLED}" if c.pooled else place


def _state(c: Comparison) -> str:
    """The verdict, or that there is none yet."""
    if c.verdict != "undecided":
        return c.verdict
    if c.undecided is not None and c.undecided.kind == "leaning":
        return "undecided, leaning"
    return "undecided"


class News:
    """Which verdicts are new since the last round."""

    def __init__(self) -> None:
        self._known: dict[Key, str] = {}

    def of(self, summary: Summary) -> Iterator[str]:
        """A line for each verdict that is new, and for each that was given and is not any more."""
        for c in ordered_comparisons(summary):
            key = (c.factor, c.a, c.b, tuple(c.within.items()), c.pooled, c.source, c.metric)
            before, self._known[key] = self._known.get(key, "undecided"), c.verdict
            if c.verdict != before:
                again = "no longer decided: " if c.verdict == "undecided" else ""
                yield f"{_where(c)}: {again}{words.sentence(c)}"
