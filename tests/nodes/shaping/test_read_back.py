"""What a node says of its network, read and held against what was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.shaping.samples import CONNECTIONS, FEATURES, LINK, OWN_QUEUES, PING, QUEUES
from storlab.nodes.shaping.keys import Network
from storlab.nodes.shaping.read_back import (
    differences,
    parse_connections,
    parse_features,
    parse_link,
    parse_ping,
    parse_queues,
)

GOT: dict[str, Any] = {
    "mtu": 9000,
    "offload": {"tso": False, "gso": False, "gro": False},
    "queues": [{"kind": "netem", "delay": 0.01, "jitter": 0, "loss": 0.005}, {"kind": "tbf", "bandwidth": 10**8}],
}


def test_queues_are_read_in_seconds_shares_and_bits() -> None:
    assert parse_queues(QUEUES) == [
        {"kind": "netem", "limit": 3000, "delay": 0.01, "jitter": 0.002, "loss": 0.005},
        {"kind": "tbf", "bandwidth": 100_000_000, "burst": 65525},
    ]


def test_a_cards_own_queue_is_none_of_ours() -> None:
    assert parse_queues(OWN_QUEUES) == []


def test_a_card_tells_its_mtu_and_what_it_offloads() -> None:
    assert parse_link(LINK) == 9000
    assert parse_features(FEATURES) == {"tso": True, "gso": False, "gro": True}


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"mtu": true}]', '[{"mtu": 12}]', f'[{{"mtu": {10**30}}}]'])
def test_no_mtu_that_cannot_be_is_believed(text: str) -> None:
    with pytest.raises(ValueError, match="ip "):
        parse_link(text)


def test_round_trips_are_those_that_came_back() -> None:
    assert parse_ping(PING) == pytest.approx({"min": 0.0212, "median": 0.0276})
    assert parse_ping("4 packets transmitted, 0 received") == {}


def test_segments_are_told_for_each_peer() -> None:
    assert parse_connections(CONNECTIONS) == {
        "10.213.0.2": {"mss": [1448, 8948], "path_mtu": [1500, 9000]},
        "10.213.0.9": {"mss": [536], "path_mtu": [576]},
    }


def test_what_was_asked_for_and_is_there_makes_no_difference() -> None:
    asked = Network.model_validate(
        {"mtu": 9000, "offload": False, "delay": "10ms", "loss": "0.5%", "bandwidth": "100Mbit"}
    )
    assert [*differences(asked, GOT)] == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mtu": 1500}, "mtu should be 1500, but is 9000"),
        ({"offload": True, "bandwidth": "100Mbit", "delay": 0.01, "loss": 0.005}, "tso should be on, but is off"),
        ({"delay": "20ms", "loss": "0.5%", "bandwidth": "100Mbit"}, "delay should be 0.02, but is 0.01"),
        ({"delay": "10ms", "loss": 0, "bandwidth": "100Mbit"}, "loss should be 0, but is 0.005"),
        ({"delay": "10ms", "loss": "0.5%"}, "bandwidth should be 0, but is 1e+08"),
    ],
)
def test_each_difference_is_named_with_both_values(asked: dict[str, Any], said: str) -> None:
    assert said in "; ".join(differences(Network.model_validate(asked), GOT))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), st.lists))
def test_any_json_is_read_or_refused(value: object) -> None:
    options = {"options": value, "kind": "netem", "mtu": value}
    for text in (json.dumps(value), json.dumps([options]), json.dumps([{"kind": "tbf", "options": {"rate": value}}])):
        for parse in (parse_queues, parse_link):
            try:
                parse(text)
            except ValueError as error:
                assert str(error)
