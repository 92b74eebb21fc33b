"""Frames of captures as segments of TCP: link, IP and TCP headers, for many packets at once.

Sources: the registry of link types at tcpdump.org; RFC 791, 8200, 9293; of options RFC 7323 (timestamps), 2018 (SACK),
2883 (DSACK).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from storlab.errors import ParseError
from storlab.formats.pcap.container import Packets, rows
from storlab.formats.pcap.segments import UNKNOWN, Addresses, Ints, Segments

_ETHERNET, _COOKED, _COOKED_2 = 1, 113, 276
_PLAIN = {0: 4, 108: 4, 12: 0, 14: 0, 101: 0, 228: 0, 229: 0}
"""Links without a type of what they carry → bytes before IP: null and loopback, and raw IP."""
_TAGS = (0x8100, 0x88A8, 0x9100)
_TCP = 6
_EXTENSIONS = (0, 43, 60)  # IPv6: hop by hop, routing, destination
_FRAGMENT = 44
_STEPS = 40  # options of one header: as many as it has bytes
_STAMPS = 0x0101080A  # two blanks and timestamps, as nearly every segment of Linux begins its options
Octets = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


@dataclass
class Frames:
    """Turns packets into segments, and counts those that it can't. ``others``: of another protocol than TCP."""

    source: str
    addresses: Addresses = field(default_factory=Addresses)
    packets: int = 0
    others: int = 0
    cut: int = 0
    without_options: int = 0

    def segments(self, packets: Packets) -> Segments:
        """Those of TCP among ``packets``. Raises ``ParseError`` for a type of link that isn't known."""
        self.packets += len(packets.offsets)
        data, end = packets.data, packets.offsets + packets.captured
        internet, chosen = self._link(packets)
        at, size, flows, chosen = self._internet(data, internet, end, chosen, packets)
        whole = at + 20 <= end[chosen]
        self.cut += int((~whole).sum())
        at, size, flows, chosen = at[whole], size[whole], flows[whole], chosen[whole]
        head = rows(data, at, 20)
        header = (head[:, 12] >> 4).astype(np.int64) * 4
        sound = (header >= 20) & (size >= header)
        if not sound.all():
            self.others += int((~sound).sum())
            at, size, flows, chosen = at[sound], size[sound], flows[sound], chosen[sound]
            head, header = head[sound], header[sound]
        ports = _number(head, 0, 4).astype(np.uint64)
        options = _Options(len(at))
        there = at + header <= end[chosen]
        self.without_options += int((~there).sum())
        options.read(data, at, header, np.flatnonzero(there & (header > 20)), _number(head, 8, 4))
        return Segments(
            times=packets.times[chosen],
            flows=flows << np.uint64(32) | ports,
            sequence=_number(head, 4, 4),
            acknowledged=_number(head, 8, 4),
            lengths=size - header,
            flags=head[:, 13].astype(np.int64),
            window=_number(head, 14, 2),
            mss=options.mss,
            stamped=options.stamped,
            sacks=options.sacks,
            dsack=options.dsack,
        )

    def _link(self, packets: Packets) -> tuple[Ints, Ints]:
        """Where the headers of IP begin, and which packets have one."""
        data, begin, end = packets.data, packets.offsets, packets.offsets + packets.captured
        everyone = np.arange(len(begin))
        if packets.linktype in _PLAIN:
            at = begin + _PLAIN[packets.linktype]
        elif packets.linktype in (_COOKED, _COOKED_2):
            place, size = (14, 16) if packets.linktype == _COOKED else (0, 20)
            kinds = _number(rows(data, begin, size), place, 2)
            at, everyone = begin + size, np.flatnonzero(np.isin(kinds, (0x0800, 0x86DD)))
        elif packets.linktype == _ETHERNET:
            head = rows(data, begin, 22)
            kinds, at = _number(head, 12, 2), begin + 14
            for place in (16, 20):
                tagged = np.isin(kinds, _TAGS)
                if not tagged.any():
                    break
                kinds = np.where(tagged, _number(head, place, 2), kinds)
                at = at + 4 * tagged
            everyone = np.flatnonzero((kinds == 0x0800) | (kinds == 0x86DD))
        else:
            raise ParseError(f"is of link type {packets.linktype}, which is not known here", self.source)
        chosen = everyone[at[everyone] + 20 <= end[everyone]]
        self.cut += len(everyone) - len(chosen)
        self.others += len(begin) - len(everyone)
        return at[chosen], chosen

    def _internet(
        self, data: Octets, at: Ints, end: Ints, chosen: Ints, packets: Packets
    ) -> tuple[Ints, Ints, npt.NDArray[np.uint64], Ints]:
        """Of packets that carry TCP: where that begins, how long it is, both addresses' numbers, and which they are."""
        head = rows(data, at, 40)
        version = head[:, 0] >> 4
        rest = packets.lengths[chosen] - (at - packets.offsets[chosen])
        four = _Four(head, rest)
        six = np.flatnonzero((version == 6) & (at + 40 <= end[chosen]))
        old = np.flatnonzero((version == 4) & four.sound)
        numbers = np.zeros(len(at), dtype=np.uint64)
        begin, size = at + four.header, four.size.copy()
        numbers[old] = self._numbers(head[old, 12:20], 4)
        if len(six):
            numbers[six] = self._numbers(head[six, 8:40], 16)
            lead, carries = _extensions(data, at[six], head[six, 6].astype(np.int64), end[chosen[six]])
            length = _number(head[six], 4, 2)
            begin[six] = at[six] + lead
            size[six] = np.where(length == 0, rest[six], length + 40) - lead
            six = six[carries]
        kept = np.sort(np.concatenate([old, six]))
        self.others += len(at) - len(kept)
        known = kept[((numbers[kept] & np.uint64(0xFFFF)) != UNKNOWN) & (numbers[kept] >> np.uint64(16) != UNKNOWN)]
        self.addresses.too_many += len(kept) - len(known)
        return begin[known], size[known], numbers[known], chosen[known]

    def _numbers(self, both: Octets, width: int) -> npt.NDArray[np.uint64]:
        """Source's and destination's number in one, of addresses that stand beside each other."""
        each = np.ascontiguousarray(both).reshape(-1, width)
        if width == 4:
            distinct, places = np.unique(each.view(">u4").ravel(), return_inverse=True)
            octets = distinct.astype(">u4").view(np.uint8).reshape(-1, 4)
        else:
            words = each.view(">u8").astype(np.uint64)
            halves, ranks = np.unique(words.ravel(), return_inverse=True)
            ranks = ranks.reshape(-1, 2)
            keys = ranks[:, 0] * len(halves) + ranks[:, 1]
            _, first, places = np.unique(keys, return_index=True, return_inverse=True)
            octets = each[first]
        numbers = np.array([self.addresses.number(octet.tobytes()) for octet in octets], dtype=np.uint64)
        pairs = numbers[places.ravel()].reshape(-1, 2)
        return pairs[:, 0] << np.uint64(16) | pairs[:, 1]


