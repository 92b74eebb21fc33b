"""What connections did, added up: differences of the kernel's counters, never estimates. Within a window of time, or
since the start in lines that are followed as they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

import msgspec

from storlab.probes.tcp.output import (
    NARROW,
    AckHistogram,
    Closed,
    Connection,
    Line,
    Look,
    Numbers,
    Output,
    Sample,
    Started,
)

NOTHING = Numbers(*[0] * 25)
_OPEN = frozenset({1})  # TCP_ESTABLISHED
_MICROSECOND = 1e-6

Acks = Counter[tuple[AckHistogram, int, int]]
"""Pure ACKs by what was measured of them and a bin's lower and upper bound, in bytes or ns."""


@dataclass
class Totals:
    """Of all connections together. Bytes are without headers; times in s.

    ``segments_*``: with data; ``acks_*``: without. ``*_in_mss``: bytes, divided by the connection's largest segment.
    """

    connections: int = 0
    opened: int = 0
    closed: int = 0
    bytes_sent: int = 0
    bytes_retransmitted: int = 0
    bytes_received: int = 0
    sent_in_mss: float = 0.0
    received_in_mss: float = 0.0
    segments_sent: int = 0
    segments_received: int = 0
    acks_sent: int = 0
    acks_received: int = 0
    retransmits: int = 0
    dsacks: int = 0
    reordering: int = 0
    out_of_order: int = 0
    busy: float = 0.0
    window_limited: float = 0.0
    buffer_limited: float = 0.0
    rtts: list[float] = field(default_factory=list)  # of connections that sent data, one a sample
    cwnds: list[int] = field(default_factory=list)
    mss: list[int] = field(default_factory=list)
    counters: Mapping[str, int] = field(default_factory=dict)  # of the network namespace
    requests: int | None = None  # reads and writes of the disks
    bytes_of_disks: int | None = None
    congestion: set[str] = field(default_factory=set)
    acks: Acks = field(default_factory=Counter)

    def add(self, before: Numbers, after: Numbers, mss: int) -> None:
        """What one connection did between two looks at it; ``mss`` in bytes, 0 where it is not known."""
        data_out, data_in = _narrow(before, after, "data_segs_out"), _narrow(before, after, "data_segs_in")
        sent = max(after.bytes_sent - before.bytes_sent, 0)
        again = max(after.bytes_retrans - before.bytes_retrans, 0)
        received = max(after.bytes_received - before.bytes_received, 0)
        self.bytes_sent += sent
        self.bytes_retransmitted += again
        self.bytes_received += received
        self.segments_sent += data_out
        self.segments_received += data_in
        self.acks_sent += max(_narrow(before, after, "segs_out") - data_out, 0)
        self.acks_received += max(_narrow(before, after, "segs_in") - data_in, 0)
        self.retransmits += _narrow(before, after, "total_retrans")
        self.dsacks += _narrow(before, after, "dsack_dups")
        self.reordering += _narrow(before, after, "reord_seen")
        self.out_of_order += _narrow(before, after, "rcv_ooopack")
        self.busy += max(after.busy_time - before.busy_time, 0) * _MICROSECOND
        self.window_limited += max(after.rwnd_limited - before.rwnd_limited, 0) * _MICROSECOND
        self.buffer_limited += max(after.sndbuf_limited - before.sndbuf_limited, 0) * _MICROSECOND
        if mss:
            self.mss.append(mss)
            self.sent_in_mss += max(sent - again, 0) / mss
            self.received_in_mss += received / mss

    @property
    def bytes_moved(self) -> int:
        return self.bytes_sent + self.bytes_received

    def merge(self, other: Totals) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SUMS = tuple(each.name for each in fields(Totals) if each.type in ("int", "float"))


def acks_of(samples: Iterable[Sample]) -> Acks:
    found: Acks = Counter()
    for sample in samples:
        for what, lower, upper, count in sample.acks:
            found[what, lower, upper] += count
    return found


