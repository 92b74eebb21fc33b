"""What ``storlab-agent trace`` prints: JSON lines, as ``docs/reference/trace-output.md`` describes them.

``decode`` reads one line, for those who follow a tracer; ``read_output`` all of what one has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import polars as pl

from storlab.base.errors import ParseError
from storlab.base.reading import open_file
from storlab.blockio.requests import KEYS, WITHOUT_PLACE, joint_alignment, request_frame
from storlab.measurements import REQUEST_COLUMNS

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Units = tuple[Count, Count, Count, Count, Count]

SECTOR = 512  # bytes; the kernel's, whatever the disk's is
Sector = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # of which no offset is too large for a frame

LATENCY_COLUMNS: dict[str, pl.DataType] = {
    "disk": pl.String(),
    "operation": pl.String(),
    "what": pl.String(),  # "service": issue to completion, "queued": the request's creation to issue
    "lower": pl.Float64(),  # s, inclusive
    "upper": pl.Float64(),  # s, exclusive
    "count": pl.Int64(),
}
OTHER_COLUMNS: dict[str, pl.DataType] = {
    "disk": pl.String(),
    "operation": pl.String(),
    "what": pl.String(),  # back_merge front_merge request_merge split requeue error
    "count": pl.Int64(),
}
EVENT_COLUMNS: dict[str, pl.DataType] = {
    "t": pl.Float64(),  # s, on the machine's monotonic clock
    "disk": pl.String(),
    "operation": pl.String(),
    "flags": pl.String(),
    "length": pl.Int64(),  # B
    "offset": pl.Int64(),  # B, on the whole disk
    "alignment": pl.Int64(),  # B, of length and offset; null without data or place
    "pid": pl.Int64(),
    "comm": pl.String(),
}


class Lost(msgspec.Struct, frozen=True):
    """What is not in the counts; ``docs/reference/trace-output.md`` says when that happens."""

    full: Count = 0
    missed: Count | None = 0  # not known
    untimed: Count = 0
    events: Count = 0
    comms: Count = 0


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line: from here on everything is counted."""

    hook: str
    monotonic_ns: Count
    realtime_ns: Count
    disks: tuple[str, ...]
    latency: bool
    reason: str | None = None
    without: tuple[str, ...] = ()


Row = tuple[str, str, str, Count, Count, str | None, Count, Units]
"""Disk, operation, flags, length, alignment of the offset, command, count, units touched."""

LatencyRow = tuple[str, str, Literal["service", "queued"], Count, Count, Count]
"""Disk, operation, which time, lower and upper bound of the bin in ns, count."""


class ByIssuer(NamedTuple):
    """Frames of one kind: of the group that was traced, threads of the kernel, and all others."""

    own: pl.DataFrame
    kernel: pl.DataFrame
    others: pl.DataFrame


