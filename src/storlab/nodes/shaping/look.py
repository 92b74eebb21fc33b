"""What the network between two nodes turned out to be: round trips, and the segments of the connections."""

from __future__ import annotations

from typing import Any

from storlab.nodes.answers import understood
from storlab.nodes.node import Node
from storlab.nodes.shaping.read_back import parse_connections, parse_ping

_PINGS, _INTERVAL, _PATIENCE = 5, 0.05, 5  # packets, s, s


async def round_trip(node: Node, address: str) -> dict[str, float]:
    """Seconds of round trips to another node; empty where nothing came back, or there is no ping(8)."""
    ping = f"ping -n -c {_PINGS} -i {_INTERVAL} -w {_PATIENCE}"
    ended = await node.run(["sh", "-c", f'{ping} -- "$1" 2>/dev/null', "sh", address], check=False)
    with understood(node.name, f"measuring round trips to {address}"):
        return parse_ping(ended.stdout.decode(errors="replace"))


async def connections(node: Node, address: str) -> dict[str, Any]:
    """Of TCP's connections with another node, also those of the kernel: sizes of segments, and of packets."""
    ended = await node.run(["ss", "-Htin", "state", "established", "dst", address], check=False)
    with understood(node.name, f"looking at connections with {address}"):
        return dict(parse_connections(ended.stdout.decode(errors="replace")).get(address, {}))
