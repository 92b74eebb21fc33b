"""Which round each trial of an import is of: of its own cell, or of all cells where these took turns.

That they did is their user's word. It is held against what the files say themselves: against their times, and against
their own numbers of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from storlab.errors import UserError
from storlab.importing.imported import Order
from storlab.importing.importer import Part

INSTEAD = "Without --interleaved they are described, and not judged"

_ROUNDED = timedelta(milliseconds=10)
_WHOLE = timedelta(seconds=1)


@dataclass(frozen=True)
class Measured:
    """One trial, with its file and its levels as messages name them."""

    where: str
    levels: str
    cell: int
    part: Part


@dataclass(frozen=True)
class Turns:
    """Of each trial its round and its place in the order of measurement, both from 1."""

    rounds: tuple[int, ...]
    turns: tuple[int, ...]
    order: Order


def rounds_of_cell(parts: Sequence[Part]) -> list[int]:
    """The rounds of the parts of one cell: as they say, else in the order of their times, else in theirs."""
    times = [part.started for part in parts if part.started is not None]
    if len(times) == len(parts) and all(part.round is None for part in parts):
        order = sorted(range(len(parts)), key=times.__getitem__)
        return [order.index(at) + 1 for at in range(len(parts))]
    rounds: list[int] = []
    for part in parts:
        rounds.append(max(rounds, default=0) + 1 if part.round is None else part.round)
    return rounds


def rounds_in_turns(trials: Sequence[Measured]) -> Turns:
    """The rounds of ``trials``, as given, whose cells took turns: in each round every cell has one trial.

    The last round may lack some. Raises ``UserError`` where files contradict that.
    """
    cells = list(dict.fromkeys(trial.cell for trial in trials))
    _require_repeats(trials, len(cells))
    times = [trial.part.started for trial in trials if trial.part.started is not None]
    order: Order = "times" if len(times) == len(trials) else "given"
    measured = sorted(range(len(trials)), key=times.__getitem__) if order == "times" else list(range(len(trials)))
    ordered = [trials[at] for at in measured]
    _require_times(ordered)
    _require_turns(ordered, len(cells), order)
    _require_numbers(ordered, len(cells))
    turns = {at: turn for turn, at in enumerate(measured, start=1)}
    return Turns(
        tuple((turns[at] - 1) // len(cells) + 1 for at in range(len(trials))),
        tuple(turns[at] for at in range(len(trials))),
        order,
    )


def _require_repeats(trials: Sequence[Measured], cells: int) -> None:
    if cells == 1:
        raise UserError(
            f"--interleaved: there is one set-up only ({trials[0].levels}), which can't take turns: tell set-ups apart "
            "by --factor or --label"
        )
    if len(trials) == cells:
        raise UserError(
            f"--interleaved: each of the {cells} set-ups has one trial only, {trials[0].levels} that of "
            f"{trials[0].where}: say by --factor or --label which files are of the same set-up"
        )


def _require_times(ordered: Sequence[Measured]) -> None:
    """Where files name their times: in that order, and none at the same time as another."""
    timed = [(trial, trial.part.started) for trial in ordered if trial.part.started is not None]
    for (one, began), (other, later) in pairwise(timed):
        if later < began:
            raise UserError(
                f"--interleaved: {other.where} is given after {one.where} and was measured before it "
                f"({_clock(later)}; {_clock(began)}). Not all files name their times: give them in the order in which "
                "they were measured"
            )
        if _is_within(later, one.part):
            raise UserError(
                f"--interleaved: {other.where} began at {_clock(later)}, before {one.where} had ended, which began at "
                f"{_clock(began)} and took {one.part.lasted:.1f} s: they ran at once and took no turns. {INSTEAD}"
            )


def at_once(trials: Sequence[Measured]) -> tuple[Measured, Measured] | None:
    """Two trials of one cell of which the second began before the first had ended, as far as files name their times."""
    last: dict[int, Measured] = {}
    timed = [(trial.part.started, at) for at, trial in enumerate(trials) if trial.part.started is not None]
    for began, at in sorted(timed):
        trial = trials[at]
        before = last.get(trial.cell)
        if before is not None and _is_within(began, before.part):
            return before, trial
        last[trial.cell] = trial
    return None


def _is_within(time: datetime, part: Part) -> bool:
    if part.started is None:
        return False
    end = part.started + timedelta(seconds=part.lasted or 0.0)
    return time < end - (_ROUNDED if end.microsecond else _WHOLE)  # some files name times to the second only


def _require_turns(ordered: Sequence[Measured], cells: int, order: Order) -> None:
    by = "by the times in the files" if order == "times" else "in the order given"
    levels = {trial.cell: trial.levels for trial in ordered}
    for begin in range(0, len(ordered), cells):
        seen: dict[int, Measured] = {}
        for trial in ordered[begin : begin + cells]:
            if trial.cell in seen:
                missing = next(words for cell, words in levels.items() if cell not in seen)
                raise UserError(
                    f"--interleaved: {by}, {trial.levels} comes again ({trial.where}, after {seen[trial.cell].where}) "
                    f"before {missing} had its turn: these took no turns, or a trial is missing. {INSTEAD}"
                )
            seen[trial.cell] = trial


def _require_numbers(ordered: Sequence[Measured], cells: int) -> None:
    """Where files number their rounds: these are the turns."""
    turn_of: dict[int, int] = {}
    number_of: dict[int, int] = {}
    for at, trial in enumerate(ordered):
        turn, number = at // cells + 1, trial.part.round
        if number is None:
            continue
        if turn_of.setdefault(number, turn) != turn or number_of.setdefault(turn, number) != number:
            raise UserError(
                f"--interleaved: {trial.where} ({trial.levels}) is of round {number} by its own number, and of another "
                f"than the rest of that round by the order in which trials took turns. {INSTEAD}"
            )


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"
