"""What a study may ask of its network and of TCP, the queues that this takes, and what a node says of them."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laboratory.samples import sample
from storlab.nodes.network import CARD, RunNetwork
from storlab.nodes.shaping.keys import Network, Tcp, parse_bandwidth, parse_loss
from storlab.nodes.shaping.queues import (
    burst,
    differences,
    packets_held,
    parse_connections,
    parse_features,
    parse_link,
    parse_ping,
    parse_queues,
    queue_commands,
)

QUEUES = sample(__file__, "golden/tc-qdisc.json")
OWN_QUEUES = '[{"kind":"fq_codel","handle":"0:","root":true,"refcnt":2,"options":{"limit":10240,"flows":1024}}]'
LINK = sample(__file__, "golden/ip-link.json")
FEATURES = sample(__file__, "golden/ethtool-features.txt")
PING = sample(__file__, "golden/ping.txt")
CONNECTIONS = sample(__file__, "golden/ss.txt")


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100Mbit", 10**8), ("1Gbit/s", 10**9), ("64 kbps", 64_000), (9600, 9600), ("2.5gbit", 2_500_000_000),
        ("unlimited", None),
    ],
)  # fmt: skip
def test_bandwidths_are_in_bits_and_powers_of_1000(text: object, bits: int | None) -> None:
    assert parse_bandwidth(text) == bits


@pytest.mark.parametrize("text", ["fast", "1kbit", "2000Gbit", True, -1, "100MB/s", "", [], 1.5])
def test_what_is_no_bandwidth_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="bit"):
        parse_bandwidth(text)


@given(st.text() | st.integers() | st.floats() | st.booleans() | st.none())
def test_any_bandwidth_and_loss_is_understood_or_refused(value: object) -> None:
    for parse in (parse_bandwidth, parse_loss):
        try:
            found = parse(value)
        except ValueError as error:
            assert str(error)
        else:
            assert found is None or 0 <= found <= 10**12


@pytest.mark.parametrize(("text", "share"), [("0.1%", 0.001), (0, 0.0), ("0%", 0.0), ("0.00 %", 0.0), (0.02, 0.02)])
def test_losses_are_shares_and_may_be_none(text: object, share: float) -> None:
    assert parse_loss(text) == pytest.approx(share)


def test_what_is_not_asked_for_is_not_needed_and_where_packets_get_lost_cards_send_packets() -> None:
    for asked, queues, programs in (
        ({}, (), ()),
        ({"bandwidth": "1Gbit"}, ("tbf",), ("ip", "tc")),
        ({"delay": "1ms", "bandwidth": "1Gbit"}, ("netem", "tbf"), ("ip", "tc")),
        ({"delay": 0, "loss": 0, "bandwidth": "unlimited"}, (), ("ip", "ethtool")),
        ({"offload": True}, (), ("ip", "ethtool")),
    ):
        needs = network(**asked).needs()
        assert (needs.queues, needs.programs) == (queues, programs)
    assert network().segmentation is None and network(loss="1%", offload=True).segmentation is True
    assert network(loss=0).segmentation is network(loss="1%").segmentation is False
    assert "64 KB" in "".join(network(loss="1%", offload=True).cautions())
    assert not [*network(loss=0, offload=True).cautions()]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"jitter": "1ms"}, "write delay, too"), ({"delay": "1ms", "jitter": "2ms"}, "no packet comes early"),
        ({"delay": "2m"}, "no network takes longer"), ({"mtu": 100}, "576"), ({"mtu": "1500"}, "integer"),
        ({"offload": 1}, "bool"), ({"latency": "1ms"}, "extra"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Network.model_validate(asked)


def test_settings_of_tcp_go_by_the_kernels_names_and_fack_is_said_to_be_gone() -> None:
    tcp = Tcp.model_validate({"sack": False, "recovery": 0, "congestion_control": "reno", "receive_buffer": "6M"})
    assert tcp.sysctls() == {"sack": "0", "recovery": "0", "congestion_control": "reno", "rmem": str(6 * 2**20)}
    assert Tcp().sysctls() == {}
    with pytest.raises(ValidationError, match=r"no FACK since 4\.15.*recovery"):
        Tcp.model_validate({"fack": False})
    for name in ("../x", "Cubic", "a b", "", "x" * 16):
        with pytest.raises(ValidationError):
            Tcp.model_validate({"congestion_control": name})


def network(**asked: Any) -> Network:
    return Network.model_validate(asked)


def words(**asked: Any) -> list[str]:
    commands = (" ".join(each) for each in queue_commands(network(**asked), CARD))
    return [each.removeprefix("tc qdisc add dev storlab0 ") for each in commands]


def test_a_network_as_it_is_has_no_queue_a_bandwidth_alone_no_netem_and_it_stands_below_a_delay() -> None:
    assert words() == words(delay=0, loss=0, bandwidth="unlimited", mtu=9000, offload=True) == []
    assert words(bandwidth="80Mbit") == ["root handle 10: tbf rate 80000000bit burst 50000 limit 550000"]
    outer, inner = words(bandwidth="80Mbit", delay="10ms", jitter="1ms", loss="0.25%")
    held = packets_held(network(bandwidth="80Mbit", delay="10ms", jitter="1ms"))
    assert outer == f"root handle 1: netem limit {held} delay 10000us 1000us loss random 0.2500000%"
    assert inner == "parent 1:1 handle 10: tbf rate 80000000bit burst 50000 limit 650000"
    assert words(loss="1%") == ["root handle 1: netem limit 1000 loss random 1.0000000%"]


def test_netem_holds_what_is_on_its_way_and_a_token_bucket_lets_any_packet_through() -> None:
    assert packets_held(network(delay="1ms", bandwidth="10Mbit")) == 1000
    assert packets_held(network(delay="50ms", bandwidth="1Gbit")) > 10**9 / 8 * 0.05 / 1500
    assert packets_held(network(delay="50ms")) > 40_000
    assert all(burst(network(bandwidth="8kbit", mtu=mtu)) >= mtu + 14 for mtu in (576, 1500, 9000, 65521))


@given(st.integers(8_000, 10**12), st.floats(0, 60), st.one_of(st.none(), st.integers(576, 65521)), st.floats(0, 0.999))
def test_a_limit_holds_what_is_on_its_way(bandwidth: int, delay: float, mtu: int | None, loss: float) -> None:
    asked = network(bandwidth=bandwidth, delay=delay, mtu=mtu, loss=loss)
    held = packets_held(asked)
    assert 1000 <= held <= 10**6
    assert held == 10**6 or held * (mtu or 1500) >= bandwidth / 8 * delay
    assert all(word for command in queue_commands(asked, CARD) for word in command)


GOT: dict[str, Any] = {
    "mtu": 9000,
    "offload": {"tso": False, "gso": False, "gro": False},
    "queues": [{"kind": "netem", "delay": 0.01, "jitter": 0, "loss": 0.005}, {"kind": "tbf", "bandwidth": 10**8}],
}


def test_what_is_read_back_is_in_base_units_and_each_difference_is_named_with_both_values() -> None:
    assert parse_queues(QUEUES) == [
        {"kind": "netem", "limit": 3000, "delay": 0.01, "jitter": 0.002, "loss": 0.005},
        {"kind": "tbf", "bandwidth": 100_000_000, "burst": 65525},
    ]
    assert parse_queues(OWN_QUEUES) == []
    assert (parse_link(LINK), parse_features(FEATURES)) == (9000, {"tso": True, "gso": False, "gro": True})
    assert parse_connections(CONNECTIONS) == {
        "10.213.0.2": {"mss": [1448, 8948], "path_mtu": [1500, 9000]},
        "10.213.0.9": {"mss": [536], "path_mtu": [576]},
    }
    assert parse_ping(PING) == pytest.approx({"min": 0.0212, "median": 0.0276})
    assert parse_ping("4 packets transmitted, 0 received") == {}
    asked = network(mtu=9000, offload=False, delay="10ms", loss="0.5%", bandwidth="100Mbit")
    assert [*differences(asked, GOT)] == []
    for other, said in (
        ({"mtu": 1500}, "mtu should be 1500, but is 9000"),
        ({"offload": True, "bandwidth": "100Mbit", "delay": 0.01, "loss": 0.005}, "tso should be on, but is off"),
        ({"delay": "20ms", "loss": "0.5%", "bandwidth": "100Mbit"}, "delay should be 0.02, but is 0.01"),
        ({"delay": "10ms", "loss": 0, "bandwidth": "100Mbit"}, "loss should be 0, but is 0.005"),
        ({"delay": "10ms", "loss": "0.5%"}, "bandwidth should be 0, but is 1e+08"),
    ):
        assert said in "; ".join(differences(network(**other), GOT))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"mtu": true}]', '[{"mtu": 12}]', f'[{{"mtu": {10**30}}}]'])
def test_no_mtu_that_cannot_be_is_believed(text: str) -> None:
    with pytest.raises(ValueError, match="ip "):
        parse_link(text)


def test_a_network_that_was_cut_short_in_the_making_is_made_again_from_the_start() -> None:
    commands: list[list[str]] = []

    async def run(words: list[str], *, check: bool = True) -> None:
        commands.append(words)
        if "address" in words and len(commands) < 5:
            raise asyncio.CancelledError

    network = RunNetwork("run", lambda: mock.Mock(run=run), lambda *names, **arguments: None)

    async def enter_twice() -> None:
        with pytest.raises(asyncio.CancelledError):
            await network.enter()
        await network.enter()
        await network.enter()

    asyncio.run(enter_twice())
    namespaces = [words[2] for words in commands if words[1] == "netns"]
    assert (namespaces, sum("bridge" in words for words in commands)) == (["add", "delete", "add"], 2)
