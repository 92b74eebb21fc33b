"""What ``storlab-agent locks`` prints: JSON lines, as ``docs/reference/locks-output.md`` describes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from storlab.errors import ParseError
from storlab.probes.lines import Count, Lines

Symbol = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_$]{1,512}\Z")]
LockType = Literal[
    "mutex", "rwsem-read", "rwsem-write", "percpu-rwsem-read", "percpu-rwsem-write", "semaphore",
    "spinlock", "rwlock-read", "rwlock-write", "rt-mutex", "rt-rw-read", "rt-rw-write", "other",
]  # fmt: skip
Waiter = Literal["own", "kernel", "other"]


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """A function that waits for locks of one type; ``None`` if its address is in no function that the kernel shows."""

    function: Symbol | None
    module: Symbol | None
    type: LockType


class Waits(msgspec.Struct, frozen=True, array_like=True):
    """Waits that ended, of one caller and one kind of waiter. ``times``: lower and upper bound in ns, count."""

    caller: Caller
    waiter: Waiter
    count: Count
    slept: Count
    time: Count
    times: tuple[tuple[Count, Count, Count], ...]


class Lost(msgspec.Struct, frozen=True):
    """What is not in the counts; ``missed`` is ``None`` if the kernel doesn't count that."""

    full: Count = 0
    begun: Count = 0
    ends: Count = 0
    locks: Count = 0
    missed: Count | None = 0


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line: from here on everything is counted. ``left_out``: ranges of functions that lock without room."""

    monotonic_ns: Count
    realtime_ns: Count
    left_out: Count = 0


class Counts(msgspec.Struct, frozen=True, tag_field="event", tag="counts"):
    """All that was counted since the start. ``locks``: how many different locks each caller waited for.

    ``waiting``: waits that had not ended.
    """

    final: bool
    monotonic_ns: Count
    realtime_ns: Count
    waits: tuple[Waits, ...]
    locks: tuple[tuple[Caller, Count], ...]
    waiting: Count
    lost: Lost


Line = Started | Counts

LINES: Lines[Line] = Lines(Line, Started, "the lock tracer")


def lost_sentences(lost: Lost) -> tuple[str, ...]:
    said = (
        (lost.full, "{} waits were not counted, because the table of callers was full"),
        (lost.begun, "{} waits were not counted, because too many went on at once"),
        (lost.ends, "{} waits were not counted, because their end was not seen"),
        (lost.missed, "{} times the kernel could not run the lock tracer: as many waits may not be counted"),
        (lost.locks, "{} waits were for locks that the full table had no room for: there are more different locks"),
    )
    unknown = "this kernel does not report how often it could not run the lock tracer"
    return (
        *(sentence.format(number) for number, sentence in said if number),
        *([unknown] if lost.missed is None else []),
    )


class Output(NamedTuple):
    """What one tracer printed: its first line, and its last counts."""

    started: Started
    counts: Counts

    @property
    def duration(self) -> float:
        """In s, until the last counts."""
        return max(self.counts.monotonic_ns - self.started.monotonic_ns, 0) / 1e9

    def warnings(self) -> tuple[str, ...]:
        end = "the lock tracer did not end cleanly: what came after its last count is missing"
        left_out = (
            f"{self.started.left_out} ranges of functions that lock had no room in the tracer: waits in them have "
            "these functions as their callers"
        )
        return (
            *(() if self.counts.final else (end,)),
            *((left_out,) if self.started.left_out else ()),
            *lost_sentences(self.counts.lost),
        )


def read_output(lines: Path | Iterable[bytes], source: str = "") -> Output:
    """The first line and the last counts of one tracer: none, if it was killed before. Raises ``ParseError``."""
    seen = Seen()
    for number, line in LINES.read(lines, source):
        if isinstance(line, Counts) and any(lo >= up or not n for each in line.waits for lo, up, n in each.times):
            raise ParseError("has a bin of times of no width, or of no count", source or str(lines), number)
        seen.add(line)
    assert seen.started is not None  # or there are no lines
    at = seen.started
    return Output(at, seen.counts or Counts(False, at.monotonic_ns, at.realtime_ns, (), (), 0, Lost()))


class Seen:
    """What came so far; ``apart``: waits of a command are counted apart from those of everybody else."""

    def __init__(self, apart: bool = False) -> None:
        self.apart = apart
        self.started: Started | None = None
        self.counts: Counts | None = None

    def add(self, line: Line) -> None:
        if isinstance(line, Started):
            self.started = line
        else:
            self.counts = line

    def output(self) -> Output | None:
        return None if self.started is None or self.counts is None else Output(self.started, self.counts)

    @property
    def elapsed(self) -> float:
        """In s."""
        output = self.output()
        return output.duration if output else 0.0

    def warnings(self) -> tuple[str, ...]:
        output = self.output()
        return output.warnings() if output else ("the lock tracer did not end cleanly: there are no counts",)
