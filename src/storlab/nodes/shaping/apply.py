"""Shaping the network of one node: its card, the port that this is plugged into, and its TCP; undone by the journal.

Only the card that Storlab made is touched, and settings of TCP only where such a card is: in a guest, or in a network
namespace of a run's own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from storlab.errors import CommandFailed, StorlabError, TrialError, Unsupported
from storlab.nodes.answers import understood
from storlab.nodes.network import CARD, Card, is_a_runs
from storlab.nodes.node import Node
from storlab.nodes.shaping.keys import TCP_SYSCTLS, Network, Tcp
from storlab.nodes.shaping.queues import queue_commands
from storlab.nodes.shaping.read_back import FEATURES, differences, parse_features, parse_link, parse_queues
from storlab.nodes.undo import Name, undo

Register = Callable[[str, Mapping[str, Any]], Awaitable[None]]

_Mtu = Annotated[int, Meta(ge=68, le=65535)]
_VALUE = r"^[a-z0-9_ -]{1,80}$"
_Setting = Annotated[str, Meta(pattern=r"^[a-z_]{1,40}=[a-z0-9_ -]{1,80}$")]
_Feature = Annotated[str, Meta(pattern=r"^(tso|gso|gro)$")]
_FOLDER = "/proc/sys/net/ipv4"
_NO_SUCH = re.compile("unknown qdisc|qdisc kind is unknown|No such file", re.IGNORECASE)


class _Card(Struct, frozen=True, forbid_unknown_fields=True):
    mtu: _Mtu
    on: list[_Feature]
    off: list[_Feature]


class _Port(Struct, frozen=True, forbid_unknown_fields=True):
    network: Name
    device: Annotated[str, Meta(pattern=r"^(tap|veth)[0-9]{1,5}$")]
    mtu: _Mtu


class _Sysctls(Struct, frozen=True, forbid_unknown_fields=True):
    values: list[_Setting]


@undo("network.restore-card", arguments=_Card)
async def restore_card(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Take a card's queues away, and give it the MTU and offloads back that it had."""
    if not await _has_card(node):
        return None
    queues = parse_queues(await _queues(node))
    mtu, offload = await mtu_of(node), await _features(node)
    had = dict.fromkeys(arguments["on"], True) | dict.fromkeys(arguments["off"], False)
    features = {name: on for name, on in had.items() if name in FEATURES and offload.get(name) != on}
    if not queues and not features and mtu == arguments["mtu"]:
        return None
    if queues:
        await node.run(["tc", "qdisc", "delete", "dev", CARD, "root"])
    if features:
        await node.run(["ethtool", "-K", CARD, *_words(features)])
    await node.run(["ip", "link", "set", "dev", CARD, "mtu", str(arguments["mtu"])])
    return f"gave the card {CARD} of {node.name} its shape back"


@undo("network.restore-port", arguments=_Port)
async def restore_port(host: Node, arguments: Mapping[str, Any]) -> str | None:
    """Give the port of a node's card the MTU back that it had."""
    network, device, mtu = arguments["network"], arguments["device"], arguments["mtu"]
    if not is_a_runs(network):
        raise StorlabError(f"the network namespace {network} is not Storlab's own: left alone")
    shown = await host.run(["ip", "-netns", network, "-j", "link", "show", "dev", device], check=False)
    if not shown.ok or parse_link(shown.stdout.decode(errors="replace")) == mtu:
        return None
    await host.run(["ip", "-netns", network, "link", "set", "dev", device, "mtu", str(mtu)])
    return f"gave the port {device} its MTU back"


