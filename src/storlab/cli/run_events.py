"""What is shown of a run while it goes on, as events: what draws them is the same wherever the run is.

They are made from what the executor reports, and hold no more than a display needs. Where ``STORLAB_EVENTS`` names an
open descriptor, somebody else draws them: each is a line of JSON there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from storlab.analysis.stopping import Decision
from storlab.analysis.summary import Comparison, Summary
from storlab.base.text import few, grouped, ranges
from storlab.records.run_folder import TrialRecord
from storlab.report.language import methods
from storlab.report.language.format import plural
from storlab.report.language.say import say
from storlab.report.language.words import listed
from storlab.run.observer import Observer
from storlab.run.planning.estimates import foresight_of
from storlab.run.planning.order import PlannedTrial
from storlab.run.planning.plan import Plan
from storlab.study.cells import Cell

DESCRIPTOR = "STORLAB_EVENTS"
_MOST_CELLS = 12  # that a sentence names
_UNBOUNDED = 10_000  # rounds: so many means that something else ends the run

Left = tuple[float, float] | None
"""Seconds that a run still takes, at least and at most; null while that can't be told."""


class _Event(msgspec.Struct, frozen=True, tag_field="event"):
    pass


class RunBegins(_Event, frozen=True, tag="run begins"):
    """``size``: cells, rounds, seed, and trials done before, in words. ``rounds``: ``6 to 15``, and as numbers."""

    title: str
    folder: str
    size: tuple[str, ...]
    rounds: str
    least: int
    most: int
    foreseen: str = ""  # what it can decide; or, if ``too_few``, a warning
    too_few: bool = False
    unsupported: tuple[str, ...] = ()


class RoundBegins(_Event, frozen=True, tag="round begins"):
    """``due``: so many cells are run in it."""

    due: int


class CellsRest(_Event, frozen=True, tag="cells rest"):
    """A sentence."""

    text: str


class TrialBegins(_Event, frozen=True, tag="trial begins"):
    """``levels``: ``fs ext4, load random-write``."""

    round: int
    levels: str
    left: Left


class TrialEnds(_Event, frozen=True, tag="trial ends"):
    """It is recorded."""

    trial: int
    levels: str
    status: Literal["done", "failed", "unsupported"]
    reason: str


class RoundEnds(_Event, frozen=True, tag="round ends"):
    """``comparisons``: as of now. ``ends``: the run, for this reason."""

    round: int
    primary: str
    comparisons: tuple[Comparison, ...]
    ends: bool
    reason: str
    left: Left

    @property
    def summary(self) -> Summary:
        """As far as it is shown of a run that goes on."""
        return Summary("", self.primary, 0.95, self.round, None, comparisons=self.comparisons)


class Message(_Event, frozen=True, tag="message"):
    """A sentence that the user must know."""

    text: str


class RunEnded(_Event, frozen=True, tag="run ended"):
    """How, and what could not be torn down: the report is shown where the records are fetched to."""

    ending: Literal["complete", "failures", "nothing measured", "unreachable", "interrupted"]
    left_behind: tuple[str, ...]


class Question(_Event, frozen=True, tag="question"):
    """To be answered by a line: ``yes``, ``no``, or ``nobody`` if nobody is there to answer."""

    text: str


RunEvent = RunBegins | RoundBegins | CellsRest | TrialBegins | TrialEnds | RoundEnds | Message


class Reporter(Observer):
    """Turns what the executor says into events, for ``draw``."""

    def __init__(self, draw: Callable[[RunEvent], None]) -> None:
        self._draw = draw

    def run_begins(self, plan: Plan, folder: str, done: int) -> None:
        least, most = plan.rounds
        foresight = foresight_of(plan) if plan.assigned is None else None  # its rounds decide together with others'
        warning = methods.too_few(foresight) if foresight is not None else ""
        foreseen = f"Warning: {warning}" if warning else ""
        if foresight is not None and not warning:
            foreseen = f"Verdicts {methods.earliest(foresight)}; expected: {methods.forecast(foresight)}."
        size, unsupported = tuple(_size(plan, done)), tuple(_unsupported(plan))
        title = plan.study.model.title
        self._draw(RunBegins(title, folder, size, _rounds(plan), least, most, foreseen, bool(warning), unsupported))

    def round_begins(self, round_number: int, due: int) -> None:
        self._draw(RoundBegins(due))

    def cells_rest(self, after: int, cells: Sequence[Cell]) -> None:
        self._draw(CellsRest(_resting(after, cells)))

    def trial_begins(self, planned: PlannedTrial, cell: Cell, left: Left) -> None:
        self._draw(TrialBegins(planned.round, levels_text(cell.levels), left))

    def trial_ends(self, record: TrialRecord) -> None:
        self._draw(TrialEnds(record.trial, levels_text(record.levels), record.status, record.reason or ""))

    def round_ends(self, round_number: int, summary: Summary, decision: Decision, left: Left) -> None:
        why = say(decision.why)
        self._draw(RoundEnds(round_number, summary.primary, summary.comparisons, decision.stop, why, left))

    def notify(self, message: str) -> None:
        self._draw(Message(message))


def write_event(event: msgspec.Struct) -> None:
    """To whoever draws elsewhere. That nobody listens any more is no reason to end a run."""
    line = memoryview(msgspec.json.encode(event) + b"\n")
    try:
        while line:
            line = line[os.write(int(os.environ[DESCRIPTOR]), line) :]
    except OSError:
        pass


def drawn_elsewhere() -> bool:
    """Whether this command's events go to another machine, where its result is shown as well."""
    return DESCRIPTOR in os.environ


def levels_text(levels: Mapping[str, object]) -> str:
    """``fs ext4, load random-write``."""
    return ", ".join(f"{factor} {level}" for factor, level in levels.items()) or "the only cell"


def _unsupported(plan: Plan) -> Iterator[str]:
    """``fs zfs: unsupported here: REASON``: a line for each reason."""
    levels = {cell.number: levels_text(cell.levels) for cell in plan.study.cells}
    for reason, cells in grouped(
        ("; ".join(said), levels[number]) for number, said in plan.unsupported.items()
    ).items():
        told = listed(cells) if len(cells) <= _MOST_CELLS else few(cells, _MOST_CELLS)
        yield f"Unsupported here: {told}: {reason}"


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
