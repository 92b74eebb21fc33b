"""Nodes that wait for each other in a directory which is all that they have in common.

What a node has looked up it may have cached for ever, so no file can be a signal. But mkdir(2) of a name that a node
has never asked for is decided by the server. So who waits makes one name after another, .0, .1, .2; and who has come
makes the first one of them that is not there yet: the next attempt of who waits is EEXIST.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from itertools import count

Steps = Generator[None, None, str | None]
"""A check that several nodes make at once: at each ``yield``, all wait until all have come this far."""

_MOST = 6  # yields of a check
_SHORTEST, _LONGEST = 0.01, 0.1  # s between attempts: well below the second for which FUSE has attributes


class Turns:
    """One node's view: ``me`` is one of ``nodes``, whose first one acts where the others look."""

    def __init__(self, nodes: Sequence[str], me: str) -> None:
        self.me, self.others, self.first = me, [node for node in nodes if node != me], me == nodes[0]
        self._leader = nodes[0]

    def play(self, check: Callable[[bool], Steps]) -> str | None:
        """Make a check in the working directory, which is the same for all. Its remark, or what it raises."""
        steps = check(self.first)
        for number in range(_MOST):
            try:
                next(steps)
            except StopIteration as end:
                remark: str | None = end.value
                return remark
            except BaseException:
                for rest in range(number, _MOST):  # nobody waits for a node that has given up
                    self._arrive(rest)
                raise
            self.meet(number)
        raise AssertionError(f"a check meets more often than {_MOST} times")

    def meet(self, number: int) -> None:
        """Wait until all nodes have come to the meeting of this number."""
        self._arrive(number)
        self._wait(number)

    def part(self) -> bool:
        """The first node waits until all others have nothing left to do here. Whether this is it."""
        if self.first:
            self._wait(_MOST)
        else:
            self._tell(self._leader, _MOST)
        return self.first

    def _arrive(self, number: int) -> None:
        for other in self.others:
            self._tell(other, number)

    def _tell(self, other: str, number: int) -> None:
        name = f"turn-{number}-{self.me}-{other}"
        next(attempt for attempt in count() if _make(f"{name}.{attempt}"))

    def _wait(self, number: int) -> None:
        for other in self.others:
            pause, attempts = _SHORTEST, count()
            while _make(f"turn-{number}-{other}-{self.me}.{next(attempts)}"):
                time.sleep(pause)
                pause = min(pause * 1.3, _LONGEST)


def _make(name: str) -> bool:
    try:
        os.mkdir(name)
    except FileExistsError:
        return False
    return True