def _cells(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return [(*row[:7], *row[7]) for row in rows]


class Counts(msgspec.Struct, frozen=True, tag_field="event", tag="counts"):
    """All that was counted since the start. ``own``, ``kernel``: of these, what the group that was named issued, and
    threads of the kernel; ``own_latency`` and ``kernel_latency`` are of the same.
    """

    final: bool
    monotonic_ns: Count
    realtime_ns: Count
    requests: tuple[Row, ...]
    latency: tuple[LatencyRow, ...]
    others: tuple[tuple[str, str, str, Count], ...]
    lost: Lost
    in_flight: Count = 0
    own: tuple[Row, ...] = ()
    kernel: tuple[Row, ...] = ()
    own_latency: tuple[LatencyRow, ...] = ()
    kernel_latency: tuple[LatencyRow, ...] = ()

    def request_frame(self) -> pl.DataFrame:
        return request_frame(self.request_rows())

    def latency_frame(self) -> pl.DataFrame:
        return _latency_frame(self.latency)

    def frames_by_issuer(self) -> ByIssuer:
        """``REQUEST_COLUMNS``. A request has one issuer, so these add up to all."""
        own, kernel = (request_frame(_cells(rows)) for rows in (self.own, self.kernel))
        numbers = ["count", *(name for name in REQUEST_COLUMNS if name.startswith("units_"))]
        taken = pl.concat([own, kernel]).with_columns(-pl.col(name) for name in numbers)
        rest = pl.concat([self.request_frame(), taken]).group_by(KEYS, maintain_order=True).agg(pl.col(numbers).sum())
        return ByIssuer(own, kernel, rest.select(list(REQUEST_COLUMNS)).filter(pl.col("count") > 0))

    def latency_by_issuer(self) -> ByIssuer:
        """``LATENCY_COLUMNS``, each bin once. A request has one end, so these add up to all."""
        own, kernel = _latency_frame(self.own_latency), _latency_frame(self.kernel_latency)
        taken = pl.concat([own, kernel]).with_columns(-pl.col("count"))
        return ByIssuer(own, kernel, _once(pl.concat([self.latency_frame(), taken])).filter(pl.col("count") > 0))

    def request_rows(self) -> list[tuple[object, ...]]:
        return _cells(self.requests)

    def latency_rows(self) -> list[tuple[object, ...]]:
        return _seconds(self.latency)


Event = tuple[str, str, str, Count, Sector, Count, str, Count]
"""Disk, operation, flags, length (B), sector (of 512 B), process id, command, monotonic ns: one request as issued."""

Line = Started | Counts | Event

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def lost_sentences(lost: Lost) -> tuple[str, ...]:
    said = (
        (lost.full, "{} requests did not fit into the tracer's table: the counts are too low by that number"),
        (lost.missed, "{} times the kernel could not run the tracer: the counts may be too low by as many"),
        (lost.untimed, "{} requests have no latency: too many were in flight at once"),
        (lost.comms, "{} requests were counted without the name of their command: the table of names was full"),
        (lost.events, "{} single events were dropped, because they were not read in time; the counts include them"),
    )
    unknown = "how often the kernel could not run the tracer is not known: at tracepoints it tells that since Linux 6.7"
    return (
        *(sentence.format(number) for number, sentence in said if number),
        *([unknown] if lost.missed is None else []),
    )


def decode(line: bytes | str, source: str = "", number: int | None = None) -> Line:
    """One line. Raises ``ParseError``."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"is no line of the tracer: {error}", source, number) from None


def decode_lines(chunk: bytes, source: str = "") -> list[Line]:
    """Whole lines, faster than one by one. Raises ``ParseError``, which does not know the line."""
    try:
        return _DECODER.decode_lines(chunk)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"has a line that is none of the tracer's: {error}", source) from None


def event_alignment(operation: str, length: int, sector: int) -> int | None:
    """Of a request, in bytes; ``None`` where it has no data, or no place on the disk."""
    return None if operation in WITHOUT_PLACE else joint_alignment(length, sector * SECTOR)


def event_frame(events: Iterable[Event]) -> pl.DataFrame:
    rows = [
        (ns / 1e9, disk, op, flags, length, sector * SECTOR, event_alignment(op, length, sector), pid, comm)
        for disk, op, flags, length, sector, pid, comm, ns in events
    ]
    return pl.DataFrame(rows, schema=EVENT_COLUMNS, orient="row").sort("t", maintain_order=True)


class Output(NamedTuple):
    """What one tracer printed: its first line, and its last counts."""

    started: Started
    counts: Counts

    @property
    def duration(self) -> float:
        """In s, until the last counts."""
        return max(self.counts.monotonic_ns - self.started.monotonic_ns, 0) / 1e9

    def warnings(self) -> tuple[str, ...]:
        end = "the tracer did not end cleanly: what came after its last count is missing"
        return (*(() if self.counts.final else (end,)), *lost_sentences(self.counts.lost))


def decode_output(lines: Iterable[bytes], source: str = "") -> Output:
    """All lines of one tracer, with their newlines. A last one without, as a killed tracer leaves it, is left out.

    Single events are read and not kept: of many traces there are more than can be held at once. Raises ``ParseError``.
    """
    started: Started | None = None
    counts: Counts | None = None
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        read = decode(line, source, number)
        if isinstance(read, Counts):
            counts = read
        elif isinstance(read, Started):
            if started is not None:
                raise ParseError("starts a second time: this is the output of two tracers", source, number)
            started = read
        if started is None:
            raise ParseError("the tracer's first line, which says when it started, is missing", source, number)
    if started is None:
        raise ParseError("the tracer has not started: there is not one whole line", source, 1)
    counts = counts or Counts(False, started.monotonic_ns, started.realtime_ns, (), (), (), Lost())
    return Output(started, counts)


def read_output(path: Path) -> Output:
    """``decode_output`` of a file. Raises ``ParseError`` where it can't be read, too."""
    try:
        with open_file(path) as file:
            return decode_output(file, str(path))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def _seconds(rows: Sequence[LatencyRow]) -> list[tuple[object, ...]]:
    return [(disk, op, what, lo / 1e9, hi / 1e9, count) for disk, op, what, lo, hi, count in rows]


def _latency_frame(rows: Sequence[LatencyRow]) -> pl.DataFrame:
    return _once(pl.DataFrame(_seconds(rows), schema=LATENCY_COLUMNS, orient="row"))


def _once(frame: pl.DataFrame) -> pl.DataFrame:
    keys = [name for name in frame.columns if name != "count"]
    return frame.group_by(keys).agg(pl.col("count").sum()).sort(keys)
