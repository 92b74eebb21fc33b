"""Following the agent's lines as they come: what connections did since the start, in memory that time does not fill."""

from __future__ import annotations

from dataclasses import dataclass

from storlab.tcp.agent_output import Closed, Connection, Line, Numbers, Sample, Started
from storlab.tcp.totals import NOTHING, Totals, acks_of, last_of


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
        """The first: what has closed before it did nothing since."""
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
        """Those that are there, the busiest first."""
        found = []
        for cookie, each in self._latest.items():
            totals = Totals()
            totals.add(self._before.get(cookie, NOTHING), each.numbers, each.numbers.snd_mss)
            found.append(Followed(each, totals))
        return sorted(found, key=lambda one: (-one.totals.bytes_moved, one.connection.cookie))

    def totals(self) -> Totals:
        """Of all, those that have closed among them."""
        every = Totals()
        every.merge(self._ended)
        every.acks = self._ended.acks
        for each in self.connections():
            every.merge(each.totals)
        return every
