"""What ``storlab-agent tcp`` prints: JSON lines, as ``docs/reference/tcp-output.md`` describes them. And what tcpdump
does, of the packets that were kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import orjson

from storlab.base.errors import ParseError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.probes.lines import Count, Lines

Narrow = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(max_length=256)]

PACKETS, PRINTED, ABOUT = "packets.pcap", "packets.txt", "packets.json"
"""What tcpdump captured; what it prints of that; and ``t``, when it was started, on the node's monotonic clock, or why
it kept none."""
MOST_TEXT = 16 * 1024**2  # bytes

NARROW = 2**32
"""Counters of the kernel that are this wide begin at 0 again."""


class Numbers(msgspec.Struct, frozen=True, array_like=True):
    """Of one connection: fields of the kernel's ``struct tcp_info``. Times are in us."""

    bytes_sent: Count
    bytes_retrans: Count
    bytes_acked: Count
    bytes_received: Count
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
    busy_time: Count
    rwnd_limited: Count
    sndbuf_limited: Count


class Connection(msgspec.Struct, frozen=True, array_like=True):
    """A connection: ``cookie`` is its alone until the machine boots again; ``state`` is the kernel's number."""

    cookie: Count
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

    interval_ns: Count
    endpoints: tuple[Name, ...]
    disks: tuple[Name, ...]
    counters: tuple[Name, ...]
    events: bool
    monotonic_ns: Count
    realtime_ns: Count
    reason: str | None = None
    distributions: bool = False
    no_distributions: str | None = None


AckHistogram = Literal["sent.bytes", "received.bytes", "sent.gap", "received.gap"]
AckBin = tuple[AckHistogram, Count, Count, Count]
"""Of what, lower and upper bound in bytes or ns, count."""


class Sample(msgspec.Struct, frozen=True, tag_field="event", tag="sample"):
    """All counts at one instant. ``connections``: those that are new, or not as they were in the sample before.

    ``disks``: reads, writes, bytes read, bytes written. ``lost``: connections that closed since the start, and whose
    last counts are not here. ``acks``: pure ACKs since the sample before.
    """

    final: bool
    monotonic_ns: Count
    took_ns: Count
    connections: tuple[Connection, ...]
    gone: tuple[Count, ...]
    counters: tuple[Count | None, ...]
    disks: tuple[tuple[Name, tuple[Count, Count, Count, Count]], ...]
    lost: Count = 0
    acks: tuple[AckBin, ...] = ()


class Closed(msgspec.Struct, frozen=True, tag_field="event", tag="closed"):
    """The last counts of a connection that came to its end; its times and sizes are 0."""

    monotonic_ns: Count
    connection: Connection


Line = Started | Sample | Closed

LINES: Lines[Line] = Lines(Line, Started, "the agent's program")


class Look(NamedTuple):
    """A sample, and what had closed since the one before it: such a connection may stand in the sample as well."""

    sample: Sample
    closed: tuple[Closed, ...]


class Output(NamedTuple):
    """What one agent printed, in its order. What closed after the last sample is left out."""

    started: Started
    looks: tuple[Look, ...]


def read_output(lines: Path | Iterable[bytes], source: str = "") -> Output:
    """All lines of one program. Raises ``ParseError``."""
    started: Started | None = None
    looks: list[Look] = []
    closed: list[Closed] = []
    for number, line in LINES.read(lines, source):
        if isinstance(line, Started):
            started = line
        elif isinstance(line, Closed):
            closed.append(line)
        elif any(lower >= upper or not count for _, lower, upper, count in line.acks):
            raise ParseError("has a bin of ACKs of no width, or of no count", source or str(lines), number)
        else:
            looks.append(Look(line, tuple(closed)))
            closed = []
    assert started is not None  # or there are no lines
    return Output(started, tuple(looks))


def kept_packets(raw: Path, start: float, end: float) -> list[str]:
    """What tcpdump printed of those of the measured phase, a line a packet. ``start``, ``end``: s on its node's
    monotonic clock. Raises ``ParseError`` with why there are none.
    """
    about = _about(raw / ABOUT)
    t = about.get("t")
    if not isinstance(t, float):
        why = about.get("why") or "as far as its card counts, the server sent no data"
        raise ParseError(f"no packets were kept: {why}")
    if not start <= t <= end:
        raise ParseError("no packets were kept: those captured are not of the measured phase")
    try:
        return read_file(raw / PRINTED, MOST_TEXT).decode(errors="replace").splitlines()
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(raw / PRINTED)) from None


def _about(path: Path) -> Mapping[str, object]:
    try:
        found = orjson.loads(read_file(path, RECORD))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
