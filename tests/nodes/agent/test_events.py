"""What an agent answers, read by types: an honest event is taken, anything else is a ``ProtocolError``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.liar import EXIT, HELLO, OUTPUT, STARTED
from nodes.agent.test_decoder import JSON
from storlab.errors import ProtocolError
from storlab.nodes.agent.events import Answer, answer_of
from storlab.nodes.agent.protocol import PREFACE, Decoder, Frame, encode

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
    assert answer is not None
    assert answer.id == 3


@pytest.mark.parametrize("event", [{**OUTPUT}, {**OUTPUT, "event": "stderr"}, {"event": "data"}])
def test_output_and_contents_are_taken_and_refused_where_there_is_not_one_byte(event: dict[str, Any]) -> None:
    answer = taken(Frame({"id": 3, **event}, b"x"))
    assert answer is not None
    assert answer.payload == b"x"
    with pytest.raises(ProtocolError, match=f"its agent sent '{event['event']}' without a byte"):
        answer_of(Frame({"id": 3, **event}))


@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.binary(max_size=10))
def test_any_header_is_an_event_or_refused(header: dict[str, Any], payload: bytes) -> None:
    taken(Frame(header, payload))


@given(st.sampled_from(HONEST), st.sampled_from(KEYS), JSON, st.binary(max_size=10))
def test_an_event_with_one_other_value_is_an_event_or_refused(
    event: dict[str, Any], key: str, value: Any, payload: bytes
) -> None:
    answer = taken(Frame({"id": 3, **event, key: value}, payload))
    assert answer is None or 0 <= answer.id <= 2**53


@given(st.lists(st.sampled_from(HONEST), min_size=1, max_size=3), st.integers(0), st.integers(1, 255))
def test_one_wrong_byte_gives_an_event_or_is_refused(events: list[dict[str, Any]], place: int, flip: int) -> None:
    data = bytearray(b"".join(encode(Frame({"id": 3, **event})) for event in events))
    data[place % len(data)] ^= flip
    try:
        frames = Decoder().feed(PREFACE + bytes(data))
    except ProtocolError:
        return
    for frame in frames:
        taken(frame)
