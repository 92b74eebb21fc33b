"""What a user sees while a run goes on: on a terminal it is drawn again and again, elsewhere there are plain lines."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TextIO, cast

from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from storlab.analysis.summary import Comparison, Summary
from storlab.base.text import grouped
from storlab.cli.console import Console
from storlab.cli.output import is_drawable, waiting, warn
from storlab.cli.run_events import (
    CellsRest,
    Left,
    Message,
    Reporter,
    RoundBegins,
    RoundEnds,
    RunBegins,
    RunEvent,
    TrialBegins,
    TrialEnds,
    drawn_elsewhere,
    write_event,
)
from storlab.report.formats.terminal import STYLES, foreign
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.format import duration
from storlab.report.model.questions import ordered_comparisons
from storlab.report.model.tables import heading
from storlab.run.observer import Observer

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


_MARKS = {"done": ("✓", "green"), "failed": ("✗", "bold red"), "unsupported": ("–", "yellow")}
_EACH = 10
_OTHER_LINES = 5  # of the display, and one for what is printed above it


@contextmanager
def observer(quiet: bool) -> Iterator[Observer]:
    """What draws a run of this process, or hands its events to whoever does so elsewhere."""
    if drawn_elsewhere():
        yield Reporter(write_event)
        return
    with drawing(quiet, "looking at this machine") as draw:
        yield Reporter(draw)


@contextmanager
def drawing(quiet: bool, begins: str) -> Iterator[Callable[[RunEvent], None]]:
    """What draws events on standard error, as fits it: results have standard output to themselves.

    ``begins``: what is going on until the run begins.
    """
    if quiet:
        yield _only_messages
    elif is_drawable(sys.stderr):
        console = Console(file=cast(IO[str], _Lasting(sys.stderr)), live=True)
        display = LiveProgress(console, f"{begins[0].upper()}{begins[1:]} …")
        with Live(display, console=console, refresh_per_second=2, transient=True):
            yield display.draw
    else:
        with ExitStack() as looking:
            looking.enter_context(waiting(begins))
            yield PlainProgress(looking.close).draw


class _Lasting(io.TextIOBase):
    """A terminal that may go away, by a closed window or a lost connection: the run goes on to its orderly end."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._terminal.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._terminal.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding


def _only_messages(event: RunEvent) -> None:
    if isinstance(event, Message):
        _line(event.text)
    elif isinstance(event, RunBegins) and event.too_few:
        _line(event.foreseen)


class PlainProgress:
    """A line for each of the first rounds, then for each tenth and each that decides something, and one for whatever
    must be known; no sentence twice.
    """

    def __init__(self, looked: Callable[[], None] = lambda: None) -> None:
        self._looked = looked
        self._news = News()
        self._failures = Failures()
        self._messages: set[str] = set()
        self._rounds = self._decided = ""

    def draw(self, event: RunEvent) -> None:
        match event:
            case RunBegins():
                self._looked()
                _line(f"{event.title}: {', '.join(event.size)}. Run: {event.folder}")
                self._rounds = event.rounds
                for line in filter(None, (event.foreseen, *event.unsupported)):
                    _line(line)
            case CellsRest():
                _line(event.text)
            case TrialEnds():
                if text := self._failures.of(event):
                    _line(text)
            case RoundEnds():
                self._round_ends(event)
            case Message():
                if event.text not in self._messages:
                    self._messages.add(event.text)
                    _line(event.text)

    def _round_ends(self, event: RoundEnds) -> None:
        summary = event.summary
        decided = tally(summary)
        if not event.ends and decided == self._decided and not _is_told(event.round):
            return
        self._decided = decided
        of_points = "" if event.ends else event.reason.rstrip(".")  # a study of sweeps compares nothing
        news = self._news.of(summary) or ("nothing new" if summary.comparisons else of_points)
        standing = "" if event.ends else left_text(event.left)
        parts = (news, decided, standing)
        _line(": ".join(filter(None, (f"round {event.round} of {self._rounds}", " | ".join(filter(None, parts))))))
        if event.ends:
            _line(event.reason)


def _is_told(round_number: int) -> bool:
    """Whether a round has a line though it decides nothing: of a hundred, nobody reads each."""
    return round_number <= _EACH or round_number % _EACH == 0


def _is_round(count: int) -> bool:
    return set(str(count)[1:]) <= {"0"} and str(count)[0] == "1"