def last_of(looked: Numbers, final: Numbers) -> Numbers:
    """The last counts of a connection that has closed, with the times that only looks at it tell."""
    times = {name: getattr(looked, name) for name in ("busy_time", "rwnd_limited", "sndbuf_limited")}
    return msgspec.structs.replace(final, **times)


def _narrow(before: Numbers, after: Numbers, name: str) -> int:
    difference: int = (getattr(after, name) - getattr(before, name)) % NARROW
    return difference


@dataclass(frozen=True)
class Moment:
    """All connections as they were at one instant, by cookie, and the last counts of those that closed since the one
    before; ``t`` in s on the node's monotonic clock.
    """

    t: float
    connections: Mapping[int, Connection]
    closed: Mapping[int, Connection]
    sample: Sample


def moments(looks: Sequence[Look]) -> Iterator[Moment]:
    """Each sample, with the connections in it that it does not repeat, and without those that closed during the look.

    The order of lines says whether a connection closed before a sample or after it: a look takes a while, in which
    the clock says nothing.
    """
    now: dict[int, Connection] = {}
    for sample, ends in looks:
        closed = {each.connection.cookie: each.connection for each in ends}
        now.update((each.cookie, each) for each in sample.connections)
        for cookie in (*sample.gone, *closed):
            now.pop(cookie, None)
        yield Moment(sample.monotonic_ns / 1e9, dict(now), closed, sample)


@dataclass(frozen=True)
class Watched:
    """What was done in the window, and at its samples; ``warnings`` are sentences on what is missing."""

    totals: Totals
    moments: Sequence[Moment]
    warnings: tuple[str, ...]


def within(output: Output, start: float, end: float) -> Watched:
    """From the last sample before the window to the first after it; a connection that was opened in it begins at 0.

    ``start``, ``end``: s on the node's monotonic clock.
    """
    every = list(moments(output.looks))
    first = max((at for at, each in enumerate(every) if each.t <= start), default=0)
    last = min((at for at, each in enumerate(every) if each.t >= end), default=len(every) - 1)
    chosen = every[first : last + 1]
    if len(chosen) < 2:
        return Watched(Totals(), chosen, ("too few samples in the measured phase",))
    totals = Totals()
    warnings = list(_ends(output, chosen, start, end))
    begun, ended = chosen[0], chosen[-1]
    finals = {cookie: each for moment in chosen[1:] for cookie, each in moment.closed.items()}
    seen = dict(finals)
    for moment in chosen:
        seen |= moment.connections
    for cookie, latest in seen.items():
        before = begun.connections.get(cookie)
        gone = cookie not in ended.connections
        after = last_of(latest.numbers, finals[cookie].numbers) if gone and cookie in finals else latest.numbers
        totals.connections += 1
        totals.opened += before is None
        totals.closed += gone
        totals.congestion |= {latest.congestion} - {""}
        totals.add(before.numbers if before is not None else NOTHING, after, latest.numbers.snd_mss)
    if unseen := ended.sample.lost - begun.sample.lost:
        warnings.append(f"{unseen} connections closed faster than their last counts could be kept")
    lost = sum(cookie not in ended.connections and cookie not in finals for cookie in seen)
    if lost:
        warnings.append(
            f"{lost} {'connections' if lost > 1 else 'connection'} closed within the measured phase: what came "
            f"after the last sample of each is missing{f' ({output.started.reason})' if output.started.reason else ''}"
        )
    _gauges(totals, chosen)
    pairs = zip(output.started.counters, begun.sample.counters, ended.sample.counters, strict=False)
    totals.counters = {name: new - old for name, old, new in pairs if old is not None and new is not None}
    totals.acks = acks_of(moment.sample for moment in chosen[1:])
    _disks(totals, begun.sample, ended.sample)
    return Watched(totals, chosen, tuple(warnings))


