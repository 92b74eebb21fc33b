"""The decoder of frames: any cutting gives the same frames, any rubbish a ``ProtocolError`` or nothing."""

from __future__ import annotations

import itertools
import struct

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ProtocolError
from storlab.nodes.agent.protocol import MAX_FRAME, MAX_NOISE, PREFACE, Decoder, Frame, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=5), inner, max_size=4),
    max_leaves=8,
)
HEADERS = st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=8), JSON, max_size=5)
FRAMES = st.builds(Frame, HEADERS, st.binary(max_size=300))

NOISE = st.binary(max_size=2000).filter(lambda noise: PREFACE not in noise + PREFACE[:-1])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The same bytes in chunks."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def decode(chunks: list[bytes]) -> list[Frame]:
    decoder = Decoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 10_000), max_size=40))
def test_whatever_way_the_stream_is_cut_the_frames_are_the_same(frames: list[Frame], places: list[int]) -> None:
    assert decode(cut(PREFACE + b"".join(map(encode, frames)), places)) == frames


@given(
    st.binary(max_size=2000).filter(lambda noise: PREFACE not in noise + PREFACE[:-1]),
    FRAMES,
    st.lists(st.integers(0, 3000)),
)
def test_noise_before_the_preface_is_skipped(noise: bytes, frame: Frame, places: list[int]) -> None:
    assert decode(cut(noise + PREFACE + encode(frame), places)) == [frame]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_random_bytes_give_a_protocol_error_or_nothing_that_is_no_frame(data: bytes, places: list[int]) -> None:
    try:
        found = decode(cut(PREFACE + data, places))
    except ProtocolError:
        return
    assert all(isinstance(frame.header, dict) for frame in found)


@given(st.lists(FRAMES, min_size=1, max_size=3), st.integers(0), st.integers(1, 255))
def test_one_wrong_byte_never_does_more_than_end_the_stream(frames: list[Frame], place: int, flip: int) -> None:
    data = bytearray(b"".join(map(encode, frames)))
    data[place % len(data)] ^= flip
    try:
        decode([PREFACE + bytes(data)])
    except ProtocolError as error:
        assert str(error)


def test_endless_noise_is_given_up() -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError, match="no agent answered within the first 65536 bytes"):
        for _ in range(MAX_NOISE // 1024 + 2):
            decoder.feed(b"login: " * 147)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (struct.pack(">IH", 1, 0), "impossible length"),
        (struct.pack(">IH", MAX_FRAME + 1, 2), "impossible length"),
        (struct.pack(">IH", 4, 3), "impossible length"),
        (struct.pack(">IH", 2, 0), "no JSON"),
        (struct.pack(">IH", 4, 2) + b"[]", "no JSON object"),
        (struct.pack(">IH", 5, 3) + b"{a}", "no JSON"),
        (struct.pack(">IH", 4, 2) + b'"\xff', "no JSON"),
    ],
)
def test_what_is_no_frame_is_said_to_be_none(frame: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode([PREFACE + frame])


def test_half_a_frame_is_waited_for_in_silence() -> None:
    data = PREFACE + encode(Frame({"id": 1}, b"payload"))
    for length in range(len(data)):
        assert decode([data[:length]]) == []


def test_a_frame_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="too long for the agent"):
        encode(Frame({"id": 1}, bytes(MAX_FRAME)))
    with pytest.raises(ProtocolError, match="too long for the agent"):
        encode(Frame({"path": "x" * 70_000}))


def test_the_layout_is_that_of_the_documentation() -> None:
    header = orjson.dumps({"id": 7, "op": "clock"})
    data = encode(Frame({"id": 7, "op": "clock"}, b"abc"))
    assert data == (2 + len(header) + 3).to_bytes(4, "big") + len(header).to_bytes(2, "big") + header + b"abc"
