"""Shaping the network of one node: its interface, the port that this is plugged into, its TCP; undone by the journal.

Only the card that Storlab made is touched, or the interface that the study names for it; and settings of TCP only where
that is: in a guest, in a network namespace of a run's own, or on a machine whose interface the study names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from storlab.base.errors import CommandFailed, StorlabError, TrialError, Unsupported
from storlab.nodes.answers import understood
from storlab.nodes.network import Card, InterfaceName, is_a_runs
from storlab.nodes.node import Node
from storlab.nodes.shaping.keys import TCP_SYSCTLS, Network, Tcp
from storlab.nodes.shaping.queues import (
    FEATURES,
    differences,
    parse_connections,
    parse_features,
    parse_foreign_queue,
    parse_link,
    parse_ping,
    parse_queues,
    queue_commands,
)
from storlab.nodes.undo import RegisterUndo, RunName, undo

_Mtu = Annotated[int, Meta(ge=68, le=65535)]
_VALUE = r"^[a-z0-9_ -]{1,80}$"
_Setting = Annotated[str, Meta(pattern=r"^[a-z_]{1,40}=[a-z0-9_ -]{1,80}$")]
_Device = Annotated[str, Meta(pattern=r"^(tap|veth)[0-9]{1,5}$")]
_Feature = Annotated[str, Meta(pattern=r"^(tso|gso|gro)$")]
_FOLDER = "/proc/sys/net/ipv4"
_NO_SUCH = re.compile("unknown qdisc|qdisc kind is unknown|No such file", re.IGNORECASE)


@undo("network.restore-card")
async def restore_card(
    node: Node, interface: InterfaceName, mtu: _Mtu, on: list[_Feature], off: list[_Feature]
) -> str | None:
    if not await _has(node, interface):
        return None
    queues = parse_queues(await _queues(node, interface))
    now, offload = await mtu_of(node, interface), await _features(node, interface)
    had = dict.fromkeys(on, True) | dict.fromkeys(off, False)
    features = {name: on for name, on in had.items() if name in FEATURES and offload.get(name) != on}
    if not queues and not features and now == mtu:
        return None
    if queues:
        await node.run(["tc", "qdisc", "delete", "dev", interface, "root"])
    if features:
        await node.run(["ethtool", "-K", interface, *_words(features)])
    if now != mtu:
        await node.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu)])
    return f"gave the interface {interface} of {node.name} its shape back"


@undo("network.restore-port", proof="note")
async def restore_port(host: Node, network: RunName, device: _Device, mtu: _Mtu) -> str | None:
    if not is_a_runs(network):
        raise StorlabError(f"the network namespace {network} is not Storlab's own: left alone")
    shown = await host.run(["ip", "-netns", network, "-j", "link", "show", "dev", device], check=False)
    if not shown.ok or parse_link(shown.stdout.decode(errors="replace")) == mtu:
        return None
    await host.run(["ip", "-netns", network, "link", "set", "dev", device, "mtu", str(mtu)])
    return f"gave the port {device} its MTU back"


@undo("tcp.restore")
async def restore_tcp(node: Node, interface: InterfaceName, values: list[_Setting]) -> str | None:
    had = dict(each.split("=", 1) for each in values)
    wanted = {name: value for name, value in had.items() if name in TCP_SYSCTLS}
    if not await _has(node, interface):
        return None
    changed = {name: value for name, value in wanted.items() if await _sysctl(node, name) != value}
    for name, value in changed.items():
        await node.write(_path(name), value.encode())
    return f"gave TCP of {node.name} its settings back: {', '.join(changed)}" if changed else None


SHAPING_UNDOES = (restore_card, restore_port, restore_tcp)


@dataclass(frozen=True)
class Port:
    """What a node's card is plugged into: its device in the namespace ``within`` of this machine, ``host``."""

    host: Node
    within: str
    card: Card
    register: RegisterUndo

    async def mtu(self) -> int:
        words = ["-netns", self.within, "-j", "link", "show", "dev", self.card.device]
        return parse_link(await self.host.output("ip", *words))

    async def resize(self, mtu: int) -> None:
        arguments = {"network": self.within, "device": self.card.device, "mtu": await self.mtu()}
        await self.register((restore_port.name, arguments))
        await self.host.run(["ip", "-netns", self.within, "link", "set", "dev", self.card.device, "mtu", str(mtu)])


