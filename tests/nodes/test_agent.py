"""The agent: its stream, honest or not, where its program is looked for, and that it ends with its controller."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.liar import EXIT, HELLO, OUTPUT, STARTED
from laboratory import in_a_loop, wait_until
from storlab.base import programs as binary
from storlab.base.errors import MissingTool, ProtocolError
from storlab.base.programs import agent_path
from storlab.nodes.agent.connection import Connection
from storlab.nodes.agent.protocol import MAX_FRAME, MAX_NOISE, PREFACE, Answer, Decoder, Frame, answer_of, encode
from storlab.nodes.agents import running_agent

from .test_node import alive

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=5), inner, max_size=4),
    max_leaves=8,
)
HEADERS = st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=8), JSON, max_size=5)
FRAMES = st.builds(Frame, HEADERS, st.binary(max_size=300))

NOISE = st.binary(max_size=2000).filter(lambda noise: PREFACE not in noise + PREFACE[:-1])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def decode(chunks: list[bytes]) -> list[Frame]:
    decoder = Decoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 10_000), max_size=40))
def test_whatever_way_the_stream_is_cut_the_frames_are_the_same(frames: list[Frame], places: list[int]) -> None:
    assert decode(cut(PREFACE + b"".join(map(encode, frames)), places)) == frames


@given(NOISE, FRAMES, st.lists(st.integers(0, 3000)))
def test_noise_before_the_preface_is_skipped(noise: bytes, frame: Frame, places: list[int]) -> None:
    assert decode(cut(noise + PREFACE + encode(frame), places)) == [frame]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_random_bytes_give_a_protocol_error_or_nothing_that_is_no_frame(data: bytes, places: list[int]) -> None:
    try:
        found = decode(cut(PREFACE + data, places))
    except ProtocolError:
        return
    assert all(isinstance(frame.header, dict) for frame in found)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (struct.pack(">IH", 1, 0), "impossible length"), (struct.pack(">IH", MAX_FRAME + 1, 2), "impossible length"),
        (struct.pack(">IH", 4, 3), "impossible length"), (struct.pack(">IH", 2, 0), "no JSON"),
        (struct.pack(">IH", 4, 2) + b"[]", "no JSON object"), (struct.pack(">IH", 5, 3) + b"{a}", "no JSON"),
        (struct.pack(">IH", 4, 2) + b'"\xff', "no JSON"),
    ],
)  # fmt: skip
def test_what_is_no_frame_is_said_to_be_none(frame: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode([PREFACE + frame])


def test_what_is_too_long_is_not_sent_half_a_frame_waited_for_in_silence_and_endless_noise_given_up() -> None:
    data = PREFACE + encode(Frame({"id": 1}, b"payload"))
    for length in range(len(data)):
        assert decode([data[:length]]) == []
    with pytest.raises(ProtocolError, match="too long for the agent"):
        encode(Frame({"id": 1}, bytes(MAX_FRAME)))
    with pytest.raises(ProtocolError, match="too long for the agent"):
        encode(Frame({"path": "x" * 70_000}))
    decoder = Decoder()
    with pytest.raises(ProtocolError, match="no agent answered within the first 65536 bytes"):
        for _ in range(MAX_NOISE // 1024 + 2):
            decoder.feed(b"login: " * 147)
    header = orjson.dumps({"id": 7, "op": "clock"})
    data = encode(Frame({"id": 7, "op": "clock"}, b"abc"))
    assert data == (2 + len(header) + 3).to_bytes(4, "big") + len(header).to_bytes(2, "big") + header + b"abc"


HONEST: list[dict[str, Any]] = [
    {**EXIT},
    {**HELLO},
    {**STARTED},
    {"event": "clock", "monotonic_ns": 1, "realtime_ns": 2},
    {"event": "sample", "monotonic_ns": 1, "realtime_ns": 2, "late_ns": 0, "sizes": [1, -1]},
    {"event": "error", "message": "no", "errno": "ENOENT"},
    {"event": "done"},
]
KEYS = sorted({key for event in HONEST for key in event} | {"id"})


def taken(frame: Frame) -> Answer | None:
    """The answer, or ``None`` where it is refused; anything else that is raised fails the test."""
    try:
        return answer_of(frame)
    except ProtocolError as error:
        assert str(error)
        return None


@pytest.mark.parametrize("event", HONEST, ids=lambda event: str(event["event"]))
def test_an_honest_event_is_taken_with_keys_that_later_agents_may_add(event: dict[str, Any]) -> None:
    answer = taken(Frame({"id": 3, **event, "later": {"x": [1]}}))
    assert answer is not None and answer.id == 3


@pytest.mark.parametrize("event", [{**OUTPUT}, {**OUTPUT, "event": "stderr"}, {"event": "data"}])
def test_output_and_contents_are_taken_and_refused_where_there_is_not_one_byte(event: dict[str, Any]) -> None:
    answer = taken(Frame({"id": 3, **event}, b"x"))
    assert answer is not None and answer.payload == b"x"
    with pytest.raises(ProtocolError, match=f"its agent sent '{event['event']}' without a byte"):
        answer_of(Frame({"id": 3, **event}))


@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.binary(max_size=10))
def test_any_header_is_an_event_or_refused(header: dict[str, Any], payload: bytes) -> None:
    taken(Frame(header, payload))


@given(st.sampled_from(HONEST), st.sampled_from(KEYS), JSON, st.binary(max_size=10))
def test_an_event_with_another_value_is_one_or_refused(
    event: dict[str, Any], key: str, value: Any, payload: bytes
) -> None:
    answer = taken(Frame({"id": 3, **event, key: value}, payload))
    assert answer is None or 0 <= answer.id <= 2**53


HONEST_FRAMES = st.sampled_from(HONEST).map(lambda event: Frame({"id": 3, **event}))


@given(st.lists(FRAMES | HONEST_FRAMES, min_size=1, max_size=3), st.integers(0), st.integers(1, 255))
def test_one_wrong_byte_gives_an_event_or_is_refused(sent: list[Frame], place: int, flip: int) -> None:
    data = bytearray(b"".join(map(encode, sent)))
    data[place % len(data)] ^= flip
    try:
        frames = Decoder().feed(PREFACE + bytes(data))
    except ProtocolError:
        return
    for frame in frames:
        taken(frame)


@in_a_loop
async def test_one_that_was_given_up_is_closed_at_once_though_nobody_reads_what_was_sent() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        connection = Connection("n", reader, writer)
        writer.write(bytes(64 * 1024 * 1024))  # more than the kernel takes
        connection.give_up("it hangs")
        async with asyncio.timeout(5):
            await connection.close()
        assert connection.lost == "node n: it hangs"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storlab as if it were in a folder of the test's own."""
    monkeypatch.delenv("STORLAB_AGENT", raising=False)
    monkeypatch.setattr(binary, "_PACKAGE", tmp_path / "src" / "storlab")
    monkeypatch.setattr(binary, "_CHECKOUT", tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.usefixtures("elsewhere")
def test_an_agent_that_the_user_names_comes_first_then_an_installed_one_then_that_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = program(tmp_path / "agent" / "target" / "x86_64-unknown-linux-gnu" / "release" / "storlab-agent")
    assert agent_path() == built
    installed = program(tmp_path / "src" / "storlab" / "bin" / "storlab-agent")
    assert agent_path() == installed
    monkeypatch.setenv("STORLAB_AGENT", str(program(tmp_path / "own" / "agent")))
    assert agent_path() == tmp_path / "own" / "agent"


@pytest.mark.usefixtures("elsewhere")
def test_without_one_a_checkout_is_told_to_build_it_and_others_to_install_storlab_again(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match=r"^the agent is missing: install Storlab again from its wheel for x86_64"):
        agent_path()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "Cargo.toml").touch()
    with pytest.raises(MissingTool, match=rf"^the agent is missing: run `make agent` in {tmp_path} "):
        agent_path()


