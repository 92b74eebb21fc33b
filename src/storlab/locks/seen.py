"""What the agent has told of lock waits so far."""

from __future__ import annotations

from storlab.locks.agent_output import Counts, Line, Output, Started


class Seen:
    """What came so far; ``apart``: waits of a command are counted apart from those of everybody else."""

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.started: Started | None = None
        self.counts: Counts | None = None

    def add(self, line: Line) -> None:
        if isinstance(line, Started):
            self.started = line
        else:
            self.counts = line

    @property
    def elapsed(self) -> float:
        """In s."""
        if self.started is None or self.counts is None:
            return 0.0
        return Output(self.started, self.counts).duration

    def warnings(self) -> tuple[str, ...]:
        """What a reader must know, in sentences."""
        if self.started is None or self.counts is None:
            return ("the lock tracer did not end cleanly: there are no counts",)
        return Output(self.started, self.counts).warnings()