async def shape_interface(
    node: Node, interface: str, port: Port | None, network: Network, register: RegisterUndo
) -> dict[str, Any]:
    """Give a node's interface, and the port that it is plugged into, the shape that a study asks for.

    Returns what it really has, as facts. Raises ``Unsupported`` where its kernel or the interface has no such thing,
    and ``TrialError`` where it says otherwise afterwards, or has queues that somebody else gave it.
    """
    with understood(node.name, "shaping its network"):
        if kind := parse_foreign_queue(await _queues(node, interface)):
            raise TrialError(
                f"node {node.name}: {interface} has a queue of its machine's own ({kind}), which would be lost: remove "
                f"it (`tc qdisc delete dev {interface} root`), or name another interface"
            )
        offload = await _features(node, interface)
        on, off = ([name for name, is_on in offload.items() if is_on is wanted] for wanted in (True, False))
        had = {"interface": interface, "mtu": await mtu_of(node, interface), "on": on, "off": off}
        await register((restore_card.name, had))
        if network.mtu is not None:
            await _resize(node, interface, port, network.mtu)
        if network.segmentation is not None:
            await _offload(node, interface, network.segmentation, offload)
        for command in queue_commands(network, interface):
            await _queue(node, command)
        queues = parse_queues(await _queues(node, interface))
        got = {"interface": interface, "mtu": await mtu_of(node, interface), "queues": queues}
        got["offload"] = await _features(node, interface)
        wrong = [*differences(network, got)]
        if port is not None:
            got["port_mtu"] = await port.mtu()
            if network.mtu is not None and got["port_mtu"] != network.mtu:
                wrong.append(f"mtu of its port should be {network.mtu}, but is {got['port_mtu']}")
    if wrong:
        raise TrialError(f"node {node.name}: its network did not take what the study asks for: {'; '.join(wrong)}")
    return got


async def shape_tcp(node: Node, interface: str, tcp: Tcp, register: RegisterUndo) -> dict[str, str]:
    """Set TCP's settings where a node has this interface; returns all that Storlab knows of, read back.

    Raises ``Unsupported`` where the kernel has no such algorithm or setting, ``TrialError`` where one did not take.
    """
    wanted = tcp.sysctls()
    before = {}
    for name in wanted:
        before[name] = await _sysctl(node, name)
        if before[name] is None:
            raise Unsupported(f"the kernel of {node.name} has no tcp_{name}")
    values = [f"{name}={value}" for name, value in before.items()]
    await register((restore_tcp.name, {"interface": interface, "values": values}))
    for name, value in wanted.items():
        if name == "congestion_control":
            await _run_quietly(node, f"modprobe -q tcp_{value}")
        parts = str(before[name]).split()
        text = value if len(parts) == 1 else " ".join([*parts[:-1], value])
        try:
            await node.write(_path(name), text.encode())
        except (StorlabError, FileNotFoundError) as error:
            raise Unsupported(f"the kernel of {node.name} does not take tcp_{name} = {value}: {error}") from None
        got = await _sysctl(node, name)
        if got != text:
            raise TrialError(f"node {node.name}: tcp_{name} should be {text}, but is {got}")
    got_now = {name: await _sysctl(node, name) for name in TCP_SYSCTLS}
    return {name: value for name, value in got_now.items() if value is not None}


async def _resize(node: Node, interface: str, port: Port | None, mtu: int) -> None:
    try:
        if port is not None:
            await port.resize(mtu)
        await node.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu)])
    except CommandFailed as error:
        raise Unsupported(f"the card of {node.name} takes no mtu = {mtu}: {error}") from None


async def _offload(node: Node, interface: str, on: bool, has: Mapping[str, bool]) -> None:
    changed = {name: on for name, was in has.items() if was != on}
    if not changed:
        return
    try:
        await node.run(["ethtool", "-K", interface, *_words(changed)])
    except CommandFailed as error:
        raise Unsupported(f"the card of {node.name} can't have offload = {str(on).lower()}: {error}") from None


async def _queue(node: Node, command: list[str]) -> None:
    kind = next(word for word in command if word in ("netem", "tbf"))
    await _run_quietly(node, f"modprobe -q sch_{kind}")
    try:
        await node.run(command)
    except CommandFailed as error:
        if _NO_SUCH.search(f"{error} {error.detail}"):
            raise Unsupported(f"the kernel of {node.name} has no {kind}") from None
        raise


async def _run_quietly(node: Node, script: str) -> None:
    """Where there is no modprobe, the kernel may have it built in."""
    await node.run(["sh", "-c", f"{script} 2>/dev/null"], check=False)


async def _has(node: Node, interface: str) -> bool:
    return (await node.run(["test", "-e", f"/proc/sys/net/ipv4/conf/{interface}"], check=False)).ok


async def _queues(node: Node, interface: str) -> str:
    return await node.output("tc", "-j", "qdisc", "show", "dev", interface)


async def mtu_of(node: Node, interface: str) -> int:
    return parse_link(await node.output("ip", "-j", "link", "show", "dev", interface))


async def _features(node: Node, interface: str) -> dict[str, bool]:
    """Empty where no ethtool is there to ask: what needs it says so before."""
    found = await node.run(["sh", "-c", 'exec ethtool -k "$1" 2>/dev/null', "sh", interface], check=False)
    return parse_features(found.stdout.decode(errors="replace"))


async def _sysctl(node: Node, name: str) -> str | None:
    try:
        value = " ".join((await node.read_text(_path(name))).split())
    except FileNotFoundError:
        return None
    if not re.match(_VALUE, value):
        raise TrialError(f"node {node.name}: tcp_{name} has a value that makes no sense")
    return value


def _path(name: str) -> str:
    return f"{_FOLDER}/tcp_{name}"


def _words(features: Mapping[str, bool]) -> list[str]:
    return [word for name, on in features.items() for word in (name, "on" if on else "off")]


# What the network between two nodes turned out to be: whether packets of full size pass it, round trips, and the
# segments of the connections.

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