class _Four:
    """IPv4's headers, as far as they are of it: bytes of header, bytes in all without it, and which carry TCP."""

    def __init__(self, head: Octets, rest: Ints) -> None:
        self.header = (head[:, 0] & 0x0F).astype(np.int64) * 4
        total = _number(head, 2, 2)
        # 0: segments that were merged to more than 64 KiB, or that the card is still to cut up.
        self.size = np.where(total == 0, rest, total) - self.header
        first = _number(head, 6, 2) & 0x1FFF == 0
        self.sound = (self.header >= 20) & first & (head[:, 9] == _TCP)


def _extensions(data: Octets, at: Ints, kinds: Ints, end: Ints) -> tuple[Ints, Bools]:
    """IPv6: bytes up to what is carried, and whether that is TCP."""
    lead = np.full(len(at), 40, dtype=np.int64)
    kinds = kinds.copy()
    for _ in range(8):
        more = np.flatnonzero(np.isin(kinds, (*_EXTENSIONS, _FRAGMENT)) & (at + lead + 8 <= end))
        if not len(more):
            break
        head = rows(data, at[more] + lead[more], 8)
        later = (kinds[more] == _FRAGMENT) & (_number(head, 2, 2) & 0xFFF8 != 0)
        lead[more] += np.where(kinds[more] == _FRAGMENT, 8, (head[:, 1].astype(np.int64) + 1) * 8)
        kinds[more] = np.where(later, 255, head[:, 0])
    return lead, kinds == _TCP


