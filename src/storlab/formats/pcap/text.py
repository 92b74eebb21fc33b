"""What tcpdump prints, of all its versions: a line a packet, or two with ``-v``.

Newer ones print ``Flags [P.], seq 1:101, ack 1, win 501, options […], length 100``, older ones ``P 1:101(100) ack 1 win
501 <…>``. Numbers of sequence are relative to the first packet of a connection, but for those of that packet; with
``-S`` none are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import BinaryIO

import numpy as np

from storlab.errors import ParseError
from storlab.formats.pcap.container import MOST
from storlab.formats.pcap.segments import ACK, FIN, RST, SYN, UNKNOWN, Addresses, Segments, flow

_TIME = re.compile(
    r"^\s*(?:\d+\s+)?(?:(?P<date>\d{4}-\d\d-\d\d) )?(?:(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)|(?P<epoch>\d{9,11}))"
    r"(?:\.(?P<part>\d{1,9}))? "
)
_ENDS = re.compile(
    r"(?:^\s*|\s)(?P<a>[\w.:%-]+)\.(?P<ap>[\w-]+) > (?P<b>[\w.:%-]+)\.(?P<bp>[\w-]+): "
    r"(?:Flags \[(?P<new>[A-Za-z.]+|none)\]|(?P<old>[SFPRWEU.]+)(?= ))(?P<rest>.*)$"
)
_SEQ = re.compile(r"\bseq (\d+)(?::(\d+))?|^ (\d+):(\d+)\((\d+)\)")
_ACKED = re.compile(r"\back (\d+)")
_WINDOW = re.compile(r"\bwin (\d+)")
_LENGTH = re.compile(r"\blength (\d+)")
_MSS = re.compile(r"\bmss (\d+)")
_SACK = re.compile(r"\bsack (\d+) ((?:\{\d+:\d+\})+)")
_BLOCK = re.compile(r"\{(\d+):(\d+)\}")
_BITS = {"S": SYN, "F": FIN, "R": RST, ".": ACK, "P": 8, "U": 32, "E": 64, "W": 128}
_DAY = 86_400_000_000_000  # ns
_LONGEST = 10_000  # characters of a line
_PROSE = 1024**2  # bytes before the first packet
_NEAR = 2**26  # bytes: numbers that are as close continue each other
_WORD = 2**32


@dataclass
class _Numbering:
    """How a connection's numbers are printed: the sender of its first packet with an ACK, and that packet's numbers."""

    first: int
    sequence: int
    acknowledged: int
    relative: bool | None = None  # None: not known yet


@dataclass
class Text:
    """Reads lines. ``others``: packets that are not of TCP, or say too little."""

    source: str
    addresses: Addresses = field(default_factory=Addresses)
    packets: int = 0
    others: int = 0
    _day: int = 0
    _latest: int = -1
    _numberings: dict[int, _Numbering] = field(default_factory=dict)

    def segments(self, file: BinaryIO) -> Iterator[Segments]:
        """All of a text. Raises ``ParseError`` where no line is a packet's."""
        found: list[tuple[int, ...]] = []
        time: int | None = None
        passed = 0
        while (line := file.readline(_LONGEST)) and (self.packets or passed < _PROSE):
            passed += len(line)
            text = line.decode(errors="replace").rstrip("\r\n")
            if stamp := _TIME.match(text):
                time = self._time(stamp)
                self.packets += 1
                self.others += 1
            ends = _ENDS.search(text) if time is not None else None
            if ends is not None and time is not None:
                row = self._row(ends, time)
                self.others -= 1
                time = None
                found += [row] if row is not None else []
            if len(found) == MOST:
                yield _columns(found)
                found = []
        if not self.packets:
            raise ParseError("is neither pcap, nor pcapng, nor what tcpdump prints", self.source)
        yield _columns(found)

    def _time(self, stamp: re.Match[str]) -> int:
        """In ns. Lines without a date go on for days."""
        part = int((stamp["part"] or "0").ljust(9, "0"))
        if stamp["epoch"]:
            return min(int(stamp["epoch"]), 2**33) * 1_000_000_000 + part
        of_day = (int(stamp["h"]) * 3600 + int(stamp["m"]) * 60 + int(stamp["s"])) * 1_000_000_000 + part
        if stamp["date"]:
            try:
                return (date.fromisoformat(stamp["date"]).toordinal() - date(1970, 1, 1).toordinal()) * _DAY + of_day
            except ValueError:
                return of_day
        if of_day < self._latest - _DAY // 2:
            self._day = min(self._day + _DAY, 1000 * _DAY)
        self._latest = of_day
        return self._day + of_day

    def _row(self, ends: re.Match[str], time: int) -> tuple[int, ...] | None:
        source, source_port = self._end(ends["a"], ends["ap"])
        target, target_port = self._end(ends["b"], ends["bp"])
        if UNKNOWN in (source, target):
            self.addresses.too_many += 1
            return None
        rest = ends["rest"]
        flags = sum(_BITS.get(letter, 0) for letter in set(ends["new"] or ends["old"]) if ends["new"] != "none")
        acked = _ACKED.search(rest)
        flags |= ACK if acked else 0
        sequence, length = _sequence(rest)
        both = flow(source, target, (source_port, target_port)), flow(target, source, (target_port, source_port))
        acknowledged = int(acked[1]) if acked else 0
        sequence, acknowledged = self._absolute(both, sequence, acknowledged, flags)
        sacks, dsack = _sacked(rest, int(acked[1]) if acked else 0)
        window, mss = _WINDOW.search(rest), _MSS.search(rest)
        return (
            time, both[0], sequence % _WORD if sequence is not None else -1, acknowledged % _WORD, length, flags,
            min(int(window[1]), 65535) if window else 1, min(int(mss[1]), 65535) if mss else 0,
            int("timestamp" in rest or "TS val" in rest), sacks, int(dsack),
        )  # fmt: skip

    def _end(self, name: str, port: str) -> tuple[int, int]:
        number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 65536
        if number < 65536:
            return self.addresses.number(name), number
        return self.addresses.number(f"{name}.{port}"), 0

    def _absolute(self, flows: tuple[int, int], sequence: int | None, acked: int, flags: int) -> tuple[int | None, int]:
        """Numbers of sequence and of the ACK, as they were in the packet."""
        known = self._numberings.get(min(flows))
        if known is None or flags & SYN:
            if flags & ACK:
                self._numberings[min(flows)] = _Numbering(flows[0], sequence or 0, acked)
            return sequence, acked
        forth = flows[0] == known.first
        of_sequence, of_ack = known.sequence, known.acknowledged - 1
        own, others = (of_sequence, of_ack) if forth else (of_ack, of_sequence)
        if known.relative is None:
            value, base = (sequence, own) if sequence is not None else (acked, others)
            known.relative = not -_NEAR < value - base < _NEAR
        shift = (own, others) if known.relative else (0, 0)
        return None if sequence is None else sequence + shift[0], acked + shift[1]


