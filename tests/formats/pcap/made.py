"""Captures that are made up, byte by byte: segments, links around them, and the files that hold both."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from storlab.formats.pcap.capture import Capture, read_capture
from storlab.nodes.agent.binary import agent_path

CLIENT, SERVER = ("10.0.0.1", 700), ("10.0.0.2", 2049)
FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16
STAMPS = b"\1\1\x08\x0a" + bytes(8)
SECOND = 10**9


@dataclass(frozen=True)
class Packet:
    """``time`` in ns; ``source`` and ``target`` as CLIENT."""

    time: int
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acked: int = 0
    data: int = 0
    flags: int = ACK
    window: int = 500
    options: bytes = b""

    def tcp(self) -> bytes:
        options = self.options + bytes(-len(self.options) % 4)
        head = struct.pack(
            ">HHIIBBHHH",
            self.source[1], self.target[1], self.sequence % 2**32, self.acked % 2**32,
            (20 + len(options)) // 4 << 4, self.flags, self.window, 0, 0,
        )  # fmt: skip
        return head + options + bytes(self.data)

    def internet(self, extensions: bytes = b"") -> bytes:
        """``extensions``: of IPv6, each begins with what comes next."""
        tcp, source, target = self.tcp(), ip_address(self.source[0]), ip_address(self.target[0])
        if source.version == 4:
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0)
            return head + source.packed + target.packed + tcp
        first = 0 if extensions else 6
        head = struct.pack(">IHBB", 6 << 28, len(extensions) + len(tcp), first, 64)
        return head + source.packed + target.packed + extensions + tcp


def sent(time: float, sequence: int, data: int = 0, acked: int = 0, **keys: object) -> Packet:
    """From the client; ``time`` in s."""
    return Packet(round(time * SECOND), CLIENT, SERVER, sequence, acked, data, **keys)  # type: ignore[arg-type]


def received(time: float, sequence: int, data: int = 0, acked: int = 0, **keys: object) -> Packet:
    """By the client."""
    return Packet(round(time * SECOND), SERVER, CLIENT, sequence, acked, data, **keys)  # type: ignore[arg-type]


def ethernet(packet: Packet) -> bytes:
    kind = 0x0800 if "." in packet.source[0] else 0x86DD
    return bytes(12) + struct.pack(">H", kind) + packet.internet()


def pcap(frames: Iterable[tuple[int, bytes]], linktype: int = 1, snap: int = 65535, magic: bytes = b"") -> bytes:
    """Frames with their times in ns. ``magic``: as the file begins, by default µs with the least byte first."""
    magic = magic or b"\xd4\xc3\xb2\xa1"
    order = "<" if magic[0] in (0xD4, 0x4D) else ">"
    unit = 1 if magic in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 1000
    out = magic + struct.pack(f"{order}HHiIII", 2, 4, 0, 0, snap, linktype)
    for time, frame in frames:
        held = frame[:snap]
        out += struct.pack(f"{order}4I", time // SECOND, time % SECOND // unit, len(held), len(frame)) + held
    return out


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(linktype: int = 1, options: bytes = b"", order: str = "<", snap: int = 0) -> bytes:
    return block(1, struct.pack(f"{order}HHI", linktype, 0, snap) + options, order)


def enhanced(number: int, ticks: int, frame: bytes, order: str = "<") -> bytes:
    head = struct.pack(f"{order}5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame, order)


def of(packets: Sequence[Packet]) -> Capture:
    """As read from a pcap with times in ns."""
    frames = [(packet.time, ethernet(packet)) for packet in packets]
    return read(pcap(frames, magic=b"\x4d\x3c\xb2\xa1"))


def read(data: bytes) -> Capture:
    return read_capture(io.BytesIO(data), "x", agent_path())