@undo("tcp.restore", arguments=_Sysctls)
async def restore_tcp(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Give settings of TCP the values back that they had."""
    had = dict(each.split("=", 1) for each in arguments["values"])
    wanted = {name: value for name, value in had.items() if name in TCP_SYSCTLS}
    if not await _has_card(node):
        return None
    changed = {name: value for name, value in wanted.items() if await _sysctl(node, name) != value}
    for name, value in changed.items():
        await node.write(_path(name), value.encode())
    return f"gave TCP of {node.name} its settings back: {', '.join(changed)}" if changed else None


SHAPING_UNDOES = (restore_card, restore_port, restore_tcp)


async def shape_card(
    node: Node, host: Node, within: str, card: Card, network: Network, on_node: Register, on_host: Register
) -> dict[str, Any]:
    """Give a node's card, and its port in the namespace ``within`` of this machine, the shape that a study asks for.

    Returns what it really has, as facts. Raises ``Unsupported`` where its kernel or its card has no such thing, and
    ``TrialError`` where it says otherwise afterwards.
    """
    with understood(node.name, "shaping its network"):
        offload = await _features(node)
        on, off = ([name for name, is_on in offload.items() if is_on is wanted] for wanted in (True, False))
        await on_node(restore_card.name, {"mtu": await mtu_of(node), "on": on, "off": off})
        if network.mtu is not None:
            await _resize(node, host, within, card, network.mtu, on_host)
        if network.segmentation is not None:
            await _offload(node, network.segmentation, offload)
        for command in queue_commands(network):
            await _queue(node, command)
        port = await host.output("ip", "-netns", within, "-j", "link", "show", "dev", card.device)
        got = {"mtu": await mtu_of(node), "port_mtu": parse_link(port), "queues": parse_queues(await _queues(node))}
        got["offload"] = await _features(node)
        wrong = [*differences(network, got)]
        if network.mtu is not None and got["port_mtu"] != network.mtu:
            wrong.append(f"mtu of its port should be {network.mtu}, but is {got['port_mtu']}")
    if wrong:
        raise TrialError(f"node {node.name}: its network did not take what the study asks for: {'; '.join(wrong)}")
    return got


async def shape_tcp(node: Node, tcp: Tcp, on_node: Register) -> dict[str, str]:
    """Set TCP's settings; returns all that Storlab knows of, read back.

    Raises ``Unsupported`` where the kernel has no such algorithm or setting, ``TrialError`` where one did not take.
    """
    wanted = tcp.sysctls()
    before = {}
    for name in wanted:
        before[name] = await _sysctl(node, name)
        if before[name] is None:
            raise Unsupported(f"the kernel of {node.name} has no tcp_{name}")
    await on_node(restore_tcp.name, {"values": [f"{name}={value}" for name, value in before.items()]})
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
    values = {name: await _sysctl(node, name) for name in TCP_SYSCTLS}
    return {name: value for name, value in values.items() if value is not None}


async def _resize(node: Node, host: Node, within: str, card: Card, mtu: int, on_host: Register) -> None:
    """The card, its port and with that the bridge, which takes the least of its ports."""
    port = await host.output("ip", "-netns", within, "-j", "link", "show", "dev", card.device)
    await on_host(restore_port.name, {"network": within, "device": card.device, "mtu": parse_link(port)})
    try:
        await host.run(["ip", "-netns", within, "link", "set", "dev", card.device, "mtu", str(mtu)])
        await node.run(["ip", "link", "set", "dev", CARD, "mtu", str(mtu)])
    except CommandFailed as error:
        raise Unsupported(f"the card of {node.name} takes no mtu = {mtu}: {error}") from None


async def _offload(node: Node, on: bool, has: Mapping[str, bool]) -> None:
    changed = {name: on for name, was in has.items() if was != on}
    if not changed:
        return
    try:
        await node.run(["ethtool", "-K", CARD, *_words(changed)])
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


async def _has_card(node: Node) -> bool:
    return (await node.run(["test", "-e", f"/proc/sys/net/ipv4/conf/{CARD}"], check=False)).ok


async def _queues(node: Node) -> str:
    return await node.output("tc", "-j", "qdisc", "show", "dev", CARD)


async def mtu_of(node: Node) -> int:
    """The MTU of a node's card."""
    return parse_link(await node.output("ip", "-j", "link", "show", "dev", CARD))


async def _features(node: Node) -> dict[str, bool]:
    """Empty where no ethtool is there to ask: what needs it says so before."""
    found = await node.run(["sh", "-c", f"exec ethtool -k {CARD} 2>/dev/null"], check=False)
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
