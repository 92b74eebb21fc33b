"""The agent as a reader of captures: from files and pipes alike, without rights, and what happens where it fails."""

from __future__ import annotations

import subprocess
import time
from io import BytesIO
from pathlib import Path

import pytest

from formats.pcap.made import ethernet, pcap, read, received, sent
from formats.pcap.test_streams import reads
from storlab.errors import MissingTool, ParseError
from storlab.formats.pcap.agent_output import decode
from storlab.formats.pcap.capture import read_capture
from storlab.nodes.agent.binary import agent_path

CAPTURE = pcap([(packet.time, ethernet(packet)) for packet in reads()])
ONE_LINE = b"10:00:00.1 IP a.1 > b.2: Flags [.], ack 1, win 5, length 0\n"


def agent_that(path: Path, does: str) -> Path:
    program = path / "agent"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    return program


def test_a_file_says_what_its_bytes_say_wherever_it_was_read_to(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(CAPTURE)
    with path.open("rb") as file:
        file.read(100)
        file.seek(0)
        assert read_capture(file, "x", agent_path()) == read(CAPTURE)


class Trickle(BytesIO):
    """Gives fewer bytes than it is asked for, as pipes do."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, 7) if size is not None and size >= 0 else size)


def test_whatever_pieces_a_capture_comes_in_it_says_the_same() -> None:
    assert read_capture(Trickle(CAPTURE), "x", agent_path()) == read(CAPTURE)


def test_round_trips_are_known_however_far_apart_the_ends_of_one_are() -> None:
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
        while (said := " ".join(limits.read_text().split())).find("Max open files 3 3") < 0:
            time.sleep(0.001)
    assert f"Max address space {2**31} {2**31}" in said


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


def test_an_agent_that_knows_no_captures_is_to_be_built_again(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match=r"too old to read captures: .* run `make agent`"):
        read_capture(BytesIO(CAPTURE), "x", agent_that(tmp_path, "exit 2"))


@pytest.mark.parametrize("text", [b"", b"[]", b'{"packets": -1}', b"\xff", b"[" * 100_000])
def test_what_is_no_document_of_the_agents_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="x: cannot read what the agent says of it"):
        decode(text, "x")
