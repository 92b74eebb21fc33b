"""What a user sees while a run goes on: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TextIO, cast

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from storlab.analysis.stopping import Continue, Stop
from storlab.analysis.summary import Summary
from storlab.cli.console import Console
from storlab.cli.output import is_drawable, warn
from storlab.cli.standings import MOST, News, table, tally
from storlab.cli.waiting import waiting
from storlab.grouping import few, grouped, ranges
from storlab.records.run_folder import TrialRecord
from storlab.report.model.format import duration, plural
from storlab.report.model.words import listed
from storlab.run.observer import Observer
from storlab.run.planning.foresight import foresight_of
from storlab.run.planning.order import PlannedTrial
from storlab.run.planning.plan import Plan
from storlab.study.cells import Cell

_MARKS = {"done": ("✓", "green"), "failed": ("✗", "bold red"), "unsupported": ("–", "yellow")}
_EACH = 10
_MOST_CELLS = 12  # that a sentence names
_UNBOUNDED = 10_000  # rounds: so many means that something else ends the run
_OTHER_LINES = 5  # of the display, and one for what is printed above it


@contextmanager
def observer(quiet: bool) -> Iterator[Observer]:
    """The observer that fits standard error, where progress goes: results have standard output to themselves."""
    if quiet:
        yield _OnlyMessages()
    elif is_drawable(sys.stderr):
        console = Console(file=cast(IO[str], _Lasting(sys.stderr)), live=True)
        display = LiveProgress(console)
        with Live(display, console=console, refresh_per_second=2, transient=True):
            yield display
    else:
        with ExitStack() as looking:
            looking.enter_context(waiting("looking at this machine"))
            yield PlainProgress(looking.close)


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


class _OnlyMessages(Observer):
    def run_begins(self, plan: Plan, folder: str, done: int) -> None:
        foresight = foresight_of(plan)
        if foresight is not None and foresight.warning() and plan.assigned is None:
            _line(f"Warning: {foresight.warning()}")

    def notify(self, message: str) -> None:
        _line(message)


class PlainProgress(Observer):
    """A line for each of the first rounds, then for each tenth and each that decides something, and one for whatever
    must be known; no sentence twice.
    """

    def __init__(self, looked: Callable[[], None] = lambda: None) -> None:
        self._looked = looked
        self._news = News()
        self._failures = Failures()
        self._messages: set[str] = set()
        self._rounds = self._decided = ""

    def run_begins(self, plan: Plan, folder: str, done: int) -> None:
        self._looked()
        _line(f"{plan.study.model.title}: {', '.join(_size(plan, done))}. Run: {folder}")
        self._rounds = _rounds(plan)
        for line, _ in _foreseen(plan):
            _line(line)
        for line in _unsupported(plan):
            _line(line)

    def cells_rest(self, after: int, cells: Sequence[Cell]) -> None:
        _line(_resting(after, cells))

    def trial_ends(self, record: TrialRecord) -> None:
        if text := self._failures.of(record):
            _line(text)

    def round_ends(
        self, round_number: int, summary: Summary, decision: Stop | Continue, left: tuple[float, float] | None
    ) -> None:
        ends = isinstance(decision, Stop)
        decided = tally(summary)
        if not ends and decided == self._decided and not _is_told(round_number):
            return
        self._decided = decided
        of_points = "" if ends else decision.reason.rstrip(".")  # a study of sweeps compares nothing
        news = self._news.of(summary) or ("nothing new" if summary.comparisons else of_points)
        standing = "" if ends else left_text(left)
        parts = (news, decided, standing)
        _line(f"round {round_number} of {self._rounds}: {' | '.join(filter(None, parts))}")
        if ends:
            _line(decision.reason)

    def notify(self, message: str) -> None:
        if message not in self._messages:
            self._messages.add(message)
            _line(message)


def _is_told(round_number: int) -> bool:
    """Whether a round has a line though it decides nothing: of a hundred, nobody reads each."""
    return round_number <= _EACH or round_number % _EACH == 0


def _is_round(count: int) -> bool:
    """10, 100, 1000, and so on."""
    return set(str(count)[1:]) <= {"0"} and str(count)[0] == "1"


class Failures:
    """Trials that were not done, each reason once: what fails in the same way in each round is one piece of news."""

    def __init__(self) -> None:
        self._same: dict[tuple[str, str], list[int]] = {}

    def of(self, record: TrialRecord) -> str:
        """``trial 4 (fs zfs) failed: reason``; then ``trial 9 (fs zfs) failed, as trial 4``; of many, how many."""
        if record.status == "done":
            return ""
        trial = f"trial {record.trial} ({levels_text(record.levels)}) {record.status}"
        same = self._same.setdefault((record.status, record.reason or ""), [])
        same.append(record.trial)
        if len(same) <= _EACH:
            return f"{trial}: {record.reason}" if len(same) == 1 else f"{trial}, as trial {same[0]}"
        return f"{trial}, as {len(same):,} trials since trial {same[0]}" if _is_round(len(same)) else ""


def _unsupported(plan: Plan) -> Iterator[str]:
    """``fs zfs: unsupported here: REASON``: a line for each reason."""
    levels = {cell.number: levels_text(cell.levels) for cell in plan.study.cells}
    for reason, cells in grouped(
        ("; ".join(said), levels[number]) for number, said in plan.unsupported.items()
    ).items():
        told = listed(cells) if len(cells) <= _MOST_CELLS else few(cells, _MOST_CELLS)
        yield f"Unsupported here: {told}: {reason}"


def _foreseen(plan: Plan) -> Iterator[tuple[str, str]]:
    """What it can decide in its rounds, or why that is too little; with the line's style."""
    if plan.assigned is not None:  # together with others' rounds
        return
    foresight = foresight_of(plan)
    if foresight is not None and foresight.warning():
        yield f"Warning: {foresight.warning()}", "bold yellow"
    elif foresight is not None:
        yield f"Verdicts {foresight.earliest()}; expected: {foresight.expected()}.", "dim"


