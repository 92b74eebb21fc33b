"""What ``storlab-agent tcp`` prints: JSON lines, as ``docs/reference/tcp-output.md`` describes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from storlab.errors import ParseError
from storlab.reading import open_file

Wide = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Narrow = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(max_length=256)]

NARROW = 2**32
"""Counters of the kernel that are this wide begin at 0 again."""


class Numbers(msgspec.Struct, frozen=True, array_like=True):
    """Of one connection: fields of the kernel's ``struct tcp_info``. Times are in us."""

    bytes_sent: Wide
    bytes_retrans: Wide
    bytes_acked: Wide
    bytes_received: Wide
    segs_out: Narrow
    segs_in: Narrow
    data_segs_out: Narrow
    data_segs_in: Narrow
    total_retrans: Narrow
    dsack_dups: Narrow
    reord_seen: Narrow
    rcv_ooopack: Narrow
    delivered: Narrow
    rtt: Narrow
    rttvar: Narrow
    min_rtt: Narrow
    cwnd: Narrow
    ssthresh: Narrow
    snd_mss: Narrow
    unacked: Narrow
    receive_queue: Narrow
    send_queue: Narrow
    busy_time: Wide
    rwnd_limited: Wide
    sndbuf_limited: Wide


class Connection(msgspec.Struct, frozen=True, array_like=True):
    """A connection: ``cookie`` is its alone until the machine boots again; ``state`` is the kernel's number."""

    cookie: Wide
    local: Name
    local_port: Port
    remote: Name
    remote_port: Port
    state: Narrow
    congestion: Name
    numbers: Numbers


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line. ``events``: what opens and closes between samples is caught, or else the ``reason`` why not.

    ``distributions``: pure ACKs are counted by bytes and gaps, or else why not.
    """

    interval_ns: Nanoseconds
    endpoints: tuple[Name, ...]
    disks: tuple[Name, ...]
    counters: tuple[Name, ...]
    events: bool
    monotonic_ns: Nanoseconds
    realtime_ns: Nanoseconds
    reason: str | None = None
    distributions: bool = False
    no_distributions: str | None = None


AckHistogram = Literal["sent.bytes", "received.bytes", "sent.gap", "received.gap"]
AckBin = tuple[AckHistogram, Wide, Wide, Wide]
"""Of what, lower and upper bound in bytes or ns, count."""


class Sample(msgspec.Struct, frozen=True, tag_field="event", tag="sample"):
    """All counts at one instant. ``connections``: those that are new, or not as they were in the sample before.

    ``disks``: reads, writes, bytes read, bytes written. ``lost``: connections that closed since the start, and whose
    last counts are not here. ``acks``: pure ACKs since the sample before.
    """

    final: bool
    monotonic_ns: Nanoseconds
    took_ns: Nanoseconds
    connections: tuple[Connection, ...]
    gone: tuple[Wide, ...]
    counters: tuple[Wide | None, ...]
    disks: tuple[tuple[Name, tuple[Wide, Wide, Wide, Wide]], ...]
    lost: Wide = 0
    acks: tuple[AckBin, ...] = ()


class Closed(msgspec.Struct, frozen=True, tag_field="event", tag="closed"):
    """The last counts of a connection that came to its end; its times and sizes are 0."""

    monotonic_ns: Nanoseconds
    connection: Connection


Line = Started | Sample | Closed

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Look(NamedTuple):
    """A sample, and what had closed since the one before it: such a connection may stand in the sample as well."""

    sample: Sample
    closed: tuple[Closed, ...]


class Output(NamedTuple):
    """What one agent printed, in its order. What closed after the last sample is left out."""

    started: Started
    looks: tuple[Look, ...]


def decode(line: bytes | str, source: str = "", number: int | None = None) -> Line:
    """One line. Raises ``ParseError``."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"is no line of the agent's: {error}", source, number) from None


def decode_lines(chunk: bytes, source: str = "") -> list[Line]:
    """Whole lines, faster than one by one. Raises ``ParseError``, which does not know the line."""
    try:
        return _DECODER.decode_lines(chunk)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"has a line that is none of the agent's: {error}", source) from None


def decode_output(lines: Iterable[bytes], source: str = "") -> Output:
    """All lines, with their newlines. A last one without, as a killed agent leaves it, is left out.

    Raises ``ParseError``.
    """
    started: Started | None = None
    looks: list[Look] = []
    closed: list[Closed] = []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        read = decode(line, source, number)
        if isinstance(read, Started) == (started is not None):
            raise ParseError("only the first line says when it started, and it must", source, number)
        if isinstance(read, Started):
            started = read
        elif isinstance(read, Sample):
            if any(lower >= upper or not count for _, lower, upper, count in read.acks):
                raise ParseError("has a bin of ACKs of no width, or of no count", source, number)
            looks.append(Look(read, tuple(closed)))
            closed = []
        else:
            closed.append(read)
    if started is None:
        raise ParseError("there is not one whole line", source, 1)
    return Output(started, tuple(looks))


def read_output(path: Path) -> Output:
    """``decode_output`` of a file. Raises ``ParseError`` where it can't be read, too."""
    try:
        with open_file(path) as file:
            return decode_output(file, str(path))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None
