"""tcpdump's text, of old versions and new, says what the capture says that it was printed from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.pcap.made import read
from storlab.errors import ParseError
from storlab.formats.pcap.capture import Capture, Talk
from storlab.formats.pcap.text import PIECE

GOLDEN = Path(__file__).parents[2] / "importing/golden"
OLD, NEW = ((GOLDEN / f"pcap-tcpdump-{version}.txt").read_bytes() for version in (3, 4))


def counts(talk: Talk) -> list[object]:
    ways = ("packets", "segments", "bytes", "acks", "advancing", "advanced", "retransmits", "stamped", "closed")
    each = [getattr(way, name) for way in (talk.sent, talk.received) for name in ways]
    return [talk.name, talk.mss_sent, talk.mss_received, talk.missing, *each]


def test_a_published_excerpt_without_a_handshake_says_more_than_its_author_read_in_it() -> None:
    (talk,) = read(OLD).talks
    assert talk.name == "client:46340 > server:1025"
    assert (talk.received.segments, talk.sent.acks) == (13, 27)
    assert talk.sent.advances == {2796: 26}
    assert (talk.mss_received, talk.estimated) == (1398, True)
    assert talk.missing == 20_970
    assert talk.merged == (12, 35)


def test_prose_around_the_lines_is_passed_over() -> None:
    prose = b"What follows is strange.\n\n" + OLD + b"\nTime: 20:40:08 was late.\nserver.1 > us: hm\n"
    assert counts(read(prose).talks[0]) == counts(read(OLD).talks[0])


def test_relative_numbers_are_those_of_the_capture() -> None:
    (text,), (capture,) = read(NEW).talks, read((GOLDEN / "pcap-ethernet.pcap").read_bytes()).talks
    assert counts(text) == counts(capture)


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
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


def test_names_of_ports_and_machines_stay_names() -> None:
    line = b"10:00:00.000001 IP nfs-client.example.org.700 > 10.0.0.2.nfs: Flags [P.], seq 1:129, ack 1, length 128\n"
    (talk,) = read(line).talks
    assert talk.name == "nfs-client.example.org:700 > 10.0.0.2.nfs"


def test_lines_go_on_past_midnight() -> None:
    line = "{} IP a.700 > b.2049: Flags [P.], seq {}:{}, ack 1, win 5, length 128\n"
    text = line.format("23:59:59.900000", 1, 129) + line.format("00:00:00.100000", 129, 257)
    (talk,) = read(text.encode()).talks
    assert talk.last - talk.first == 200_000_000


def test_a_text_that_is_longer_than_a_piece_is_read_whole() -> None:
    line = "10:00:00.{:06} IP a.700 > b.2049: . {}:{}(10) ack 1 win 5\n"
    text = "".join(line.format(at % 10**6, at * 10, at * 10 + 10) for at in range(PIECE + 10))
    (talk,) = read(text.encode()).talks
    assert (talk.sent.segments, talk.missing) == (PIECE + 10, 0)


@given(
    st.lists(st.sampled_from([*OLD.decode().splitlines()[:3], *NEW.decode().splitlines()[:5]]), max_size=6),
    st.binary(max_size=80),
)
@settings(max_examples=200, deadline=None)
def test_any_lines_are_read_or_refused(lines: list[str], data: bytes) -> None:
    text = "\n".join(lines).encode()
    for each in (data + text, text[: len(data) * 5] + data + text, text + data):
        try:
            found = read(each)
        except ParseError as error:
            assert str(error).startswith("x")
        else:
            assert isinstance(found, Capture)


def test_numbers_beyond_any_width_do_no_harm() -> None:
    nines = "9" * 30
    line = (
        f"9999999999.999999999 IP a.{nines} > b.1: Flags [S.], seq {nines}:{nines}, ack {nines}, win {nines}, "
        f"options [mss {nines},sack 1 {{{nines}:1}}], length {nines}\n"
    )
    assert len(read(line.encode() * 2).talks) == 1


def test_numbers_of_more_digits_than_python_reads_do_no_harm() -> None:
    line = "10:00:00.1 IP a.1 > b.2: Flags [.], seq 1:11, ack {0}, win 5, options [sack 1 {{{0}:1}}], length 10\n"
    assert len(read(line.format("9" * 4500).encode()).talks) == 1
