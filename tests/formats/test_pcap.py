"""Captures, in files and as tcpdump's text: the same segments in every form, read by the agent, and as measurements."""

from __future__ import annotations

import struct
import subprocess
from io import BytesIO
from pathlib import Path

import pytest

from formats.test_pcap_streams import (
    SECOND,
    Packet,
    block,
    enhanced,
    ethernet,
    interface,
    pcap,
    read,
    reads,
    received,
    section,
    sent,
)
from laboratory import wait_until
from storlab.base.errors import MissingTool, ParseError
from storlab.base.programs import agent_path
from storlab.metrics import HISTOGRAMS, Specs
from storlab.tools.importer import Part
from storlab.tools.pcap.capture import Capture, Talk, decode, read_capture
from storlab.tools.pcap.importer import PcapImporter
from storlab.tools.pcap.text import PIECE

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


def test_pcap_of_either_order_and_unit_of_time() -> None:
    for magic in MAGICS:
        require_all(read(pcap(FRAMES, magic=magic)))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("options", "ticks"), [(b"", 10**6), (struct.pack("BBBB", 0, 0, 0, 0), 10**6), ("nano", 10**9), ("binary", 2**20)]
)
def test_pcapng_of_either_order_and_any_resolution(order: str, options: bytes | str, ticks: int) -> None:
    value = {"nano": 9, "binary": 0x80 | 20}.get(str(options))
    text = struct.pack(f"{order}HHB3x", 9, 1, value) if value is not None else bytes(options)  # type: ignore[arg-type]
    blocks = [enhanced(0, round(time / SECOND * ticks), frame, order) for time, frame in FRAMES]
    capture = read(section(order) + interface(1, text, order) + block(5, bytes(12), order) + b"".join(blocks))
    (talk,) = capture.talks
    assert talk.last - talk.first == pytest.approx(4_000_000, abs=2000) and talk.received.bytes == 2896


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


@pytest.mark.parametrize(
    ("linktype", "head"),
    [
        (0, struct.pack("<I", 2)),
        (108, struct.pack(">I", 2)),
        (101, b""),
        (12, b""),
        (228, b""),
        (113, struct.pack(">HHH8sH", 0, 1, 6, bytes(8), 0x0800)),  # cooked
        (276, struct.pack(">HHIHBB8s", 0x0800, 0, 1, 1, 0, 6, bytes(8))),
        (1, bytes(12) + struct.pack(">HHHHH", 0x88A8, 7, 0x8100, 8, 0x0800)),  # with tags
    ],
)
def test_each_type_of_link_carries_the_same(linktype: int, head: bytes) -> None:
    require_all(read(pcap([(packet.time, head + packet.internet()) for packet in PACKETS], linktype)))


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
    big = bytearray(ethernet(received(1, 1, 60000)))
    big[16:18] = bytes(2)
    assert read(pcap([(0, bytes(big))], snap=96)).talks[0].received.bytes == 60000


def test_what_is_cut_off_at_the_end_or_not_of_tcp_is_said_and_the_rest_is_read() -> None:
    whole = pcap(FRAMES)
    cut = read(whole[:-10])
    assert cut.packets == 3 and "it is cut off within its last packet" in cut.warnings
    ng = section() + interface(1) + b"".join(enhanced(0, 1, frame) for _, frame in FRAMES)
    assert "it is cut off within its last packet" in read(ng[:-10]).warnings
    arp = bytes(12) + struct.pack(">H", 0x0806) + bytes(28)
    fragment = bytearray(FRAMES[1][1])
    fragment[20:22] = struct.pack(">H", 100)
    capture = read(pcap([*FRAMES, (0, arp), (0, bytes(fragment))]))
    assert "2 packets are not of TCP" in capture.warnings
    capture = read(pcap([(0, ethernet(sent(0, 1, flags=2))), (1, ethernet(received(0, 9, acked=2, flags=18)))]))
    assert capture.talks[0].name == "10.0.0.1:700 > 10.0.0.2:2049"


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


CAPTURE = pcap([(packet.time, ethernet(packet)) for packet in reads()])
ONE_LINE = b"10:00:00.1 IP a.1 > b.2: Flags [.], ack 1, win 5, length 0\n"


def agent_that(path: Path, does: str) -> Path:
    program = path / "agent"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    return program


