"""Groups that wait for a guest. Each is handed out whole, to whichever guest is free next; only a loss splits one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from storlab.suites.model import Attempt, Group


@dataclass
class Queue:
    """What is still to run, in order. A guest that is done early takes what others would have come to later."""

    _waiting: deque[Group]
    _more: Callable[[], Sequence[Group]] | None = None

    @classmethod
    def of(cls, groups: Iterable[Group], more: Callable[[], Sequence[Group]] | None = None) -> Queue:
        return cls(deque(groups), more)

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Group | None:
        if not self._waiting and self._more is not None:
            self._waiting.extend(self._more())
        return self._waiting.popleft() if self._waiting else None

    def drop(self) -> None:
        self._waiting.clear()


def remaining(groups: Iterable[Group], attempts: Iterable[Attempt]) -> list[Group]:
    """The groups with the tests that have no result yet: those of a run that is resumed.

    A test that was skipped because its guest could not be had, or that ended with the run, is not among the attempts.
    """
    done = {attempt.key for attempt in attempts if attempt.role == "test"}
    left = (replace(g, tests=tuple(t for t in g.tests if (g.name, t.path) not in done)) for g in groups)
    return [group for group in left if group.tests]