def _sequence(rest: str) -> tuple[int | None, int]:
    """Where the data begin, if that is said, and how long they are."""
    length = _LENGTH.search(rest)
    match = _SEQ.search(rest)
    if match is None:
        return None, min(int(length[1]), 2**20) if length else 0
    begin, end = (match[1], match[2]) if match[1] else (match[3], match[4])
    size = int(match[5]) if match[5] else int(length[1]) if length else (int(end) - int(begin)) % _WORD if end else 0
    return int(begin), min(size, 2**20)


def _sacked(rest: str, acked: int) -> tuple[int, bool]:
    match = _SACK.search(rest)
    if match is None:
        return 0, False
    blocks = [(int(a), int(b)) for a, b in _BLOCK.findall(match[2])]
    below = 0 < blocks[0][1] <= acked
    return len(blocks), below or (len(blocks) > 1 and blocks[1][0] <= blocks[0][0] and blocks[0][1] <= blocks[1][1])


def _columns(rows: list[tuple[int, ...]]) -> Segments:
    flows = np.array([row[1] for row in rows], dtype=np.uint64)
    table = np.array([(row[0], *row[2:]) for row in rows], dtype=np.int64).reshape(-1, 10).T
    time, sequence, acked, length, flags, window, mss, stamped, sacks, dsack = table
    return Segments(
        time, flows, sequence, acked, length, flags, window, mss, stamped > 0, sacks, dsack > 0
    )  # fmt: skip
