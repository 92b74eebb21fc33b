"""What connections did, segment by segment, in memory that grows with their number and not with that of packets.

Pieces of a capture are looked at as columns, sorted by connection and direction; what is unusual (a hole, a segment
that comes again) is looked at one by one. Numbers of sequence are 32 bits wide and wrap: within a piece each is taken
relative to the one before, so that any number of GiB can go by.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from storlab.formats.pcap.holes import Holes
from storlab.formats.pcap.segments import ACK, FIN, RST, SYN, Ints, Segments

MOST_CONNECTIONS = 100_000
_MOST_LENGTHS = 4096  # distinct ones that are remembered of one direction
_MOST_AGAIN = 1000  # connections that reuse the ports of an earlier one
_SPACING = 48  # bits: a piece of 32768 segments moves by less than 2 ** 46
BINS = 8  # of gaps between ACKs, for each factor of two, from 1 µs on
_HIGHEST_BIN = 27 * BINS  # 134 s
DELAYED = (35_000_000, 300_000_000)  # ns: Linux delays an ACK by 40 to 200 ms
Bools = npt.NDArray[np.bool_]


@dataclass
class Direction:
    """What one end of a connection sent. Times in ns; places are bytes since the first that was seen."""

    next: int | None = None  # the sequence number after the newest, 32 bits
    place: int = 0
    newest_ack: int | None = None
    last_data: int | None = None
    last_ack: int | None = None
    first_sequence: int | None = None  # of its SYN
    mss_option: int = 0
    stamped: bool = False
    packets: int = 0
    segments: int = 0
    bytes: int = 0
    acks: int = 0
    advancing: int = 0  # ACKs of which it is known how much they acknowledge
    advanced: int = 0  # bytes, by these
    retransmits: int = 0
    bytes_again: int = 0
    overtaken: int = 0
    sacks: int = 0
    dsacks: int = 0
    zero_windows: int = 0
    delayed: int = 0
    delayed_ns: int = 0
    rtt_count: int = 0
    rtt_sum: int = 0
    rtt_least: int = 2**62
    rtt_most: int = 0
    closed: bool = False
    holes: Holes = field(default_factory=Holes)
    lengths: Counter[int] = field(default_factory=Counter)
    advances: Counter[int] = field(default_factory=Counter)
    gaps: Counter[int] = field(default_factory=Counter)  # bin → number of gaps between its ACKs


@dataclass
class Connection:
    """``flow``: the lesser of its two; ``ways``: what its sender sent, and what the other end did."""

    flow: int
    first: int
    last: int
    opener: int | None = None  # which way its SYN went
    ways: tuple[Direction, Direction] = field(default_factory=lambda: (Direction(), Direction()))


class Streams:
    """All connections of a capture, whose segments are ``add``ed piece by piece."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.too_many = 0  # segments of those for which there was no more room
        self._known: dict[int, int] = {}
        self._again = 0

    def add(self, piece: Segments) -> None:
        """Segments in the order of the capture, 32768 at most."""
        turned = piece.flows >> np.uint64(48) & np.uint64(0xFFFF)
        turned = (
            (piece.flows & np.uint64(0xFFFF00000000)) << np.uint64(16)
            | turned << np.uint64(32)
            | (piece.flows & np.uint64(0xFFFF)) << np.uint64(16)
            | (piece.flows >> np.uint64(16) & np.uint64(0xFFFF))
        )
        lesser = np.minimum(piece.flows, turned)
        begin = 0
        for cut in [*self._reused(piece, lesser), len(piece)]:
            if cut > begin:
                self._add(piece, lesser, slice(begin, cut))
            if cut < len(piece):
                self._known.pop(int(lesser[cut]), None)
            begin = cut

    def _reused(self, piece: Segments, lesser: npt.NDArray[np.uint64]) -> list[int]:
        """Where connections begin that have the ports of an earlier one."""
        cuts: list[int] = []
        begun: dict[int, int] = {}
        for at in np.flatnonzero(piece.flags & (SYN | ACK) == SYN).tolist():
            flow, sequence = int(lesser[at]), int(piece.sequence[at])
            known = self._known.get(flow)
            before = begun.get(flow)
            if before is None and known is not None:
                way = self.connections[known].ways[int(piece.flows[at] != lesser[at])]
                before = way.first_sequence if way.first_sequence is not None else -1
            if before is not None and before != sequence and self._again < _MOST_AGAIN:
                self._again += 1
                cuts.append(at)
            begun[flow] = sequence
        return cuts

    def _add(self, piece: Segments, lesser: npt.NDArray[np.uint64], part: slice) -> None:
        flows, places = np.unique(lesser[part], return_inverse=True)
        numbers = np.array([self._connection(int(flow), piece, part) for flow in flows], dtype=np.int64)
        which = numbers[places.ravel()]
        kept = np.flatnonzero(which >= 0)
        self.too_many += len(which) - len(kept)
        if len(kept):
            at = kept + part.start
            ways = which[kept] * 2 + (piece.flows[at] != lesser[at])
            _Piece(self.connections, piece, at, ways).count()

    def _connection(self, flow: int, piece: Segments, part: slice) -> int:
        number = self._known.get(flow)
        if number is None:
            if len(self.connections) >= MOST_CONNECTIONS:
                return -1
            number = self._known[flow] = len(self.connections)
            self.connections.append(Connection(flow, 2**62, -(2**62)))
        return number