class _Options:
    def __init__(self, count: int) -> None:
        self.mss = np.zeros(count, dtype=np.int64)
        self.sacks = np.zeros(count, dtype=np.int64)
        self.stamped, self.dsack = np.zeros((2, count), dtype=np.bool_)

    def read(self, data: Octets, at: Ints, header: Ints, which: Ints, acknowledged: Ints) -> None:
        """Those of the segments ``which`` that have them whole."""
        if not len(which):
            return
        usual = header[which] == 32
        text = rows(data, at[which] + 20, 40)
        stamps = usual & (_number(text, 0, 4) == _STAMPS)
        self.stamped[which[stamps]] = True
        left = np.flatnonzero(~stamps)
        for number, place, kind, size in _each(text[left], header[which[left]] - 20):
            own, there = which[left[number]], text[left[number]]
            if kind == 2:
                self.mss[own] = _at(there, place + 2, 2)
            elif kind == 8:
                self.stamped[own] = True
            elif kind == 5:
                self._blocks(own, there, place, size, acknowledged[own])

    def _blocks(self, own: Ints, text: Octets, place: Ints, size: Ints, acknowledged: Ints) -> None:
        """DSACK: the first block is below what is acknowledged, or within the second."""
        self.sacks[own] = np.maximum((size - 2) // 8, 0)
        left, right = _at(text, place + 2, 4), _at(text, place + 6, 4)
        below = (acknowledged - right) % 2**32 < 2**31
        two = size >= 18
        outer, end = _at(text, place + 10, 4), _at(text, place + 14, 4)
        within = two & ((left - outer) % 2**32 < 2**31) & ((end - right) % 2**32 < 2**31)
        self.dsack[own] = (size >= 10) & (below | within)


def _each(text: Octets, limit: Ints) -> Iterator[tuple[Ints, Ints, int, Ints]]:
    """Options by and by: of which rows, where, which kind, how long."""
    which = np.arange(len(text))
    place = np.zeros(len(text), dtype=np.int64)
    for _ in range(_STEPS):
        if not len(which):
            return
        kinds = text[which, place[which]]
        blank = kinds == 1
        size = np.where(blank, 1, _at(text[which], np.minimum(place[which] + 1, 39), 1))
        sound = (kinds != 0) & (blank | (size >= 2)) & (place[which] + size <= limit[which])
        for kind, least in ((2, 4), (8, 10), (5, 10)):
            found = sound & (kinds == kind) & (size >= least)
            if found.any():
                yield which[found], place[which[found]], kind, size[found]
        place[which] += size
        which = which[sound & (place[which] < limit[which])]


def _at(text: Octets, place: Ints, width: int) -> Ints:
    """A number of ``width`` bytes, at a place of its own in each row; beyond the row's end, of its last byte."""
    line = np.arange(len(text))
    found = np.zeros(len(text), dtype=np.int64)
    for step in range(width):
        found = found << 8 | text[line, np.minimum(place + step, text.shape[1] - 1)]
    return found


def _number(text: Octets, place: int, width: int) -> Ints:
    """A number of 2 or 4 bytes at the same place in each row."""
    found = text[:, place].astype(np.int64)
    for step in range(1, width):
        found = found << 8 | text[:, place + step]
    return found
