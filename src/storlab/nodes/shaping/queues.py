"""The queues of a card that hold packets back or lose them, as tc(8) takes them. Pure.

netem delays and loses, see tc-netem(8); a token bucket limits the bandwidth, see tc-tbf(8), and stands below netem
where there are both, so that a bandwidth is the same thing with and without a delay.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

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


# What a node says of its network, parsed and held against what was asked for. Pure.
#
# All of it is a stranger's text: what can't be understood is a ``ValueError`` that says so.

FEATURES = {"tso": "tcp-segmentation-offload", "gso": "generic-segmentation-offload", "gro": "generic-receive-offload"}
"""What offloads segmentation, by the names that ethtool(8) sets and shows."""

_PROMISED = 0.02  # share by which a queue's own numbers may differ: tc rounds times and rates to the kernel's ticks
_LARGEST = 2**53  # of any number of a queue
_MOST_SHOWN = 64  # queues, connections and packets that are looked at
_TIME = re.compile(r"\btime=(\d{1,9}(?:\.\d{1,9})?) ms")
_PEER = re.compile(r"(?:\[::ffff:)?(\d{1,3}(?:\.\d{1,3}){3})\]?:\d{1,5}")
_MSS, _PATH_MTU = re.compile(r"\bmss:(\d{1,6})\b"), re.compile(r"\bpmtu:(\d{1,6})\b")


def parse_queues(text: str) -> list[dict[str, Any]]:
    """What ``tc -j qdisc show`` prints, without what a card has by itself: kind, seconds, shares, bit/s."""
    found = []
    for each in _objects(text, "tc"):
        options = each.get("options")
        if each.get("kind") not in ("netem", "tbf") or not isinstance(options, dict):
            continue
        queue: dict[str, Any] = {"kind": each["kind"]}
        delay, loss = options.get("delay"), options.get("loss-random")
        for name, value, scale in (
            ("limit", options.get("limit"), 1),
            ("delay", delay.get("delay") if isinstance(delay, dict) else None, 1),
            ("jitter", delay.get("jitter") if isinstance(delay, dict) else None, 1),
            ("loss", loss.get("loss") if isinstance(loss, dict) else None, 1),
            ("bandwidth", options.get("rate"), 8),
            ("burst", options.get("burst"), 1),
        ):
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST:
                queue[name] = value * scale
        found.append(queue)
    return found[:_MOST_SHOWN]


def parse_foreign_queue(text: str) -> str | None:
    """The kind of a queue at the root that is not the kernel's default, of what ``tc -j qdisc show`` prints."""
    kinds = [each.get("kind") for each in _objects(text, "tc") if each.get("root") and each.get("handle") != "0:"]
    return next((str(kind) for kind in kinds), None)


def parse_link(text: str) -> int:
    mtus: list[int] = [each["mtu"] for each in _objects(text, "ip") if type(each.get("mtu")) is int]
    if not mtus or not 68 <= mtus[0] <= 65536:  # IPv4's least, RFC 791, and the loopback's
        raise ValueError("ip tells of no MTU that there can be")
    return mtus[0]


def parse_features(text: str) -> dict[str, bool]:
    """Which of ``FEATURES`` are on, of what ``ethtool -k`` prints; what a card does not have is left out."""
    lines = (line.strip().partition(": ") for line in text.splitlines())
    states = {name: state.split() for name, _, state in lines}
    return {name: states[long][0] == "on" for name, long in FEATURES.items() if states.get(long)}


def parse_ping(text: str) -> dict[str, float]:
    """Seconds of the round trips that ping(8) prints: the shortest, and the median. Empty where none came back."""
    times = sorted(float(found) / 1000 for found in _TIME.findall(text)[:_MOST_SHOWN])
    return {"min": times[0], "median": times[(len(times) - 1) // 2]} if times else {}


def parse_connections(text: str) -> dict[str, dict[str, list[int]]]:
    """What ``ss -Htin`` prints, by the peer's address: sizes of segments and, where told, of packets on the path."""
    found: dict[str, dict[str, set[int]]] = {}
    peer = None
    for line in text.splitlines():
        if not line[:1].isspace():
            addresses = _PEER.findall(line)
            peer = addresses[-1] if addresses else None
        elif peer is not None and (peer in found or len(found) < _MOST_SHOWN):
            for name, pattern in (("mss", _MSS), ("path_mtu", _PATH_MTU)):
                if value := pattern.search(line):
                    found.setdefault(peer, {}).setdefault(name, set()).add(int(value[1]))
    return {peer: {name: sorted(values)[:_MOST_SHOWN] for name, values in each.items()} for peer, each in found.items()}


def differences(network: Network, got: Mapping[str, Any]) -> Iterator[str]:
    """What a card has otherwise than it was asked to: ``mtu should be 9000, but is 1500``."""
    if network.mtu is not None and got["mtu"] != network.mtu:
        yield f"mtu should be {network.mtu}, but is {got['mtu']}"
    if network.segmentation is not None:
        for name, on in got.get("offload", {}).items():
            if on != network.segmentation:
                yield f"{name} should be {_switch(network.segmentation)}, but is {_switch(on)}"
    queues = {queue["kind"]: queue for queue in got["queues"]}
    for kind, key in (("netem", "delay"), ("netem", "jitter"), ("netem", "loss"), ("tbf", "bandwidth")):
        wanted = getattr(network, key) or 0
        has = queues.get(kind, {}).get(key, 0)
        if abs(has - wanted) > _PROMISED * wanted + (1e-6 if kind == "netem" else 0):
            yield f"{key} should be {wanted:g}, but is {has:g}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _objects(text: str, program: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{program} printed no JSON") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{program} printed something else than a list")
    return found
