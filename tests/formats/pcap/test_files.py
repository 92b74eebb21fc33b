"""pcap and pcapng in all their forms, and the links in them, hold the same segments."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.pcap.made import (
    ACK,
    SECOND,
    Packet,
    block,
    enhanced,
    ethernet,
    interface,
    pcap,
    read,
    received,
    section,
    sent,
)
from storlab.errors import ParseError
from storlab.formats.pcap.capture import Capture

PACKETS = [
    sent(1.0, 100, 128),
    received(1.002, 5000, 1448, 228),
    received(1.003, 6448, 1448, 228),
    sent(1.004, 228, acked=7896),
]
FRAMES = [(packet.time, ethernet(packet)) for packet in PACKETS]
MAGICS = [b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d"]


def require_all(capture: Capture, name: str = "10.0.0.1:700 > 10.0.0.2:2049") -> None:
    (talk,) = capture.talks
    assert (talk.name, talk.sent.bytes, talk.received.bytes, talk.received.segments) == (name, 128, 2896, 2)
    assert (talk.sent.acks, talk.missing, talk.last - talk.first) == (1, 0, 4_000_000)


@pytest.mark.parametrize("magic", MAGICS)
def test_pcap_of_either_order_and_unit_of_time(magic: bytes) -> None:
    require_all(read(pcap(FRAMES, magic=magic)))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("options", "ticks"),
    [
        (b"", 10**6),
        (struct.pack("BBBB", 0, 0, 0, 0), 10**6),
        ("nano", 10**9),
        ("binary", 2**20),
    ],
)
def test_pcapng_of_either_order_and_any_resolution(order: str, options: bytes | str, ticks: int) -> None:
    value = {"nano": 9, "binary": 0x80 | 20}.get(str(options))
    text = struct.pack(f"{order}HHB3x", 9, 1, value) if value is not None else bytes(options)  # type: ignore[arg-type]
    blocks = [enhanced(0, round(time / SECOND * ticks), frame, order) for time, frame in FRAMES]
    capture = read(section(order) + interface(1, text, order) + block(5, bytes(12), order) + b"".join(blocks))
    (talk,) = capture.talks
    assert talk.last - talk.first == pytest.approx(4_000_000, abs=2000)
    assert talk.received.bytes == 2896


def test_sections_interfaces_and_simple_packets_follow_each_other() -> None:
    first = section() + interface(101) + interface(1)
    first += enhanced(1, 10**6, FRAMES[0][1]) + enhanced(0, 10**6 + 2000, PACKETS[1].internet())
    second = section(">") + interface(1, order=">")
    second += enhanced(0, 10**6 + 3000, FRAMES[2][1], ">") + enhanced(0, 10**6 + 4000, FRAMES[3][1], ">")
    require_all(read(first + second))
    simple = section() + interface(1)
    for _, frame in FRAMES:
        simple += block(3, struct.pack("<I", len(frame)) + frame)
    capture = read(simple)
    assert capture.talks[0].received.bytes == 2896
    assert capture.warnings == ("4 packets have no time: nothing that takes time is known of them",)


def cooked(packet: Packet) -> bytes:
    return struct.pack(">HHH8sH", 0, 1, 6, bytes(8), 0x0800) + packet.internet()


def cooked_2(packet: Packet) -> bytes:
    return struct.pack(">HHIHBB8s", 0x0800, 0, 1, 1, 0, 6, bytes(8)) + packet.internet()


def tagged(packet: Packet) -> bytes:
    return bytes(12) + struct.pack(">HHHHH", 0x88A8, 7, 0x8100, 8, 0x0800) + packet.internet()


@pytest.mark.parametrize(
    ("linktype", "frame"),
    [
        (0, lambda packet: struct.pack("<I", 2) + packet.internet()),
        (108, lambda packet: struct.pack(">I", 2) + packet.internet()),
        (101, Packet.internet),
        (12, Packet.internet),
        (228, Packet.internet),
        (113, cooked),
        (276, cooked_2),
        (1, tagged),
    ],
)
def test_each_type_of_link_carries_the_same(linktype: int, frame: object) -> None:
    assert callable(frame)
    require_all(read(pcap([(packet.time, frame(packet)) for packet in PACKETS], linktype)))


def test_ipv6_with_and_without_extensions() -> None:
    ends = {"10.0.0.1": ("fe80::1", 700), "10.0.0.2": ("fe80::2", 2049)}
    packets = [Packet(p.time, ends[p.source[0]], ends[p.target[0]], p.sequence, p.acked, p.data) for p in PACKETS]
    name = "[fe80::1]:700 > [fe80::2]:2049"
    require_all(read(pcap([(p.time, ethernet(p)) for p in packets])), name)
    more = struct.pack(">BB6x", 60, 0) + struct.pack(">BB14x", 6, 1)
    frames = [(p.time, p.internet(more)) for p in packets]
    require_all(read(pcap(frames, 101)), name)


def test_a_snapshot_length_takes_nothing_from_the_counts_but_headers_it_cuts_are_named() -> None:
    require_all(read(pcap(FRAMES, snap=96)))
    with_options = [(0, ethernet(sent(0, 1, 100, options=bytes([2, 4, 5, 180]))))]
    assert "1 packets were captured without all TCP options" in read(pcap(with_options, snap=54)).warnings[0]
    assert "without their TCP header" in read(pcap([*FRAMES, (0, FRAMES[0][1][:40])])).warnings[0]


def test_what_is_cut_off_at_the_end_is_said_and_the_rest_is_read() -> None:
    whole = pcap(FRAMES)
    cut = read(whole[:-10])
    assert cut.packets == 3
    assert "it is cut off within its last packet" in cut.warnings
    ng = section() + interface(1) + b"".join(enhanced(0, 1, frame) for _, frame in FRAMES)
    assert "it is cut off within its last packet" in read(ng[:-10]).warnings


def test_other_packets_are_counted_and_later_fragments_are_none_of_tcp() -> None:
    arp = bytes(12) + struct.pack(">H", 0x0806) + bytes(28)
    fragment = bytearray(FRAMES[1][1])
    fragment[20:22] = struct.pack(">H", 100)
    capture = read(pcap([*FRAMES, (0, arp), (0, bytes(fragment))]))
    assert "2 packets are not of TCP" in capture.warnings


def test_a_total_length_of_0_is_that_of_the_frame() -> None:
    big = bytearray(ethernet(received(1, 1, 60000)))
    big[16:18] = bytes(2)
    assert read(pcap([(0, bytes(big))], snap=96)).talks[0].received.bytes == 60000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is neither pcap"),
        (MAGICS[0] + bytes(8), "ends within its header"),
        (pcap([(0, bytes(100))], 147), "link type 147"),
        (pcap([])[:24] + struct.pack("<4I", 0, 0, 2**31, 2**31), "a packet of 2147483648 bytes is none"),
        (section()[:8] + bytes(20), "no known order of bytes"),
        (section() + struct.pack("<II", 6, 13) + bytes(8), "a block of 13 bytes is none"),
        (section() + enhanced(0, 0, b"x"), "interface 0, which the file doesn't describe"),
    ],
)
def test_what_is_no_capture_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read(data)


@given(st.binary(max_size=400), st.sampled_from([pcap([], 1), pcap([], 113), section() + interface(1)]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes, head: bytes) -> None:
    try:
        read(head + data)
        read(pcap([(0, data)]))
        read(section() + interface(276) + enhanced(0, 5, data))
    except ParseError as error:
        assert str(error).startswith("x")


def test_flags_of_the_header_are_those_of_the_segment() -> None:
    assert ACK == 16
    capture = read(pcap([(0, ethernet(sent(0, 1, flags=2))), (1, ethernet(received(0, 9, acked=2, flags=18)))]))
    assert capture.talks[0].name == "10.0.0.1:700 > 10.0.0.2:2049"
