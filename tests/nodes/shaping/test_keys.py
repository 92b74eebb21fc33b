"""What a study may ask of its network and of TCP, and how it is refused otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storlab.nodes.shaping.keys import Network, Tcp, parse_bandwidth, parse_loss


@pytest.mark.parametrize(
    ("text", "bits"),
    [("100Mbit", 10**8), ("1Gbit/s", 10**9), ("64 kbps", 64_000), (9600, 9600), ("2.5gbit", 2_500_000_000)],
)
def test_bandwidths_are_in_bits_and_powers_of_1000(text: object, bits: int) -> None:
    assert parse_bandwidth(text) == bits


def test_unlimited_is_a_level_like_others() -> None:
    assert parse_bandwidth("unlimited") is None


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


@pytest.mark.parametrize(
    ("asked", "offload"),
    [({}, None), ({"loss": 0}, False), ({"loss": "1%"}, False), ({"loss": "1%", "offload": True}, True)],
)
def test_where_packets_get_lost_cards_send_packets(asked: dict[str, Any], offload: bool | None) -> None:
    assert Network.model_validate(asked).segmentation is offload


def test_losing_64_kb_at_once_is_said() -> None:
    assert "64 KB" in "".join(Network.model_validate({"loss": "1%", "offload": True}).cautions())
    assert not [*Network.model_validate({"loss": 0, "offload": True}).cautions()]


@pytest.mark.parametrize(
    ("asked", "queues", "programs"),
    [
        ({}, (), ("ip",)),
        ({"bandwidth": "1Gbit"}, ("tbf",), ("ip", "tc")),
        ({"delay": "1ms", "bandwidth": "1Gbit"}, ("netem", "tbf"), ("ip", "tc")),
        ({"delay": 0, "loss": 0, "bandwidth": "unlimited"}, (), ("ip", "ethtool")),
        ({"offload": True}, (), ("ip", "ethtool")),
    ],
)
def test_what_is_not_asked_for_is_not_needed(asked: dict[str, Any], queues: tuple[str, ...], programs: object) -> None:
    needs = Network.model_validate(asked).needs()
    assert (needs.queues, needs.programs) == (queues, programs)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"jitter": "1ms"}, "write delay, too"),
        ({"delay": "1ms", "jitter": "2ms"}, "no packet comes early"),
        ({"delay": "2m"}, "no network takes longer"),
        ({"mtu": 100}, "576"),
        ({"mtu": "1500"}, "integer"),
        ({"offload": 1}, "bool"),
        ({"latency": "1ms"}, "extra"),
    ],
)
def test_a_network_that_cannot_be_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Network.model_validate(asked)


def test_settings_of_tcp_go_by_the_kernels_names() -> None:
    tcp = Tcp.model_validate({"sack": False, "recovery": 0, "congestion_control": "reno", "receive_buffer": "6M"})
    assert tcp.sysctls() == {"sack": "0", "recovery": "0", "congestion_control": "reno", "rmem": str(6 * 2**20)}
    assert Tcp().sysctls() == {}


def test_fack_is_said_to_be_gone_and_what_took_its_place() -> None:
    with pytest.raises(ValidationError, match=r"no FACK since 4\.15.*recovery"):
        Tcp.model_validate({"fack": False})


@pytest.mark.parametrize("name", ["../x", "Cubic", "a b", "", "x" * 16])
def test_an_algorithm_is_a_name(name: str) -> None:
    with pytest.raises(ValidationError):
        Tcp.model_validate({"congestion_control": name})