def _line(text: str) -> None:
    with suppress(OSError):  # nobody listens any more, but the run goes on
        warn(text)


def _resting(after: int, cells: Sequence[Cell]) -> str:
    """``From round 9 on, 2 cells rest, which no open comparison needs: fs ext4; fs xfs``."""
    many, verb = plural(len(cells), "cell"), "rests" if len(cells) == 1 else "rest"
    names = "; ".join(levels_text(cell.levels) for cell in cells[:_MOST_CELLS])
    names += f"; … {levels_text(cells[-1].levels)}" if len(cells) > _MOST_CELLS else ""
    return f"From round {after + 1} on, {many} {verb}, which no open comparison needs: {names}"


def _size(plan: Plan, done: int) -> list[str]:
    """``6 cells``, ``5 to 8 rounds``, ``seed 7``, and what an earlier part of the run has done."""
    rounds = f"{_rounds(plan)} {'round' if plan.rounds[1] == 1 else 'rounds'}"
    if plan.assigned is not None:
        rounds = f"rounds {ranges(range(plan.assigned[0], plan.assigned[1] + 1))} of a run"
    before = [f"{plural(done, 'trial')} done before"] if done else []
    return [plural(len(plan.supported), "cell"), rounds, f"seed {plan.seed}", *before]


def _rounds(plan: Plan) -> str:
    """``6``, or ``6 to 15``."""
    least, most = plan.rounds
    if most >= _UNBOUNDED:
        return f"at least {least}"
    return str(most) if least == most else f"{least} to {most}"


class LiveProgress(Observer):
    """What runs now, rounds done, time left, and what the comparisons say so far; drawn again by Rich."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._plan: Plan | None = None
        self._now = "Looking at this machine …"
        self._trial_began = time.monotonic()
        self._round = 0
        self._in_round = 0
        self._due = 1
        self._left: tuple[float, float] | None = None
        self._said = ""
        self._standings: Summary | None = None
        self._failures = Failures()

    def run_begins(self, plan: Plan, folder: str, done: int) -> None:
        self._plan = plan
        self._console.print(Text(plan.study.model.title, style="bold"))
        self._console.print(Text(" · ".join([*_size(plan, done), folder]), style="dim"))
        for line, style in _foreseen(plan):
            self._console.print(Text(line, style=style))
        for line in _unsupported(plan):
            self._console.print(Text(f"– {line}", style="yellow"))

    def round_begins(self, round_number: int, due: int) -> None:
        self._due = max(due, 1)

    def cells_rest(self, after: int, cells: Sequence[Cell]) -> None:
        self._console.print(Text(_resting(after, cells), style="dim"))

    def trial_begins(self, planned: PlannedTrial, cell: Cell, left: tuple[float, float] | None) -> None:
        if planned.round != self._round:
            self._round, self._in_round = planned.round, 0
        self._now, self._left, self._trial_began = levels_text(cell.levels), left, time.monotonic()

    def trial_ends(self, record: TrialRecord) -> None:
        self._in_round += 1
        self._now = ""
        if text := self._failures.of(record):
            mark, style = _MARKS[record.status]
            self._console.print(Text(f"{mark} {text}", style=style))

    def round_ends(
        self, round_number: int, summary: Summary, decision: Stop | Continue, left: tuple[float, float] | None
    ) -> None:
        self._standings, self._left, self._trial_began = summary, left, time.monotonic()
        least = self._plan.rounds[0] if self._plan is not None else 0
        # Before the fewest rounds are done, the bar says all that there is to say.
        self._said = decision.reason if round_number >= least else ""

    def notify(self, message: str) -> None:
        self._console.print(Text(message, style="bold yellow"))

    def __rich__(self) -> Group:
        now = time.monotonic()
        if self._plan is None:
            return Group(Text(self._now, style="dim"))
        most = self._plan.rounds[1]
        done = max(self._round - 1, 0) + min(self._in_round / self._due, 1.0)
        passed = now - self._trial_began
        left = self._left and (max(self._left[0] - passed, 0.0), max(self._left[1] - passed, 0.0))
        where = f"round {self._round} of {_rounds(self._plan)}" if self._round else "starting"
        facts = (where, f"{duration(int(now - self._began))} so far", left_text(left))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=most, completed=done, width=24), Text(" · ".join(facts)))
        return Group(bar, Text("▸ ", style="cyan") + Text(self._now or "…"), *self._so_far())

    def _so_far(self) -> Iterator[Text | Group]:
        """Ratios, as many as the terminal has room for beside what was printed and what runs."""
        if self._said:
            yield Text(self._said, style="dim")
        if self._standings is None:
            return
        shown = table(self._standings, min(MOST, self._console.height - _OTHER_LINES))
        if shown is not None:
            yield shown


def levels_text(levels: object) -> str:
    """``fs ext4, load random-write``."""
    assert hasattr(levels, "items")
    return ", ".join(f"{factor} {level}" for factor, level in levels.items()) or "the only cell"


def left_text(left: tuple[float, float] | None) -> str:
    """``2 min to 4 min left``; as a range, since how many rounds it takes is what the run is to find out."""
    if left is None:
        return "time left not yet known"
    low, high = (duration(_round(seconds)) for seconds in left)
    return f"{low} left" if low == high else f"{low} to {high} left"


def _round(seconds: float) -> float:
    """To a precision that such an estimate has."""
    step = 1 if seconds < 20 else 5 if seconds < 120 else 30 if seconds < 3600 else 300
    return round(seconds / step) * step
