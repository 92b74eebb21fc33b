"""What tcpdump prints, of all its versions: a line a packet, or two with ``-v``.

Newer ones print ``Flags [P.], seq 1:101, ack 1, win 501, options […], length 100``, older ones ``P 1:101(100) ack 1 win
501 <…>``. Numbers of sequence are relative to the first packet of a connection, but for those of that packet; with
``-S`` none are. Each line becomes a record for the agent, which counts them like packets.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import BinaryIO

from storlab.base.errors import ParseError

MAGIC = b"storlab-segments"
"""What records begin with (``agent/src/pcap/input.rs``)."""
_RECORD = struct.Struct("<qqIIIIHHHHBBBB")
PIECE = 32768  # records that are handed on at a time
_MOST_NAMES = 65535
_MOST_CONNECTIONS = 100_000
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_TIME = re.compile(
    r"^\s*(?:\d+\s+)?(?:(?P<date>\d{4}-\d\d-\d\d) )?(?:(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)|(?P<epoch>\d{9,11}))"
    r"(?:\.(?P<part>\d{1,9}))? "
)
_ENDS = re.compile(
    r"(?:^\s*|\s)(?P<a>[\w.:%-]+)\.(?P<ap>[\w-]+) > (?P<b>[\w.:%-]+)\.(?P<bp>[\w-]+): "
    r"(?:Flags \[(?P<new>[A-Za-z.]+|none)\]|(?P<old>[SFPRWEU.]+)(?= ))(?P<rest>.*)$"
)
_SEQ = re.compile(r"\bseq (\d{1,30})(?::(\d{1,30}))?|^ (\d{1,30}):(\d{1,30})\((\d{1,30})\)")
_ACKED = re.compile(r"\back (\d{1,30})")
_WINDOW = re.compile(r"\bwin (\d{1,30})")
_LENGTH = re.compile(r"\blength (\d{1,30})")
_MSS = re.compile(r"\bmss (\d{1,30})")
_SACK = re.compile(r"\bsack (\d{1,30}) ((?:\{\d{1,30}:\d{1,30}\})+)")
_BLOCK = re.compile(r"\{(\d{1,30}):(\d{1,30})\}")
_BITS = {"S": _SYN, "F": _FIN, "R": _RST, ".": _ACK, "P": 8, "U": 32, "E": 64, "W": 128}
_DAY = 86_400_000_000_000  # ns
_LONGEST = 10_000  # characters of a line
_PROSE = 1024**2  # bytes before the first packet
_NEAR = 2**26  # bytes: numbers that are as close continue each other
_WORD = 2**32


_End = tuple[int, int]  # the number of a machine's name, and a port


@dataclass
class _Numbering:
    """How a connection's numbers are printed: the sender of its first packet with an ACK, and that packet's numbers."""

    first: _End
    sequence: int
    acknowledged: int
    relative: bool | None = None  # None: not known yet


@dataclass
class Text:
    """Reads lines. ``others``: packets that are not of TCP, or say too little.

    ``names``: of machines, by their numbers. ``too_many``: packets of machines beyond the most that have one.
    """

    source: str
    packets: int = 0
    others: int = 0
    too_many: int = 0
    names: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _day: int = 0
    _latest: int = -1
    _numberings: dict[frozenset[_End], _Numbering] = field(default_factory=dict)

    def records(self, file: BinaryIO) -> Iterator[bytes]:
        """All of a text, in pieces. Raises ``ParseError`` where no line is a packet's."""
        found: list[bytes] = [MAGIC]
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
                record = self._record(ends, time)
                self.others -= 1
                time = None
                found += [record] if record is not None else []
            if len(found) > PIECE:
                yield b"".join(found)
                found = []
        if not self.packets:
            raise ParseError("is neither pcap, nor pcapng, nor what tcpdump prints", self.source)
        yield b"".join(found)

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

    def _record(self, ends: re.Match[str], time: int) -> bytes | None:
        source, target = self._end(ends["a"], ends["ap"]), self._end(ends["b"], ends["bp"])
        if source is None or target is None:
            self.too_many += 1
            return None
        rest = ends["rest"]
        flags = sum(_BITS.get(letter, 0) for letter in set(ends["new"] or ends["old"]) if ends["new"] != "none")
        acked = _ACKED.search(rest)
        flags |= _ACK if acked else 0
        sequence, length = _sequence(rest)
        acknowledged = int(acked[1]) if acked else 0
        sacks, dsack = _sacked(rest, acknowledged)
        sequence, acknowledged = self._absolute((source, target), sequence, acknowledged, flags)
        window, mss = _WINDOW.search(rest), _MSS.search(rest)
        return _RECORD.pack(
            time, sequence % _WORD if sequence is not None else -1, source[0], target[0], acknowledged % _WORD, length,
            source[1], target[1], min(int(window[1]), 65535) if window else 1, min(int(mss[1]), 65535) if mss else 0,
            flags, "timestamp" in rest or "TS val" in rest, min(sacks, 255), dsack,
        )  # fmt: skip

    def _end(self, name: str, port: str) -> _End | None:
        number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 65536
        if number < 65536:
            known = self._number(name)
            return None if known is None else (known, number)
        known = self._number(f"{name}.{port}")
        return None if known is None else (known, 0)

    def _number(self, name: str) -> int | None:
        found = self._numbers.get(name)
        if found is None and len(self.names) < _MOST_NAMES:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def _absolute(
        self, ends: tuple[_End, _End], sequence: int | None, acked: int, flags: int
    ) -> tuple[int | None, int]:
        known = self._numberings.get(frozenset(ends))
        if known is None or flags & _SYN:
            if flags & _ACK and len(self._numberings) < _MOST_CONNECTIONS:
                self._numberings[frozenset(ends)] = _Numbering(ends[0], sequence or 0, acked)
            return sequence, acked
        forth = ends[0] == known.first
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
