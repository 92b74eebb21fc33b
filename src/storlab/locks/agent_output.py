"""What ``storlab-agent locks`` prints: JSON lines, as ``docs/reference/locks-output.md`` describes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from storlab.errors import ParseError
from storlab.reading import lines_of

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
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

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def lost_sentences(lost: Lost) -> tuple[str, ...]:
    """What is not in the counts, in sentences."""
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
        """What a reader of the counts must know, in sentences."""
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


def decode_lines(chunk: bytes, source: str = "") -> list[Line]:
    """Whole lines. Raises ``ParseError``, which does not know the line."""
    try:
        return _DECODER.decode_lines(chunk)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"has a line that is none of the lock tracer's: {error}", source) from None


def decode_output(lines: Iterable[bytes], source: str = "") -> Output:
    """All lines of one tracer, with their newlines. A last one without, as a killed tracer leaves it, is left out.

    Raises ``ParseError``.
    """
    started: Started | None = None
    counts: Counts | None = None
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            read = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ParseError(f"is no line of the lock tracer: {error}", source, number) from None
        if isinstance(read, Started) == (started is not None):
            raise ParseError("only the first line says when it started, and it must", source, number)
        if isinstance(read, Started):
            started = read
        else:
            _check(read, source, number)
            counts = read
    if started is None:
        raise ParseError("the lock tracer has not started: there is not one whole line", source, 1)
    counts = counts or Counts(False, started.monotonic_ns, started.realtime_ns, (), (), 0, Lost())
    return Output(started, counts)


def _check(counts: Counts, source: str, number: int) -> None:
    for each in counts.waits:
        if any(lower >= upper or not count for lower, upper, count in each.times):
            raise ParseError("has a bin of times of no width, or of no count", source, number)


def read_output(path: Path) -> Output:
    """``decode_output`` of a file. Raises ``ParseError`` where it can't be read, too."""
    try:
        return decode_output(lines_of(path), str(path))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None