class Failures:
    """Trials that were not done, each reason once: what fails in the same way in each round is one piece of news."""

    def __init__(self) -> None:
        self._same: dict[tuple[str, str], list[int]] = {}

    def of(self, ended: TrialEnds) -> str:
        """``trial 4 (fs zfs) failed: reason``; then ``trial 9 (fs zfs) failed, as trial 4``; of many, how many."""
        if ended.status == "done":
            return ""
        trial = f"trial {ended.trial} ({ended.levels}) {ended.status}"
        same = self._same.setdefault((ended.status, ended.reason), [])
        same.append(ended.trial)
        if len(same) <= _EACH:
            return f"{trial}: {ended.reason}" if len(same) == 1 else f"{trial}, as trial {same[0]}"
        return f"{trial}, as {len(same):,} trials since trial {same[0]}" if _is_round(len(same)) else ""


def _line(text: str) -> None:
    with suppress(OSError):  # nobody listens any more, but the run goes on
        warn(text)


class LiveProgress:
    """What runs now, rounds done, time left, and what the comparisons say so far; drawn again by Rich."""

    def __init__(self, console: Console, begins: str) -> None:
        self._console = console
        self._began = time.monotonic()
        self._run: RunBegins | None = None
        self._now = begins
        self._trial_began = time.monotonic()
        self._round = 0
        self._in_round = 0
        self._due = 1
        self._left: Left = None
        self._said = ""
        self._standings: Summary | None = None
        self._failures = Failures()

    def draw(self, event: RunEvent) -> None:
        match event:
            case RunBegins():
                self._run_begins(event)
            case RoundBegins():
                self._due = max(event.due, 1)
            case CellsRest():
                self._console.print(Text(event.text, style="dim"))
            case TrialBegins():
                if event.round != self._round:
                    self._round, self._in_round = event.round, 0
                self._now, self._left, self._trial_began = event.levels, event.left, time.monotonic()
            case TrialEnds():
                self._in_round += 1
                self._now = ""
                if text := self._failures.of(event):
                    mark, style = _MARKS[event.status]
                    self._console.print(Text(f"{mark} {text}", style=style))
            case RoundEnds():
                self._standings, self._left, self._trial_began = event.summary, event.left, time.monotonic()
                least = self._run.least if self._run is not None else 0
                # Before the fewest rounds are done, the bar says all that there is to say.
                self._said = event.reason if event.round >= least else ""
            case Message():
                self._console.print(Text(event.text, style="bold yellow"))

    def _run_begins(self, event: RunBegins) -> None:
        self._run = event
        self._console.print(Text(event.title, style="bold"))
        self._console.print(Text(" · ".join([*event.size, event.folder]), style="dim"))
        if event.foreseen:
            self._console.print(Text(event.foreseen, style="bold yellow" if event.too_few else "dim"))
        for line in event.unsupported:
            self._console.print(Text(f"– {line}", style="yellow"))

    def __rich__(self) -> Group:
        now = time.monotonic()
        if self._run is None:
            return Group(Text(self._now, style="dim"))
        most = self._run.most
        done = max(self._round - 1, 0) + min(self._in_round / self._due, 1.0)
        passed = now - self._trial_began
        left = self._left and (max(self._left[0] - passed, 0.0), max(self._left[1] - passed, 0.0))
        where = f"round {self._round} of {self._run.rounds}" if self._round else "starting"
        facts = (where, f"{duration(int(now - self._began))} so far", left_text(left))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=most, completed=done, width=24), Text(" · ".join(facts)))
        return Group(bar, Text("▸ ", style="cyan") + Text(self._now or "…"), *self._so_far())

    def _so_far(self) -> Iterator[Text | Group]:
        if self._said:
            yield Text(self._said, style="dim")
        if self._standings is None:
            return
        shown = table(self._standings, min(MOST, self._console.height - _OTHER_LINES))
        if shown is not None:
            yield shown


def left_text(left: Left) -> str:
    """``2 min to 4 min left``; as a range, since how many rounds it takes is what the run is to find out."""
    if left is None:
        return "time left not yet known"
    low, high = (duration(_round(seconds)) for seconds in left)
    return f"{low} left" if low == high else f"{low} to {high} left"


def _round(seconds: float) -> float:
    step = 1 if seconds < 20 else 5 if seconds < 120 else 30 if seconds < 3600 else 300
    return round(seconds / step) * step