class Trickle(BytesIO):
    """Gives fewer bytes than it is asked for, as pipes do."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, 7) if size is not None and size >= 0 else size)


def test_whatever_pieces_a_capture_comes_in_it_says_the_same_however_far_apart_the_ends_of_a_round_trip_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(CAPTURE)
    with path.open("rb") as file:
        file.read(100)
        file.seek(0)
        assert read_capture(file, "x", agent_path()) == read(CAPTURE)
    assert read_capture(Trickle(CAPTURE), "x", agent_path()) == read(CAPTURE)
    between = [received(1.5, 1448 * at, 1448, acked=1) for at in range(1, 1000)]
    packets = [sent(1.0, 1, 100), received(1.1, 0, 1448, acked=1), *between, received(2.0, 1448 * 1000, acked=101)]
    (talk,) = read(pcap([(packet.time, ethernet(packet)) for packet in packets], snap=60)).talks
    assert (talk.sent.rtt_count, talk.sent.rtt_sum) == (1, 10**9)


def test_the_reader_can_open_nothing_and_has_little_memory() -> None:
    with subprocess.Popen([agent_path(), "pcap"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(CAPTURE[:100])
        process.stdin.flush()
        limits = Path(f"/proc/{process.pid}/limits")
        assert wait_until(lambda: "Max open files 3 3" in " ".join(limits.read_text().split()))
        assert f"Max address space {2**31} {2**31}" in " ".join(limits.read_text().split())


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("kill -KILL $$", "x: the agent that read it was ended by SIGKILL"),
        ("echo 'storlab-agent: is odd' >&2; exit 1", "x: is odd"),
        ("cat >/dev/null; echo '{}'", "x: cannot read what the agent says of it: Object missing required field"),
    ],
)
@pytest.mark.parametrize("data", [CAPTURE, ONE_LINE])
def test_an_agent_that_fails_is_an_error_of_that_file(data: bytes, does: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=message):
        read_capture(BytesIO(data), "x", agent_that(tmp_path, does))


def test_an_agent_that_is_too_old_or_missing_or_writes_no_document_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (b"", b"[]", b'{"packets": -1}', b"\xff", b"[" * 100_000):
        with pytest.raises(ParseError, match="x: cannot read what the agent says of it"):
            decode(text, "x")
    with pytest.raises(MissingTool, match=r"too old to read captures: .* run `make agent`"):
        read_capture(BytesIO(CAPTURE), "x", agent_that(tmp_path, "exit 2"))
    monkeypatch.setenv("STORLAB_AGENT", "/nowhere/agent")
    with pytest.raises(MissingTool, match="/nowhere/agent, which can't be executed; unset it or build that agent"):
        imported(GOLDEN / "pcap-ethernet.pcap")


GOLDEN = Path(__file__).parents[1] / "importing/golden"
OLD, NEW = ((GOLDEN / f"pcap-tcpdump-{version}.txt").read_bytes() for version in (3, 4))


def counts(talk: Talk) -> list[object]:
    ways = ("packets", "segments", "bytes", "acks", "advancing", "advanced", "retransmits", "stamped", "closed")
    each = [getattr(way, name) for way in (talk.sent, talk.received) for name in ways]
    return [talk.name, talk.mss_sent, talk.mss_received, talk.missing, *each]


def test_an_excerpt_without_a_handshake_says_more_than_its_author_read_in_it_and_prose_is_passed_over() -> None:
    (talk,) = read(OLD).talks
    assert (talk.name, (talk.received.segments, talk.sent.acks)) == ("client:46340 > server:1025", (13, 27))
    assert (talk.sent.advances, (talk.mss_received, talk.estimated), talk.missing) == ({2796: 26}, (1398, True), 20_970)
    assert talk.merged == (12, 35)
    prose = b"What follows is strange.\n\n" + OLD + b"\nTime: 20:40:08 was late.\nserver.1 > us: hm\n"
    assert counts(read(prose).talks[0]) == counts(read(OLD).talks[0])
    (text,), (capture,) = read(NEW).talks, read((GOLDEN / "pcap-ethernet.pcap").read_bytes()).talks
    assert counts(text) == counts(capture)


@pytest.mark.needs("tcpdump")
@pytest.mark.parametrize(
    "options", [[], ["-S"], ["-tttt"], ["-tt"], ["-v"], ["-e"], ["-#"]], ids=lambda each: "".join(each)
)
@pytest.mark.parametrize("name", ["pcap-ethernet.pcap", "pcap-any.pcap", "pcap-ethernet.pcapng"])
def test_what_tcpdump_prints_here_is_read_with_any_of_its_options(options: list[str], name: str) -> None:
    argv = ["tcpdump", "-nn", *options, "-r", str(GOLDEN / name)]
    printed = subprocess.run(argv, capture_output=True, check=True).stdout
    (text,), (capture,) = read(printed).talks, read((GOLDEN / name).read_bytes()).talks
    assert counts(text) == counts(capture)
    assert text.last - text.first == pytest.approx(capture.last - capture.first, abs=1000)


def test_names_of_ports_stay_names_and_lines_go_on_past_midnight_and_past_a_piece() -> None:
    named = b"10:00:00.000001 IP nfs-client.example.org.700 > 10.0.0.2.nfs: Flags [P.], seq 1:129, ack 1, length 128\n"
    (talk,) = read(named).talks
    assert talk.name == "nfs-client.example.org:700 > 10.0.0.2.nfs"
    line = "{} IP a.700 > b.2049: Flags [P.], seq {}:{}, ack 1, win 5, length 128\n"
    text = line.format("23:59:59.900000", 1, 129) + line.format("00:00:00.100000", 129, 257)
    (talk,) = read(text.encode()).talks
    assert talk.last - talk.first == 200_000_000
    line = "10:00:00.{:06} IP a.700 > b.2049: . {}:{}(10) ack 1 win 5\n"
    text = "".join(line.format(at % 10**6, at * 10, at * 10 + 10) for at in range(PIECE + 10))
    (talk,) = read(text.encode()).talks
    assert (talk.sent.segments, talk.missing) == (PIECE + 10, 0)


def test_numbers_beyond_any_width_and_of_more_digits_than_python_reads_do_no_harm() -> None:
    line = (
        "9999999999.999999999 IP a.{0} > b.1: Flags [S.], seq {0}:{0}, ack {0}, win {0}, "
        "options [mss {0},sack 1 {{{0}:1}}], length {0}\n"
    )
    assert len(read(line.format("9" * 30).encode() * 2).talks) == 1
    line = "10:00:00.1 IP a.1 > b.2: Flags [.], seq 1:11, ack {0}, win 5, options [sack 1 {{{0}:1}}], length 10\n"
    assert len(read(line.format("9" * 4500).encode()).talks) == 1


def imported(path: Path) -> Part:
    with path.open("rb") as file:
        (part,) = PcapImporter().read_stream(file, path.name, {})
    return part


def test_metrics_are_in_base_units_and_of_jobs_where_there_are_several_connections() -> None:
    measured = imported(GOLDEN / "pcap-ethernet.pcap").measured
    found = measured.totals()
    assert (found["bytes.sent"], found["bytes.received"], found["segments.received"]) == (768, 120_000, 6)
    assert (found["acks.sent"], found["mss"], found["connections"]) == (4, 65_483, 1)
    assert found["rtt"] == pytest.approx(100e-6 / 6) and 1e-6 < found["acks.sent.gap.p50"] < 0.1
    assert measured.metrics["job"].null_count() == measured.metrics.height
    specs = Specs(measured.declared)
    assert {specs.find(name).quantity for name in measured.histograms["metric"].unique()} <= set(HISTOGRAMS)


def test_delays_and_full_windows_are_said_in_sentences_and_a_capture_without_tcp_is_refused() -> None:
    window = sent(20.0, 50 + 1280, acked=1000 + 20 * 1448, window=0)
    frames = [(packet.time, ethernet(packet)) for packet in [*reads(wait=0.04), window]]
    (part,) = PcapImporter().read(pcap(frames), "x", {})
    said = " ".join(part.measured.warnings)
    assert "10 delayed ACKs, 35 to 300 ms after the newest data: 0.40 s of waiting in all" in said
    assert "a receiver said 1 times that it has no room (window 0)" in said
    with pytest.raises(ParseError, match="x: has no packet of TCP"):
        PcapImporter().read(b"\xd4\xc3\xb2\xa1" + bytes(20), "x", {})


@pytest.mark.needs("root", "tcpdump", "ethtool")
def test_counts_are_those_of_the_kernel_to_the_segment(tmp_path: Path) -> None:
    capture = tmp_path / "x.pcap"
    argv = ["unshare", "-n", "bash", str(Path(__file__).with_name("pcap_transfer.sh")), str(capture)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    data_out, data_in, all_out, _ = map(int, ended.stdout.split())
    found = imported(capture).measured.totals()
    assert (found["missing.sent"], found["missing.received"]) == (0, 0)
    assert (found["segments.sent"], found["segments.received"]) == (data_out, data_in)
    assert found["acks.sent"] == all_out - data_out - 1 + 1  # without its SYN; and it acknowledged the last FIN
    assert (found["mss"], found["bytes.received"]) == (1448, 20 * 131_072)