class _Piece:
    """Some segments, sorted by connection and direction: ``groups`` are the directions, ``rank`` which of them."""

    def __init__(self, connections: list[Connection], piece: Segments, at: Ints, ways: Ints) -> None:
        order = np.argsort(ways, kind="stable")
        self.connections, self.piece = connections, piece
        self.at, ways = at[order], ways[order]
        self.places = order  # in the order of the capture
        change = np.flatnonzero(np.diff(ways)) + 1
        self.begins = np.concatenate([[0], change])
        self.ends = np.concatenate([change, [len(ways)]])
        self.groups = ways[self.begins].tolist()
        self.rank = np.repeat(np.arange(len(self.begins)), self.ends - self.begins)
        self.ways = [connections[way // 2].ways[way % 2] for way in self.groups]
        self.times, self.flags = piece.times[self.at], piece.flags[self.at]
        self.lengths = np.maximum(piece.lengths[self.at], 0)
        self.data = self.lengths > 0
        self.acks = (self.flags & (ACK | RST)) == ACK
        self.pure = self.acks & ~self.data & (self.flags & (SYN | FIN) == 0)

    def count(self) -> None:
        """Add all that these segments say to their directions."""
        self._opened()
        bases = self._sequence()
        self.advance = self._acknowledged()
        self._sums()
        self._gaps()
        self._distinct("lengths", self.data, self.lengths)
        self._distinct("advances", self.known, self.advance)
        self._round_trips(bases, self.advance)
        self._delays(self.advance)

    def _opened(self) -> None:
        for place in np.flatnonzero(self.flags & SYN).tolist():
            rank, at = int(self.rank[place]), int(self.at[place])
            way, connection = self.ways[rank], self.connections[self.groups[rank] // 2]
            way.first_sequence = int(self.piece.sequence[at])
            way.mss_option = way.mss_option or int(self.piece.mss[at])
            asks = not self.flags[place] & ACK
            connection.opener = self.groups[rank] % 2 if asks else 1 - self.groups[rank] % 2

    def _relative(self, numbers: Ints, before: list[int | None], counted: Bools) -> Ints:
        """Each number relative to the one that its direction had ``before``, else to its first of those ``counted``.

        Those that don't count have the place of the one before them.
        """
        first = np.array([0 if base is None else base for base in before], dtype=np.int64)
        for rank, base in enumerate(before):
            own = self._first(counted, rank) if base is None else None
            first[rank] = first[rank] if own is None else numbers[own]
        places = np.maximum.accumulate(np.where(counted, np.arange(len(numbers)), -1))
        start = np.repeat(self.begins, self.ends - self.begins)
        numbers = np.where(places >= start, numbers[np.maximum(places, 0)], first[self.rank])
        steps = np.diff(numbers, prepend=0)
        steps[self.begins] = numbers[self.begins] - first
        steps = (steps + 2**31) % 2**32 - 2**31
        total: Ints = np.cumsum(steps)
        start_of: Ints = np.repeat((total - steps)[self.begins], self.ends - self.begins)
        return np.subtract(total, start_of, dtype=np.int64)

    def _first(self, chosen: Bools, rank: int) -> int | None:
        """The place of the first of a direction's that are chosen."""
        own = np.flatnonzero(chosen[self.begins[rank] : self.ends[rank]])
        return int(self.begins[rank] + own[0]) if len(own) else None

    def _highest(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Of each direction the highest so far, at least 0: with the present one and without."""
        shift = self.rank << _SPACING
        highest = np.maximum.accumulate(np.maximum(numbers, 0) + shift)
        before = np.empty_like(highest)
        before[1:] = highest[:-1] - shift[:-1]
        before[self.begins] = 0
        return highest, before

    def _sequence(self) -> Ints:
        """Holes, and what came again. Gives the numbers that places are relative to."""
        numbers = self.piece.sequence[self.at]
        sound = (self.flags & RST == 0) & (numbers >= 0)  # a reset's number may be anything
        relative = self._relative(numbers, [way.next for way in self.ways], sound)
        taken = self.lengths + (self.flags & SYN > 0) + (self.flags & FIN > 0)
        self.highest, before = self._highest(np.where(sound, relative + taken, 0))
        self.fresh = self.data & (relative >= before)
        probe = (self.lengths <= 1) & (relative == before - 1) & (taken == self.lengths)  # whether it is still alive
        odd = sound & ((relative > before) | (self.data & (relative < before) & ~probe))
        for place in np.flatnonzero(odd).tolist():
            self._unusual(place, int(relative[place]), int(before[place]), int(self.lengths[place]))
        bases = np.zeros(len(self.ways), dtype=np.int64)
        for rank, way in enumerate(self.ways):
            first = self._first(sound, rank)
            if first is not None:
                base = int(numbers[first]) if way.next is None else way.next
                moved = int(self.highest[self.ends[rank] - 1]) - (rank << _SPACING)
                bases[rank], way.next, way.place = base, (base + moved) % 2**32, way.place + moved
        return bases

    def _unusual(self, place: int, relative: int, before: int, length: int) -> None:
        way, time = self.ways[int(self.rank[place])], int(self.times[place])
        if relative > before:
            way.holes.open(way.place + before, way.place + relative, time)
            return
        begin = way.place + relative
        if way.holes.begins and way.holes.fill(begin, begin + length, time):
            way.overtaken += 1
            return
        way.retransmits += 1
        way.bytes_again += length

    def _acknowledged(self) -> Ints:
        """How far each ACK goes beyond all before it."""
        numbers = self.piece.acknowledged[self.at]
        relative = self._relative(numbers, [way.newest_ack for way in self.ways], self.acks)
        highest, before = self._highest(np.where(self.acks, relative, 0))
        first = np.zeros(len(numbers), dtype=np.bool_)
        for rank, way in enumerate(self.ways):
            place = self._first(self.acks, rank)
            if place is not None:
                first[place] = way.newest_ack is None
                base = int(numbers[place]) if way.newest_ack is None else way.newest_ack
                way.newest_ack = (base + int(highest[self.ends[rank] - 1]) - (rank << _SPACING)) % 2**32
        self.known = self.pure & ~first
        return np.where(self.acks, np.maximum(relative - before, 0), 0)

    def _sums(self) -> None:
        window = (self.piece.window[self.at] == 0) & self.acks & (self.flags & SYN == 0)
        sums = {
            "packets": np.ones(len(self.at), dtype=np.int64),
            "segments": self.data,
            "bytes": self.lengths,
            "acks": self.pure,
            "advancing": self.known,
            "advanced": np.where(self.known, self.advance, 0),
            "sacks": self.piece.sacks[self.at] > 0,
            "dsacks": self.piece.dsack[self.at],
            "zero_windows": window,
        }
        for name, each in sums.items():
            numbers = np.add.reduceat(each.astype(np.int64), self.begins).tolist()
            for way, number in zip(self.ways, numbers, strict=True):
                setattr(way, name, getattr(way, name) + number)
        stamped = np.logical_or.reduceat(self.piece.stamped[self.at], self.begins).tolist()
        ended = np.add.reduceat(self.flags & (FIN | RST) > 0, self.begins).tolist()
        first, last = (f.reduceat(self.times, self.begins).tolist() for f in (np.minimum, np.maximum))
        for rank, way in enumerate(self.ways):
            way.stamped |= stamped[rank]
            way.closed |= bool(ended[rank])
            connection = self.connections[self.groups[rank] // 2]
            connection.first, connection.last = min(connection.first, first[rank]), max(connection.last, last[rank])

    def _distinct(self, name: str, chosen: Bools, numbers: Ints) -> None:
        chosen = chosen & (numbers > 0) & (numbers < 2**24)
        keys, counts = np.unique(self.rank[chosen] << 24 | numbers[chosen], return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            known: Counter[int] = getattr(self.ways[key >> 24], name)
            if len(known) < _MOST_LENGTHS or (key & 0xFFFFFF) in known:
                known[key & 0xFFFFFF] += count

    def _gaps(self) -> None:
        """Between ACKs of one direction that follow each other."""
        places = np.flatnonzero(self.pure)
        if not len(places):
            return
        rank, times = self.rank[places], self.times[places]
        begin = np.flatnonzero(np.diff(rank, prepend=-1))
        gaps = np.diff(times, prepend=times[0])
        last = np.append(begin[1:], len(places)) - 1
        for at, end in zip(begin.tolist(), last.tolist(), strict=True):
            way = self.ways[int(rank[at])]
            gaps[at] = -1 if way.last_ack is None else max(int(times[at]) - way.last_ack, 0)
            way.last_ack = int(times[end])
        real = gaps >= 0
        bins = np.clip(np.floor(np.log2(np.maximum(gaps[real], 1000) / 1000) * BINS), 0, _HIGHEST_BIN).astype(np.int64)
        keys, counts = np.unique(rank[real] << 16 | bins, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self.ways[key >> 16].gaps[key & 0xFFFF] += count

    def _round_trips(self, bases: Ints, advance: Ints) -> None:
        """From a segment that was sent once to the first ACK that ends where it does, where both are in this piece."""
        ranks = {way: rank for rank, way in enumerate(self.groups)}
        other = np.array([ranks.get(way ^ 1, -1) for way in self.groups], dtype=np.int64)
        places = np.flatnonzero(self.acks & (advance > 0) & (other[self.rank] >= 0))
        target = other[self.rank[places]]
        relative = (self.piece.acknowledged[self.at[places]] - bases[target] + 2**31) % 2**32 - 2**31
        key = (target << _SPACING) + relative
        found = np.minimum(np.searchsorted(self.highest, key), len(self.highest) - 1)
        took = self.times[places] - self.times[found]
        same = (self.highest[found] == key) & (self.rank[found] == target) & self.fresh[found] & (took >= 0)
        target, took = target[same], took[same]
        order = np.argsort(target, kind="stable")
        for begin, size in zip(*_runs(target[order]), strict=True):
            own, way = took[order[begin : begin + size]], self.ways[int(target[order[begin]])]
            way.rtt_count += int(size)
            way.rtt_sum += int(own.sum())
            way.rtt_least, way.rtt_most = min(way.rtt_least, int(own.min())), max(way.rtt_most, int(own.max()))

    def _delays(self, advance: Ints) -> None:
        """ACKs that came so long after the newest data that a timer must have sent them."""
        back = np.argsort(self.places)  # into the order of the capture, then by connections
        way = np.array(self.groups)[self.rank][back]
        place = back[np.argsort(way >> 1, kind="stable")]
        side, line = np.array(self.groups)[self.rank[place]] & 1, np.arange(len(place))
        newest = [np.maximum.accumulate(np.where(self.data[place] & (side == each), line, -1)) for each in (0, 1)]
        from_other, times = np.where(side == 0, newest[1], newest[0]), self.times[place]
        begins, sizes = _runs(np.array(self.groups)[self.rank[place]] >> 1)
        others = (self.connections[way // 2].ways[1 - way % 2].last_data for way in self.groups)
        before = np.array([time or 0 for time in others], dtype=np.int64)
        within = from_other >= np.repeat(begins, sizes)
        since = np.where(within, times[np.maximum(from_other, 0)], before[self.rank[place]])
        took = times - since
        late = (self.known & (advance > 0))[place] & (since > 0) & (took >= DELAYED[0]) & (took <= DELAYED[1])
        for at in np.flatnonzero(late).tolist():
            own = self.ways[int(self.rank[place[at]])]
            own.delayed += 1
            own.delayed_ns += int(took[at])
        last = np.maximum.accumulate(np.where(self.data, np.arange(len(self.data)), -1))[self.ends - 1]
        for rank, (own, at) in enumerate(zip(self.ways, last.tolist(), strict=True)):
            own.last_data = int(self.times[at]) if at >= self.begins[rank] else own.last_data


def _runs(sorted_keys: Ints) -> tuple[Ints, Ints]:
    """Where each run of equal keys begins, and how long it is."""
    begins = np.flatnonzero(np.diff(sorted_keys, prepend=-1))
    return begins, np.diff(np.append(begins, len(sorted_keys)))
