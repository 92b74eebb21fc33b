"""The queues of a card that hold packets back or lose them, as tc(8) takes them. Pure.

netem delays and loses, see tc-netem(8); a token bucket limits the bandwidth, see tc-tbf(8), and stands below netem
where there are both, so that a bandwidth is the same thing with and without a delay.
"""

from __future__ import annotations

import math

from storlab.nodes.shaping.keys import Network

_USUAL_MTU = 1500
_FAST = 10**10  # bit/s: more than two guests send each other
_LEAST, _MOST = 1000, 10**6  # packets
_SMALLEST = 512  # bytes: about what packets have on average where half of them are ACKs and data are cut small
_BURST, _QUEUE = 0.005, 0.05  # s of the bandwidth
_LEAST_BURST = 20_000  # bytes: a few packets, also large ones


def packets_held(network: Network) -> int:
    """How many packets netem must hold, or it loses what it should delay; its own limit is 1000.

    All that a card can send within the delay.
    """
    held = (network.delay or 0.0) + (network.jitter or 0.0)
    size = min(network.mtu or _USUAL_MTU, _SMALLEST)
    packets = (network.bandwidth or _FAST) / 8 * held / size
    return min(max(math.ceil(packets), _LEAST), _MOST)


def burst(network: Network) -> int:
    """Bytes that a token bucket lets through at once: timers of emulated guests are late by milliseconds."""
    bandwidth = network.bandwidth or 0
    return max(round(bandwidth / 8 * _BURST), _LEAST_BURST, 2 * (network.mtu or _USUAL_MTU))


def queue_commands(network: Network, interface: str) -> list[list[str]]:
    """Command lines that give an interface its queues, the outer one first; empty where it needs none of its own."""
    commands: list[list[str]] = []
    parent = ["root"]
    if network.emulated:
        words = ["netem", "limit", str(packets_held(network))]
        if network.delay:
            varying = [_microseconds(network.jitter)] if network.jitter else []
            words += ["delay", _microseconds(network.delay), *varying]
        if network.loss:
            words += ["loss", "random", f"{network.loss * 100:.7f}%"]
        commands.append(["tc", "qdisc", "add", "dev", interface, *parent, "handle", "1:", *words])
        parent = ["parent", "1:1"]
    if network.bandwidth is not None:
        at_once = burst(network)
        waiting = round(network.bandwidth / 8 * (_QUEUE + (network.delay or 0.0))) + at_once
        words = ["tbf", "rate", f"{network.bandwidth}bit", "burst", str(at_once), "limit", str(waiting)]
        commands.append(["tc", "qdisc", "add", "dev", interface, *parent, "handle", "10:", *words])
    return commands


def _microseconds(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"
