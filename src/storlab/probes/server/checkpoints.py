"""When checkpoints were, of what a database answers: it counts them, or says how far the last one came.

PostgreSQL counts a checkpoint as it begins, but tells of a forced one only at its end; its control file has the second
at which the last finished one began. InnoDB has no beginning: it writes pages back until its checkpoint can move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

COUNT, BEGAN, NOW, REACHED = "checkpoints", "checkpoint.began", "checkpoint.now", "INNODB_LSN_LAST_CHECKPOINT"
"""Names in answers: how many; when the last finished one began and what the time is, in s since 1970; up to where."""


class Look(Protocol):
    """One answer: seconds on the node's monotonic clock, and its numbers by name."""

    @property
    def t(self) -> float: ...
    @property
    def numbers(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Checkpoint:
    """Between which times it was, as far as answers show; ``end`` is ``None`` where it did not end."""

    begin: float
    end: float | None


def checkpoints(looks: Sequence[Look]) -> list[Checkpoint]:
    """In their order, of all answers, those before and after the measured phase among them."""
    return list(_moves(looks) if any(REACHED in look.numbers for look in looks) else _counted(looks))


def _counted(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    begun: float | None = None  # one that was counted and has not ended
    for before, after in pairwise(looks):
        counted = after.numbers.get(COUNT, 0) > before.numbers.get(COUNT, 0)
        ended = _differs(before, after, BEGAN)
        if counted and begun is not None:
            yield Checkpoint(begun, before.t)
            begun = None
        if ended:
            by_file = after.t - max(0, after.numbers.get(NOW, 0) - after.numbers[BEGAN]) - 1  # it has whole seconds
            earliest = min(before.t, max(by_file, looks[0].t))
            yield Checkpoint(begun if begun is not None else earliest, after.t)
            begun = None
        elif counted:
            begun = before.t
    if begun is not None:
        yield Checkpoint(begun, None)


def _moves(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    """Each time in which it moved at every answer is one."""
    begun: float | None = None
    for before, after in pairwise(looks):
        moved = _differs(before, after, REACHED)
        if moved and begun is None:
            begun = before.t
        if not moved and begun is not None:
            yield Checkpoint(begun, before.t)
            begun = None
    if begun is not None:
        yield Checkpoint(begun, None)


def _differs(before: Look, after: Look, name: str) -> bool:
    return name in before.numbers and name in after.numbers and before.numbers[name] != after.numbers[name]
