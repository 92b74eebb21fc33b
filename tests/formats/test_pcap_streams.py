"""What is counted of connections: holes, what came again, ACKs and their delays, in captures that are made up."""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

import pytest

from storlab.base.programs import agent_path
from storlab.tools.pcap.capture import Capture, estimate, read_capture

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


MSS = 1448


def reads(count: int = 10, start: int = 1000, wait: float = 0.0) -> list[Packet]:
    """Requests of 128 bytes with answers of two full segments, an ACK ``wait`` s after each of these."""
    packets = []
    for number in range(count):
        time, at, asked = 1.0 + number, start + number * 2 * MSS, 50 + number * 128
        packets += [
            sent(time, asked, 128, acked=at),
            received(time + 0.001, at, MSS, acked=asked + 128),
            received(time + 0.002, at + MSS, MSS, acked=asked + 128),
            sent(time + 0.002 + (wait or 0.0001), asked + 128, acked=at + 2 * MSS),
        ]
    return packets


def test_acks_and_what_each_acknowledges() -> None:
    (talk,) = of(reads()).talks
    assert (talk.sent.segments, talk.sent.acks, talk.sent.advancing, talk.sent.advanced) == (10, 10, 10, 20 * MSS)
    assert (talk.received.segments, talk.received.bytes, talk.received.acks) == (20, 20 * MSS, 0)
    assert (talk.mss_received, talk.estimated, talk.missing) == (MSS, True, 0)
    assert talk.sent.rtt_count == 9  # what the first ACK of all acknowledges is not known
    assert talk.sent.rtt_sum == pytest.approx(9 * 1e6) and talk.received.rtt_most == 100_000


@pytest.mark.parametrize("start", [1000, 2**32 - 5000, 2**31 - 3000])
def test_sequence_numbers_may_wrap_anywhere(start: int) -> None:
    (talk,) = of(reads(start=start)).talks
    assert (talk.missing, talk.received.bytes, talk.sent.advanced) == (0, 20 * MSS, 20 * MSS)
    assert talk.sent.rtt_count == 9


def test_what_the_capture_lacks_is_counted_in_bytes() -> None:
    packets = reads()
    lost = [packet for at, packet in enumerate(packets) if at not in (5, 6, 14)]
    (talk,) = of(lost).talks
    assert (talk.missing, talk.received.missing) == (3 * MSS, 3 * MSS)
    assert (talk.sent.retransmits, talk.received.retransmits) == (0, 0)
    (talk,) = of([packet for at, packet in enumerate(packets) if at not in (37, 38)]).talks
    assert talk.missing == 2 * MSS  # after all that was captured: the last ACK tells


def test_what_comes_again_is_a_retransmit_but_what_was_overtaken_keepalives_and_resets_are_not() -> None:
    packets = reads(3)
    again = [*packets, replace(packets[1], time=9 * 10**9)]
    (talk,) = of(again).talks
    assert (talk.received.retransmits, talk.received.bytes_again, talk.missing) == (1, MSS, 0)
    swapped = [*packets[:5], replace(packets[6], time=packets[5].time), packets[5], packets[7]]
    (talk,) = of(swapped).talks
    assert (talk.received.retransmits, talk.received.overtaken, talk.missing) == (0, 1, 0)
    late = [*packets[:5], packets[6], replace(packets[5], time=packets[5].time + 10**9)]
    (talk,) = of(late).talks
    assert (talk.received.retransmits, talk.received.overtaken, talk.missing) == (1, 0, 0)
    alive = sent(20.0, 50 + 1280 - 1, 1, acked=1000 + 20 * MSS)
    reset = sent(21.0, 3_000_000_000, flags=RST)
    (talk,) = of([*reads(), alive, reset]).talks
    assert (talk.sent.retransmits, talk.missing, talk.sent.closed) == (0, 0, True)


@pytest.mark.parametrize(("wait", "delayed"), [(0.0001, 0), (0.040, 10), (0.2, 10), (0.5, 0)])
def test_acks_that_a_timer_sent_are_told_by_their_delay(wait: float, delayed: int) -> None:
    (talk,) = of(reads(wait=wait)).talks
    assert talk.sent.delayed == delayed and talk.sent.delayed_ns == pytest.approx(delayed * wait * 1e9)
    assert talk.received.delayed == 0


def test_a_handshake_says_who_opened_it_and_the_largest_segment() -> None:
    option = b"\2\4\x05\xb4" + STAMPS
    opened = [
        sent(0.1, 49, flags=SYN, options=option),
        received(0.2, 999, acked=50, flags=SYN | ACK, options=b"\2\4\x23\x00" + STAMPS),
        sent(0.3, 50, acked=1000, options=STAMPS),
    ]
    turned = [replace(packet, source=_as(packet.source), target=_as(packet.target)) for packet in opened]
    for packets, name in ((opened, "10.0.0.1:700 > 10.0.0.2:2049"), (turned, "10.0.0.2:2049 > 10.0.0.1:700")):
        (talk,) = of(packets).talks
        assert (talk.name, talk.mss_sent, talk.mss_received, talk.estimated) == (name, 1448, 1448, False)


def _as(end: tuple[str, int]) -> tuple[str, int]:
    return SERVER if end == CLIENT else CLIENT


def test_ports_that_are_used_again_are_another_connection() -> None:
    one = [sent(0.5, 49, flags=SYN), *reads(2), sent(5.0, 50 + 256, flags=FIN | ACK)]
    two = [sent(10.0, 900_000, flags=SYN), sent(11.0, 900_001, 500, flags=ACK, acked=5)]
    talks = of([*one, *two]).talks
    assert ([talk.sent.bytes for talk in talks], [talk.missing for talk in talks]) == ([256, 500], [0, 0])
    again = of([sent(0.5, 49, flags=SYN), sent(1.5, 49, flags=SYN), *reads(1)])
    assert len(again.talks) == 1


def test_windows_of_0_and_blocks_of_sack_are_counted() -> None:
    block = b"\1\1\5\x0a" + (20000).to_bytes(4, "big") + (21000).to_bytes(4, "big")
    below = b"\1\1\5\x0a" + (500).to_bytes(4, "big") + (900).to_bytes(4, "big")
    packets = [
        *reads(2),
        sent(5.0, 306, acked=1000 + 4 * MSS, window=0),
        sent(6.0, 306, acked=1000 + 4 * MSS, options=STAMPS + block),
        sent(7.0, 306, acked=1000 + 4 * MSS, options=below),
    ]
    (talk,) = of(packets).talks
    assert (talk.sent.zero_windows, talk.sent.sacks, talk.sent.dsacks) == (1, 2, 1)


@pytest.mark.parametrize(
    ("lengths", "mss"),
    [
        ({4194: 11, 2796: 27, 188: 1}, 1398), ({1448: 900, 1080: 300, 2896: 500}, 1448), ({65160: 40, 2896: 3}, 1448),
        ({8948: 100, 17896: 50}, 8948), ({65483: 20}, 65483), ({128: 1000}, 0), ({}, 0),
    ],
)  # fmt: skip
def test_without_a_handshake_the_mss_is_what_lengths_are_multiples_of(lengths: dict[int, int], mss: int) -> None:
    assert estimate(Counter(lengths)) == mss
