"""What a run's comparisons say so far: a short table on a terminal, a line a round elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from storlab.analysis.summary import Comparison, Summary
from storlab.grouping import grouped
from storlab.report.formats.drawing import STYLES, foreign
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.tables import heading
from storlab.report.model.view import ordered_comparisons

MOST = 10
"""Lines of the table: more would push what runs now off the screen."""
MOST_NEWS = 6
"""Comparisons named in a line; of more, those with a new verdict come first."""
_WIDEST = 40  # columns for what is measured and where

Key = tuple[object, ...]


def table(summary: Summary, most: int = MOST) -> Group | None:
    """Ratios, with their intervals once there are some, of the first comparisons; ``None`` while there are no ratios.

    What is measured, and where, stands before the first of its comparisons only.
    """
    comparisons = ordered_comparisons(summary)
    if not comparisons:
        return None
    shown = comparisons[: max(most, 1)]
    places = [_shortened(_where(c)) for c in shown]
    columns = [
        [place if place not in places[:at] else "" for at, place in enumerate(places)],
        [f"{words.mark(c)} {c.a} vs {c.b}" for c in shown],
        [_numbers(c) for c in shown],
        [_state(c) for c in shown],
    ]
    widths = [max(map(cell_len, column)) for column in columns]
    lines = []
    for c, *cells in zip(shown, *columns, strict=True):
        style = STYLES[c.verdict] if c.verdict != "undecided" else ""
        line = Text()
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            line += foreign(cell, style if at else "dim") + Text(" " * (width - cell_len(cell) + 2))
        line.rstrip()
        line.no_wrap, line.overflow = True, "ellipsis"
        lines.append(line)
    if len(comparisons) > len(shown):
        lines.append(Text(f"and {len(comparisons) - len(shown)} more", "dim"))
    return Group(*lines)


def tally(summary: Summary) -> str:
    """``3 of 5 decided``; empty where nothing is compared."""
    asked = [c for c in ordered_comparisons(summary) if not c.described]
    decided = sum(c.verdict != "undecided" for c in asked)
    return f"{decided} of {len(asked)} decided" if asked else ""


def _where(c: Comparison) -> str:
    place = heading(c.metric, c.source, c.within)
    return f"{place}, {words.POOLED}" if c.pooled else place


def _shortened(place: str) -> str:
    text = foreign(place)
    text.truncate(_WIDEST, overflow="ellipsis")
    return text.plain


def _numbers(c: Comparison) -> str:
    span = fmt.ratio_interval(c.low, c.high, c.ratio)
    return f"{words.ratio(c)} ({span})" if span else words.ratio(c)


def _state(c: Comparison) -> str:
    """The verdict, or how far it is; nothing where the mark says it all."""
    if c.verdict != "undecided":
        return c.verdict
    return "leaning" if c.undecided is not None and c.undecided.kind == "leaning" else ""


class News:
    """What is new since the last round: verdicts first, then ratios that are shown with other digits."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[str, str]] = {}

    def of(self, summary: Summary) -> str:
        """``rate: mail: ext4 better than btrfs, 2.32× (2.1× to 2.5×); xfs ÷ btrfs 2.57×``; empty without news."""
        verdicts, ratios = [], []
        for c in ordered_comparisons(summary):
            key = (c.factor, c.a, c.b, tuple(c.within.items()), c.pooled, c.source, c.metric)
            now = (c.verdict, words.ratio(c))
            before, self._known[key] = self._known.get(key, ("undecided", "")), now
            if c.verdict != before[0]:
                verdicts.append((c, _verdict(c)))
            elif now != before and c.verdict == "undecided":
                ratios.append((c, f"{c.a} ÷ {c.b} {words.ratio(c)}"))
        return _sentence([*verdicts, *ratios])


def _verdict(c: Comparison) -> str:
    if c.verdict == "undecided":
        return f"{c.a} and {c.b} no longer decided, {_numbers(c)}"
    if c.verdict == "equivalent":
        return f"{c.a} and {c.b} equivalent, {_numbers(c)}"
    return f"{c.a} {c.verdict} than {c.b}, {_numbers(c)}"


def _sentence(news: Sequence[tuple[Comparison, str]]) -> str:
    shown = grouped((_where(c), text) for c, text in news[:MOST_NEWS])
    parts = [f"{place}: {'; '.join(texts)}" for place, texts in shown.items()]
    more = [f"and {len(news) - MOST_NEWS} more"] if len(news) > MOST_NEWS else []
    return " | ".join([*parts, *more])
