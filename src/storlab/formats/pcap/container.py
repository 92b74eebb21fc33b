"""The files that captures come in: pcap and pcapng, read piece by piece.

Sources: pcap-savefile(5); the draft "PCAP Next Generation Capture File Format" of the IETF's opsawg.

Records are found one after the other, which no vector operation can: 0.2 µs each in Python. All that is in them is left
to NumPy (``frames``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from storlab.errors import ParseError

PIECE = 4 * 1024**2  # bytes that are read at a time
LONGEST = 1024**2  # bytes of a record: no card gives more, with or without merging
MOST = 32768  # packets of a piece: ``streams`` counts on it
MAGICS = {
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
}
"""The first bytes of pcap → the order of its bytes, and ns of a unit of time."""
SECTION = b"\x0a\x0d\x0d\x0a"
_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_INTERFACE, _SIMPLE, _ENHANCED, _OLD_PACKET = 1, 3, 6, 2
_TSRESOL, _TSOFFSET = 9, 14
_INTERFACES = 4096  # of one section

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packets:
    """Packets of one interface: ``data`` holds them all, each from ``offsets`` on.

    ``captured`` and ``lengths``: bytes that are there, and that there were. ``times``: ns since the epoch.
    """

    linktype: int
    data: npt.NDArray[np.uint8]
    offsets: Ints
    captured: Ints
    lengths: Ints
    times: Ints


@dataclass
class Notes:
    """What was wrong with a file, counted."""

    cut_off: bool = False
    without_time: int = 0


def packets_of(file: BinaryIO, source: str, notes: Notes) -> Iterator[Packets]:
    """All packets of a pcap or pcapng, in order. Raises ``ParseError``; what is cut off at its end is noted."""
    head = file.read(4)
    if head in MAGICS:
        yield from _Pcap(file, source, notes, *MAGICS[head]).packets()
    elif head == SECTION:
        yield from _Pcapng(file, source, notes).packets(head)
    else:
        raise ParseError("is neither pcap nor pcapng", source)


class _Pcap:
    def __init__(self, file: BinaryIO, source: str, notes: Notes, order: str, unit: int) -> None:
        self.file, self.source, self.notes, self.order, self.unit = file, source, notes, order, unit

    def packets(self) -> Iterator[Packets]:
        head = self.file.read(20)
        if len(head) < 20:
            raise ParseError("ends within its header", self.source)
        linktype = struct.unpack(f"{self.order}HHiIII", head)[5] & 0xFFFF
        rest, at = b"", 24
        while piece := self.file.read(PIECE):
            data = rest + piece
            found, end = self._records(data, at)
            for begin in range(0, len(found), MOST):
                yield self._packets(data, np.array(found[begin : begin + MOST], dtype=np.int64), linktype)
            rest = data[end:]
            at += end
        self.notes.cut_off |= bool(rest)

    def _records(self, data: bytes, at: int) -> tuple[list[int], int]:
        """Where the whole ones begin, and where what is left of them."""
        length_at = struct.Struct(f"{self.order}I").unpack_from
        found: list[int] = []
        append = found.append
        position, last = 0, len(data)
        while position + 16 <= last:
            (length,) = length_at(data, position + 8)
            if length > LONGEST:
                raise ParseError(f"byte {at + position}: a packet of {length} bytes is none", self.source)
            if position + 16 + length > last:
                break
            append(position)
            position += 16 + length
        return found, position

    def _packets(self, data: bytes, offsets: Ints, linktype: int) -> Packets:
        octets = np.frombuffer(data, dtype=np.uint8)
        heads = rows(octets, offsets, 16).view(f"{self.order}u4").astype(np.int64)
        times = heads[:, 0] * 1_000_000_000 + heads[:, 1] * self.unit
        return Packets(linktype, octets, offsets + 16, heads[:, 2], heads[:, 3], times)


def rows(octets: npt.NDArray[np.uint8], offsets: Ints, width: int) -> npt.NDArray[np.uint8]:
    """``width`` bytes from each offset on, contiguous; where fewer are left, zeros."""
    if len(offsets) and int(offsets.max()) + width > len(octets):
        octets = np.concatenate([octets, np.zeros(width, dtype=np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(octets, width) if len(octets) >= width else octets[:0, None]
    return windows[offsets] if len(offsets) else np.zeros((0, width), dtype=np.uint8)


@dataclass(frozen=True)
class _Interface:
    linktype: int
    snaplen: int
    per_second: int  # units of time
    offset: int  # s


class _Pcapng:
    """Sections, each in an order of bytes of its own, of interfaces and packets. Other blocks are skipped."""

    def __init__(self, file: BinaryIO, source: str, notes: Notes) -> None:
        self.file, self.source, self.notes = file, source, notes
        self.order, self.at = "<", 0
        self.interfaces: list[_Interface] = []
        self.found: dict[int, list[tuple[int, int, int, int]]] = {}

    def packets(self, head: bytes) -> Iterator[Packets]:
        rest = head
        while piece := self.file.read(PIECE):
            data = rest + piece
            position, count, octets = 0, 0, np.frombuffer(data, dtype=np.uint8)
            while (size := self._whole(data, position)) > 0:
                count += self._block(data, position, size)
                position += size
                if count == MOST:
                    yield from self._take(octets)
                    count = 0
            yield from self._take(octets)
            rest = data[position:]
            self.at += position
        self.notes.cut_off |= bool(rest)

    def _whole(self, data: bytes, position: int) -> int:
        """The length of the block there; 0 where it is not whole."""
        if position + 12 > len(data):
            return 0
        if data[position : position + 4] == SECTION:
            order = _ORDERS.get(data[position + 8 : position + 12])
            if order is None:
                raise ParseError(f"byte {self.at + position}: a section of no known order of bytes", self.source)
            self.order = order
        (size,) = struct.unpack_from(f"{self.order}I", data, position + 4)
        if size < 12 or size % 4 or size > LONGEST + 4096:
            raise ParseError(f"byte {self.at + position}: a block of {size} bytes is none", self.source)
        return int(size) if position + size <= len(data) else 0

    def _block(self, data: bytes, position: int, size: int) -> int:
        """Note an interface or a packet; whether it was a packet."""
        (kind,) = struct.unpack_from(f"{self.order}I", data, position)
        if data[position : position + 4] == SECTION:
            self.interfaces = []
        elif kind == _INTERFACE and size >= 20:
            self._interface(data, position, size)
        elif kind == _ENHANCED and size >= 32:
            number, high, low, captured, length = struct.unpack_from(f"{self.order}5I", data, position + 8)
            return self._packet(number, position + 28, (captured, size - 32), length, high << 32 | low)
        elif kind == _OLD_PACKET and size >= 32:
            number, _, high, low, captured, length = struct.unpack_from(f"{self.order}HH4I", data, position + 8)
            return self._packet(number, position + 28, (captured, size - 32), length, high << 32 | low)
        elif kind == _SIMPLE and size >= 16 and self.interfaces:
            (length,) = struct.unpack_from(f"{self.order}I", data, position + 8)
            captured = min(length, self.interfaces[0].snaplen or length)
            self.notes.without_time += 1
            return self._packet(0, position + 12, (captured, size - 16), length, -1)
        return 0

    def _packet(self, number: int, begin: int, captured: tuple[int, int], length: int, time: int) -> int:
        if number >= len(self.interfaces):
            raise ParseError(f"a packet of interface {number}, which the file doesn't describe", self.source)
        if captured[0] > captured[1]:
            raise ParseError(f"a packet of {captured[0]} bytes in a block that is shorter", self.source)
        interface = self.interfaces[number]
        ns = 0 if time < 0 else time * 1_000_000_000 // interface.per_second + interface.offset * 1_000_000_000
        ns = ns if abs(ns) < 2**62 else 0
        self.found.setdefault(interface.linktype, []).append((begin, captured[0], length, ns))
        return 1

    def _interface(self, data: bytes, position: int, size: int) -> None:
        if len(self.interfaces) >= _INTERFACES:
            raise ParseError(f"more than {_INTERFACES} interfaces", self.source)
        linktype, _, snaplen = struct.unpack_from(f"{self.order}HHI", data, position + 8)
        per_second, offset = 1_000_000, 0
        at, end = position + 16, position + size - 4
        while at + 4 <= end:
            code, length = struct.unpack_from(f"{self.order}HH", data, at)
            value = data[at + 4 : min(at + 4 + length, end)]
            if code == _TSRESOL and len(value) == 1:
                exponent = value[0] & 0x7F
                per_second = 2 ** min(exponent, 62) if value[0] & 0x80 else 10 ** min(exponent, 18)
            elif code == _TSOFFSET and len(value) == 8:
                (offset,) = struct.unpack(f"{self.order}q", value)
            elif code == 0:
                break
            at += 4 + (length + 3) // 4 * 4
        self.interfaces.append(_Interface(linktype, snaplen, per_second, offset))

    def _take(self, octets: npt.NDArray[np.uint8]) -> Iterator[Packets]:
        """In the order of the file within each type of link."""
        for linktype, found in self.found.items():
            columns = np.array(found, dtype=np.int64).T
            yield Packets(linktype, octets, *columns)
        self.found = {}
