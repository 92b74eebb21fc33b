"""The queues of a card, as tc takes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.nodes.shaping.keys import Network
from storlab.nodes.shaping.queues import burst, packets_held, queue_commands


def network(**asked: Any) -> Network:
    return Network.model_validate(asked)


def words(**asked: Any) -> list[str]:
    return [
        " ".join(command).removeprefix("tc qdisc add dev storlab0 ") for command in queue_commands(network(**asked))
    ]


def test_a_network_as_it_is_has_no_queue() -> None:
    assert words() == words(delay=0, loss=0, bandwidth="unlimited", mtu=9000, offload=True) == []


def test_a_bandwidth_alone_needs_no_netem() -> None:
    assert words(bandwidth="80Mbit") == ["root handle 10: tbf rate 80000000bit burst 50000 limit 550000"]


def test_a_bandwidth_stands_below_a_delay() -> None:
    outer, inner = words(bandwidth="80Mbit", delay="10ms", jitter="1ms", loss="0.25%")
    assert outer == "root handle 1: netem limit 1000 delay 10000us 1000us loss random 0.2500000%".replace(
        "limit 1000", f"limit {packets_held(network(bandwidth='80Mbit', delay='10ms', jitter='1ms'))}"
    )
    assert inner == "parent 1:1 handle 10: tbf rate 80000000bit burst 50000 limit 650000"


def test_a_loss_without_a_delay_delays_nothing() -> None:
    assert words(loss="1%") == ["root handle 1: netem limit 1000 loss random 1.0000000%"]


def test_netem_holds_more_packets_than_its_own_limit_where_more_are_on_their_way() -> None:
    assert packets_held(network(delay="1ms", bandwidth="10Mbit")) == 1000
    assert packets_held(network(delay="50ms", bandwidth="1Gbit")) > 10**9 / 8 * 0.05 / 1500
    assert packets_held(network(delay="50ms")) > 40_000


@pytest.mark.parametrize("mtu", [576, 1500, 9000, 65521])
def test_a_token_bucket_lets_any_packet_through(mtu: int) -> None:
    assert burst(network(bandwidth="8kbit", mtu=mtu)) >= mtu + 14


@given(st.integers(8_000, 10**12), st.floats(0, 60), st.one_of(st.none(), st.integers(576, 65521)), st.floats(0, 0.999))
def test_a_limit_holds_what_is_on_its_way(bandwidth: int, delay: float, mtu: int | None, loss: float) -> None:
    asked = network(bandwidth=bandwidth, delay=delay, mtu=mtu, loss=loss)
    held = packets_held(asked)
    assert 1000 <= held <= 10**6
    assert held == 10**6 or held * (mtu or 1500) >= bandwidth / 8 * delay
    assert all(word for command in queue_commands(asked) for word in command)
