"""What ping says of another node, line by line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storlab.layers.share.watch import Answers

PINGING = """PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.
64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.045 ms
64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=0.041 ms
no answer yet for icmp_seq=3
64 bytes from 10.0.0.1: icmp_seq=4 ttl=64 time=0.041 ms
"""


def said(*lines: str, limit: float = 5.0) -> list[str | None]:
    answers = Answers("node server", "10.0.0.1", limit)
    return [answers.take(f"{line}\n") for line in lines]


def answer(number: int) -> str:
    return f"64 bytes from 10.0.0.1: icmp_seq={number} ttl=64 time=0.045 ms"


def test_a_node_that_answers_is_up_and_one_lost_request_is_no_loss() -> None:
    answers = Answers("node server", "10.0.0.1", 5.0)
    assert not answers.up
    assert answers.take(PINGING) is None
    assert answers.up


def test_a_node_that_is_silent_for_its_limit_is_lost() -> None:
    silent = [f"no answer yet for icmp_seq={number}" for number in range(3, 13)]
    found = said(answer(1), answer(2), *silent)
    assert found[-1] == "no answer from node server (10.0.0.1) for 5.0 s"
    assert not any(found[:-1])


def test_answers_that_come_again_say_how_long_the_node_was_unreachable() -> None:
    assert said(answer(1), answer(5)) == [None, None]
    assert said(answer(1), answer(9)) == [None, "node server (10.0.0.1) was unreachable for 4.0 s"]
    assert said(answer(9)) == [None]  # before the first nothing is known


def test_a_line_that_comes_in_pieces_is_read_once_it_is_whole() -> None:
    answers = Answers("node server", "10.0.0.1", 1.0)
    for piece in ("no answer yet for icmp", "_seq=2", "0 and so on"):
        assert answers.take(piece) is None
    assert answers.take("\n") == "no answer from node server (10.0.0.1) for 10.0 s"


def test_the_last_line_says_why_it_can_not_be_reached() -> None:
    answers = Answers("node server", "10.0.0.1", 5.0)
    answers.take("ping: connect: Network is unreachable\n")
    assert answers.unreachable() == "node server (10.0.0.1) can't be reached: ping: connect: Network is unreachable"


@given(st.lists(st.text()))
def test_nothing_that_is_printed_is_an_exception_or_fills_the_memory(pieces: list[str]) -> None:
    answers = Answers("node server", "10.0.0.1", 5.0)
    for piece in [*pieces, "x" * 100_000]:
        answers.take(piece)
    assert len(answers._begun) <= 4096