def _ends(output: Output, chosen: Sequence[Moment], start: float, end: float) -> Iterator[str]:
    if chosen[0].t > start:
        yield "the first sample came after the load had started: what came before it is missing"
    if chosen[-1].t < end:
        why = "" if output.looks[-1].sample.final else ", because the agent's program did not end cleanly"
        yield f"no sample came after the load had ended{why}: what came after the last one is missing"


def _gauges(totals: Totals, chosen: Sequence[Moment]) -> None:
    """Of connections that sent data since the sample before: what one that is idle has is long out of date."""
    for before, after in pairwise(chosen):
        for cookie, each in after.connections.items():
            old = before.connections.get(cookie)
            if each.state in _OPEN and (old is None or old.numbers.bytes_sent < each.numbers.bytes_sent):
                totals.rtts.append(each.numbers.rtt * _MICROSECOND)
                totals.cwnds.append(each.numbers.cwnd)


def _disks(totals: Totals, first: Sample, last: Sample) -> None:
    before, after = dict(first.disks), dict(last.disks)
    if not after or before.keys() != after.keys():
        return
    did = [[max(b - a, 0) for a, b in zip(before[name], after[name], strict=True)] for name in after]
    totals.requests = sum(reads + writes for reads, writes, _, _ in did)
    totals.bytes_of_disks = sum(read + written for _, _, read, written in did)


@dataclass(frozen=True)
class Followed:
    """One connection as it is now, and what it did since the start."""

    connection: Connection
    totals: Totals


class Follower:
    """Takes lines in; ``connections`` and ``totals`` tell what was done since the first sample."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.last: Sample | None = None
        self._first: Sample | None = None
        self._before: dict[int, Numbers] = {}
        self._latest: dict[int, Connection] = {}
        self._ended = Totals()
        self._closed: dict[int, Connection] = {}
        self.opened = 0
        self.ended = 0
        """Connections that have closed; what they did is in ``totals``."""

    def add(self, line: Line) -> None:
        if isinstance(line, Started):
            self.started = line
        elif isinstance(line, Closed):
            self._closed[line.connection.cookie] = line.connection
        else:
            self._sample(line)

    def _sample(self, sample: Sample) -> None:
        if self._first is None:
            self._begin(sample)
            return
        for each in sample.connections:
            self.opened += each.cookie not in self._latest
            self._latest[each.cookie] = each
        self.last = sample
        self._ended.acks += acks_of([sample])
        for cookie, closed in self._closed.items():
            known = self._latest.get(cookie, closed)
            self.opened += known is closed
            self._end(known, last_of(known.numbers, closed.numbers))
        for cookie in sample.gone:
            if cookie in self._latest and cookie not in self._closed:
                self._end(self._latest[cookie], self._latest[cookie].numbers)
        self._closed = {}

    def _begin(self, sample: Sample) -> None:
        self._first = self.last = sample
        self._latest = {each.cookie: each for each in sample.connections if each.cookie not in self._closed}
        self._before = {cookie: each.numbers for cookie, each in self._latest.items()}
        self._closed = {}

    def _end(self, connection: Connection, numbers: Numbers) -> None:
        cookie = connection.cookie
        mss = connection.numbers.snd_mss
        self._ended.add(self._before.pop(cookie, NOTHING), numbers, mss)
        self._latest.pop(cookie, None)
        self.ended += 1

    @property
    def elapsed(self) -> float:
        """In s, from the first sample to the last."""
        if self._first is None or self.last is None:
            return 0.0
        return max(self.last.monotonic_ns - self._first.monotonic_ns, 0) / 1e9

    def connections(self) -> list[Followed]:
        found = []
        for cookie, each in self._latest.items():
            totals = Totals()
            totals.add(self._before.get(cookie, NOTHING), each.numbers, each.numbers.snd_mss)
            found.append(Followed(each, totals))
        return sorted(found, key=lambda one: (-one.totals.bytes_moved, one.connection.cookie))

    def totals(self) -> Totals:
        every = Totals()
        every.merge(self._ended)
        every.acks = self._ended.acks
        for each in self.connections():
            every.merge(each.totals)
        return every
