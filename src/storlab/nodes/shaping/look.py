"""What the network between two nodes turned out to be: whether packets of full size pass it, round trips, and the
segments of the connections.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from storlab.errors import TrialError
from storlab.nodes.answers import understood
from storlab.nodes.node import Node
from storlab.nodes.shaping.apply import mtu_of
from storlab.nodes.shaping.keys import Network
from storlab.nodes.shaping.read_back import parse_connections, parse_ping

_PINGS, _INTERVAL, _PATIENCE = 5, 0.05, 5  # packets, s, s
_HEADERS = 28  # bytes: IPv4's and ICMP's
_TRIES, _MOST_TRIES, _EVERY = 10, 100, 0.5  # packets, packets, s
_BY_CHANCE = 1e-6  # that all of them are lost
_HOPELESS = 0.9  # share of packets lost, from which on nothing follows from silence
_PASSES = r"""
command -v ping > /dev/null || exit 0
exec ping -n -q -M do -c 1 -s "$1" -i "$2" -w "$3" -- "$4" > /dev/null 2>&1
"""


@dataclass(frozen=True)
class Ending:
    """A node and its interface, as one end of a way through the network."""

    node: Node
    interface: str

    async def mtu(self) -> int:
        return await mtu_of(self.node, self.interface)


async def prove_size(one: Ending, other: Ending, network: Network) -> None:
    """Full-sized packets of a node reach another one, which has the same shape; raises ``TrialError`` where none does.

    Answers may come in pieces, so this says nothing of the way back.
    """
    node, peer = one.node, other.node
    assert peer.address is not None
    with understood(node.name, f"sending packets of full size to {peer.name}"):
        size = network.mtu or await one.mtu()
        if await _passes(node, peer.address, size, network):
            return
        mtus = [(each.interface, where, await each.mtu()) for where, each in (("here", one), ("there", other))]
    less = [f"the MTU of {interface} {where} is {mtu}" for interface, where, mtu in mtus if mtu < size]
    why = " and ".join(less) or "something between them does not pass them on"
    raise TrialError(f"node {node.name}: packets of {size} bytes do not reach node {peer.name}: {why}")


async def _passes(node: Node, address: str, size: int, network: Network) -> bool:
    """Whether one of several comes back. Where there is no ping(8) to ask, they are taken to."""
    lost = network.loss or 0.0
    if lost >= _HOPELESS:
        return True
    both_ways = 1 - (1 - lost) ** 2
    tries = min(max(_TRIES, math.ceil(math.log(_BY_CHANCE) / math.log(both_ways)) if lost else 0), _MOST_TRIES)
    way = (network.delay or 0.0) + (network.jitter or 0.0) + size * 8 / (network.bandwidth or math.inf)
    every = max(_EVERY, way)
    words = [str(size - _HEADERS), f"{every:.3f}", str(math.ceil(tries * every + 2 * way))]
    return (await node.run(["sh", "-c", _PASSES, "sh", *words, address], check=False)).ok


async def round_trip(node: Node, address: str) -> dict[str, float]:
    """Seconds of round trips to another node; empty where nothing came back, or there is no ping(8)."""
    ping = f"ping -n -c {_PINGS} -i {_INTERVAL} -w {_PATIENCE}"
    ended = await node.run(["sh", "-c", f'{ping} -- "$1" 2>/dev/null', "sh", address], check=False)
    with understood(node.name, f"measuring round trips to {address}"):
        return parse_ping(ended.stdout.decode(errors="replace"))


async def connections(node: Node, address: str) -> dict[str, Any]:
    ended = await node.run(["ss", "-Htin", "state", "established", "dst", address], check=False)
    with understood(node.name, f"looking at connections with {address}"):
        return dict(parse_connections(ended.stdout.decode(errors="replace")).get(address, {}))
