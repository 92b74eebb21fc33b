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
"""Names in answers: how many; in which second since 1970 the last finished one began; ms since then; up to where."""
_ONE = 2.0  # s: InnoDB moves its checkpoint once a second for as long as it writes pages back


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
            since = after.numbers.get(NOW, 0) / 1000 - after.numbers[BEGAN]
            earliest = max(min(before.t, after.t - since), looks[0].t)
            yield Checkpoint(begun if begun is not None else earliest, after.t)
            begun = None
        elif counted:
            begun = before.t
    if begun is not None:
        yield Checkpoint(begun, None)


def _moves(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    """Each time in which it moved again and again is one."""
    begun = moved = 0.0
    running = False
    for before, after in pairwise(looks):
        if running and before.t - moved > _ONE:
            yield Checkpoint(begun, moved)
            running = False
        if _differs(before, after, REACHED):
            begun, running, moved = (begun if running else before.t), True, after.t
    if running:
        yield Checkpoint(begun, moved if looks[-1].t - moved > _ONE else None)


def _differs(before: Look, after: Look, name: str) -> bool:
    return name in before.numbers and name in after.numbers and before.numbers[name] != after.numbers[name]
