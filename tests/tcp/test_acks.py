"""Distributions of ACKs: out of the agent's bins."""

from __future__ import annotations

import pytest

from storlab.errors import ParseError
from storlab.tcp.acks import ack_histograms, ack_values
from storlab.tcp.agent_output import decode, decode_output
from storlab.tcp.follow import Follower
from storlab.tcp.totals import Acks, within

from .lines import printed, sample

BYTES = ["sent.bytes", 2816, 2944, 10]
GAP = ["received.gap", 1000, 1064, 3]


def test_those_of_the_window_are_added_up() -> None:
    lines = printed(
        sample(0.5, acks=[BYTES]), sample(1, acks=[BYTES]), sample(1.5, acks=[BYTES, GAP]), sample(2, acks=[BYTES])
    )
    acks = within(decode_output(lines), 1.0, 2.0).totals.acks
    assert acks == {("sent.bytes", 2816, 2944): 20, ("received.gap", 1000, 1064): 3}


def test_they_are_histograms_and_percentiles_in_base_units() -> None:
    acks = Acks({("sent.bytes", 2816, 2944): 99, ("sent.bytes", 0, 1): 1, ("received.gap", 1000, 1064): 3})
    named = {each.metric: each.value for each in ack_values(acks)}
    assert named["acks.sent.advance.p50"] == 2880
    assert named["acks.received.gap.p99"] == pytest.approx(1032e-9)
    assert "acks.sent.gap.p50" not in named, "there are none"
    assert ack_histograms(acks).rows() == [
        (None, "acks.sent.advance", 0.0, 1.0, 1),
        (None, "acks.sent.advance", 2816.0, 2944.0, 99),
        (None, "acks.received.gap", pytest.approx(1000e-9), pytest.approx(1064e-9), 3),
    ]


def test_whoever_follows_has_those_since_the_first_sample() -> None:
    seen = Follower()
    for line in printed(sample(1, acks=[BYTES]), sample(2, acks=[BYTES]), sample(3, acks=[BYTES])):
        seen.add(decode(line))
    assert seen.totals().acks == {("sent.bytes", 2816, 2944): 20}


@pytest.mark.parametrize(
    "row", [["sent.bytes", 5, 5, 1], ["sent.bytes", 5, 6, 0], ["x", 5, 6, 1], ["sent.gap", -1, 6, 1]]
)
def test_a_bin_that_is_none_is_refused(row: list[object]) -> None:
    with pytest.raises(ParseError):
        decode_output(printed(sample(1, acks=[row])))