def test_it_names_no_folder_in_which_it_was_built() -> None:
    """So the same sources give the same program, and guests that were saved with it serve every checkout."""
    assert bytes(Path(__file__).resolve().parents[2]) not in agent_path().read_bytes()


LEASE = 1.0
ARGV = [str(agent_path()), "serve"]


@in_a_loop
@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.needs("root"))])
async def test_an_agent_that_hears_nothing_for_its_lease_ends_with_all_that_it_started(stopped: bool) -> None:
    """One that stands still is ended by its guard."""
    async with running_agent("node", ARGV, lease=LEASE) as node:
        process = await node.start(["sleep", "60"])
        node.connection._renewing.cancel()  # as if the link were cut: the stream stands
        pids = node.pid, process.pid
        assert node.pid is not None and process.pid is not None
        if stopped:
            os.kill(node.pid, signal.SIGSTOP)
        assert await asyncio.to_thread(wait_until, lambda: not any(alive(each or 0) for each in pids), 30)


@in_a_loop
async def test_a_lease_that_is_renewed_outlasts_its_length_and_one_that_stands_still_is_given_up() -> None:
    async with running_agent("node", ARGV, lease=LEASE) as node:
        assert (await node.run(["sleep", str(3 * LEASE)])).ok and node.lost is None and node.pid is not None
        os.kill(node.pid, signal.SIGSTOP)
        await asyncio.wait_for(node.connection.gone.wait(), 30)
        assert "silent for 1 s" in str(node.lost)
