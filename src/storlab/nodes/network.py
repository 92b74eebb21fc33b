"""The network among a run's nodes: a namespace of its own with a bridge, and a port for each node that is in it.

Nothing leads from there to the outside, unless the study asks for a way out (see ``uplink``), and nobody else on this
machine can reach what is served in it. The QEMUs whose disks come over this network run in the namespace, too. Needs
root.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Annotated

from msgspec import Meta

from storlab.base.errors import CommandFailed, NodeLost, StorlabError, TrialError, Unsupported
from storlab.nodes.answers import understood
from storlab.nodes.demands import Devices
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunName, run_of, undo

# A way out of the run's own network: to single addresses, through this machine.
#
# The run's namespace and this machine are joined by a link of Storlab's own, with addresses that RFC 2544 reserves
# for benchmarks. What leaves by it is masqueraded twice: in the namespace, so that this machine needs no route to the
# run's network, and here, so that other machines need none to the link. An nftables table of Storlab's own lets
# connections to the given addresses through, and none from outside.
#
# Of this machine's own settings one is changed, if it was off: whether packets that come in by the interface towards
# such an address are forwarded. For as long, the same table keeps this machine from forwarding any others that come
# in there.

UPLINK_NEEDS = Needs(programs=("ip", "nsenter", "nft", "ping"), root="a way out of the network among the nodes")
_Device = Annotated[str, Meta(pattern=r"^storlab-[0-9a-f]{4}$")]
InterfaceName = Annotated[str, Meta(pattern=r"^(?!(all|default|\.{1,2})$)[A-Za-z0-9_.:@+-]{1,15}$")]
"""Of a network interface, see dev_valid_name() in net/core/dev.c; ``all`` and ``default`` are no interface."""

_CONF = "/proc/sys/net/ipv4/conf"
_INSIDE = "outside0"  # the link's end in the namespace, where it leads outside
_FIRST = int(IPv4Address("198.18.0.0"))  # RFC 2544: 2^17 addresses for benchmarks, four to a link
_ANSWER = 5  # s

_HERE = """
table ip {table} {{
    set servers {{ type ipv4_addr; }}
    set guarded {{ type ifname; }}
    chain outgoing {{
        type nat hook postrouting priority srcnat;
        ip saddr {inner} oifname != "{link}" masquerade
    }}
    chain forwarded {{
        type filter hook forward priority filter;
        iifname "{link}" ip daddr @servers accept
        iifname "{link}" drop
        oifname "{link}" ct state established,related accept
        oifname "{link}" drop
        iifname @guarded drop
    }}
    chain incoming {{
        type filter hook input priority filter;
        iifname "{link}" ip daddr @servers accept
        iifname "{link}" drop
    }}
}}
"""
_THERE = f"""
table ip storlab {{
    chain outgoing {{
        type nat hook postrouting priority srcnat;
        oifname "{_INSIDE}" masquerade
    }}
    chain forwarded {{
        type filter hook forward priority filter;
        iifname "{_INSIDE}" ct state established,related accept
        iifname "{_INSIDE}" drop
    }}
}}
"""


@undo("uplink.remove")
async def remove_uplink(host: Node, network: RunName, device: _Device) -> str | None:
    if run_of(network) is None or not network.startswith("storlab-"):
        raise StorlabError(f"the nftables table {network} is not Storlab's own: left alone")
    if device != link_of(network):
        raise StorlabError(f"the network link {device} is not that of {network}: left alone")
    removed = []
    if (await host.run(["nft", "list", "table", "ip", network], check=False)).ok:
        await host.run(["nft", "delete", "table", "ip", network])
        removed.append(f"the nftables table {network}")
    if (await host.run(["test", "-e", f"/sys/class/net/{device}"], check=False)).ok:
        await host.run(["ip", "link", "delete", "dev", device])
        removed.append(f"the network link {device}")
    return f"removed {' and '.join(removed)}" if removed else None


@undo("uplink.forwarding")
async def restore_forwarding(host: Node, interface: InterfaceName) -> str | None:
    """Forward no packets any more that come in by an interface; unless somebody has made all interfaces forward."""
    path = f"{_CONF}/{interface}/forwarding"
    now, everywhere = await host.texts(path, f"{_CONF}/all/forwarding")
    if now != "1" or everywhere == "1":
        return None
    await host.write(path, b"0")
    return f"made {interface} forward no packets, as before"


UPLINK_UNDOES = (remove_uplink, restore_forwarding)


def link_of(network: str) -> str:
    """The name of the link of a run's network: at most 15 characters, see netdevice(7)."""
    run = run_of(network)
    return f"storlab-{run[-4:] if run else '0000'}"


class Uplink:
    """Of the run's network ``network``, made when the first address is opened. ``host``: this machine."""

    def __init__(self, network: str, host: Callable[[], Node], announce: Callable[..., None]) -> None:
        self._network, self._host, self._announce = network, host, announce
        self._made = False
        self._open: set[str] = set()
        self._lock = asyncio.Lock()

    @property
    def _link(self) -> str:
        return link_of(self._network)

    @property
    def _ends(self) -> tuple[str, str]:
        """The link's addresses: here, and in the namespace."""
        first = _FIRST + int(self._link[-4:], 16) % 2**15 * 4
        return str(IPv4Address(first + 1)), str(IPv4Address(first + 2))

    async def open_to(self, address: str) -> None:
        """Let what is in the network reach an address. Idempotent. Raises ``Unsupported`` if that can't be had here."""
        async with self._lock:
            if address in self._open:
                return
            if not isinstance(ip_address(address), IPv4Address):
                raise Unsupported(f"the network among the nodes has no way to {address}: it knows IPv4 alone")
            try:
                if not self._made:
                    await self._make()
                    self._made = True
                await self._forward(address)
            except CommandFailed as error:
                raise Unsupported(f"this machine gives the network among the nodes no way out: {error}") from None
            self._open.add(address)

    async def prove(self, node: Node, address: str) -> None:
        """Make sure that answers reach a node. Raises ``TrialError`` that says where they may be lost."""
        if not (await node.run(["ping", "-n", "-c", "1", "-w", str(_ANSWER), address], check=False)).ok:
            raise TrialError(
                f"node {node.name}: no answer from {address} within {_ANSWER} s through this machine: a firewall here "
                "may drop what is forwarded, or one there does not answer ping"
            )

    async def _make(self) -> None:
        host, link, (here, there) = self._host(), self._link, self._ends
        await self._refuse_others(host)
        self._announce(remove_uplink.name, network=self._network, device=link)
        await host.run(["nft", "-f", "-"], stdin=_HERE.format(table=self._network, link=link, inner=there).encode())
        peer = ["peer", "name", _INSIDE, "netns", self._network]
        await host.run(["ip", "link", "add", "name", link, "type", "veth", *peer])
        await host.run(["ip", "address", "add", f"{here}/30", "dev", link])
        await host.run(["ip", "link", "set", "dev", link, "up"])
        await host.write(f"{_CONF}/{link}/forwarding", b"1")
        inside = ["ip", "-netns", self._network]
        await host.run([*inside, "address", "add", f"{there}/30", "dev", _INSIDE])
        await host.run([*inside, "link", "set", "dev", _INSIDE, "up"])
        enter = ["nsenter", f"--net=/run/netns/{self._network}", "--"]
        await host.run([*enter, "nft", "-f", "-"], stdin=_THERE.encode())
        await host.run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

    async def _refuse_others(self, host: Node) -> None:
        """Two ways out at once would each undo what the other needs."""
        tables = (await host.output("nft", "list", "tables", "ip")).split()
        if others := [name for name in tables if run_of(name) not in (None, run_of(self._network))]:
            run = run_of(others[0])
            raise Unsupported(
                f"the run {run} has a way out of its network through this machine already: wait for its end, or run "
                f"`storlab clean {run}` if it is over"
            )

    async def _forward(self, address: str) -> None:
        host, (here, _) = self._host(), self._ends
        await host.run(["nft", "add", "element", "ip", self._network, "servers", f"{{ {address} }}"])
        out = await interface_toward(host, address)
        if out != "lo":  # else it is this machine's own
            path = f"{_CONF}/{out}/forwarding"
            if await host.texts(path) != ["1"]:
                guarded = f'{{ "{out}" }}'
                await host.run(["nft", "add", "element", "ip", self._network, "guarded", guarded])
                self._announce(restore_forwarding.name, interface=out)
                await host.write(path, b"1")
        await host.run(["ip", "-netns", self._network, "route", "replace", address, "via", here, "dev", _INSIDE])


async def interface_toward(node: Node, address: str) -> str:
    """The network interface by which a node reaches an address. Raises ``CommandFailed`` if there is none."""
    with understood(node.name, f"looking for the way to {address}"):
        found = json.loads(await node.output("ip", "-j", "route", "get", address))
        return str(found[0]["dev"])


__all__ = ["NEEDS", "UPLINK_UNDOES", "InterfaceName", "Uplink", "interface_toward"]


CARD = "storlab0"  # the name of each node's card
NEEDS = Needs(programs=("ip", "nsenter"), root="a network among the nodes")
_BRIDGE = "nodes"
_SUBNET, PREFIX = "10.213", 16
_MOST = 2**16 - 2
_NAME = re.compile(r"storlab-\d{8}-\d{6}-[0-9a-f]{4}(-[A-Za-z0-9_.+-]+)?")


def is_a_runs(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


@undo("network.remove", order=4)
async def remove_network(node: Node, name: RunName) -> str | None:
    """Remove a namespace with all that is in it. Refuses a name that is not Storlab's."""
    if not is_a_runs(name):
        raise StorlabError(f"the network namespace {name} is not Storlab's own: left alone")
    if not (await node.run(["test", "-e", f"/run/netns/{name}"], check=False)).ok:
        return None
    await node.run(["ip", "netns", "delete", name])
    return f"removed the network namespace {name}"


@dataclass(frozen=True)
class Card:
    """A node's card on the network: the device on the bridge, the card's MAC, and the node's address."""

    number: int  # in the subnet, counted from 2; 1 is the bridge
    device: str

    @property
    def mac(self) -> str:
        return f"52:54:00:5b:{self.number >> 8:02x}:{self.number & 255:02x}"

    @property
    def address(self) -> str:
        return f"{_SUBNET}.{self.number >> 8}.{self.number & 255}"

    def devices(self) -> Devices:
        netdev = {"type": "tap", "id": "net0", "ifname": self.device, "script": "no", "downscript": "no"}
        device = {"driver": "virtio-net-pci", "netdev": "net0", "mac": self.mac, "id": "nic0"}
        return Devices(netdevs=(netdev,), devices=(device,))


class RunNetwork:
    """Made when the first node joins; hands out cards, and takes them back from nodes that ended."""

    def __init__(self, run: str, host: Callable[[], Node], announce: Callable[..., None]) -> None:
        self._run, self._host, self._announce = run, host, announce
        self._begun = self._made = False
        self._cards: dict[int, Card] = {}  # by number
        self._lock = asyncio.Lock()
        self._uplink = Uplink(self.name, host, announce)

    @property
    def name(self) -> str:
        return f"storlab-{self._run}"

    async def enter(self) -> list[str]:
        """The words before a command on this machine that let it run in the network, made if it is not there yet.

        Not ``ip netns exec``, under which mounts become private.
        """
        async with self._lock:
            if not self._made:
                if self._begun:  # and was cancelled half-way
                    await self._host().run(["ip", "netns", "delete", self.name], check=False)
                self._begun = True
                await self.namespace(self.name)
                await self._configure(["link", "add", "name", _BRIDGE, "type", "bridge"])
                await self._configure(["address", "add", f"{_SUBNET}.0.1/{PREFIX}", "dev", _BRIDGE])
                await self._configure(["link", "set", "dev", _BRIDGE, "up"])
                self._made = True
        return enter(self.name)

    async def namespace(self, name: str) -> None:
        self._announce(remove_network.name, name=name)
        await self._host().run(["ip", "netns", "add", name])
        await self._configure(["link", "set", "dev", "lo", "up"], name)

    async def tap(self) -> Card:
        card = await self._card("tap")
        await self._configure(["tuntap", "add", "dev", card.device, "mode", "tap"])
        await self._plug_in(card)
        return card

    async def veth(self, namespace: str) -> Card:
        """The card of a namespace of its own, where it is up when this returns."""
        card = await self._card("veth")
        peer = ["peer", "name", CARD, "address", card.mac, "netns", namespace]
        await self._configure(["link", "add", "name", card.device, "type", "veth", *peer])
        await self._plug_in(card)
        await self._configure(["address", "add", f"{card.address}/{PREFIX}", "dev", CARD], namespace)
        await self._configure(["link", "set", "dev", CARD, "up"], namespace)
        return card

    async def take_back(self, card: Card) -> None:
        """Remove the card of a node that has ended; its address is free for others."""
        self._cards.pop(card.number, None)
        with suppress(NodeLost):  # where this machine's agent is gone, the card goes with the network
            await self._host().run(["ip", "-netns", self.name, "link", "delete", "dev", card.device], check=False)

    def card_of(self, address: str) -> Card | None:
        return next((card for card in self._cards.values() if card.address == address), None)

    async def open_to(self, address: str) -> None:
        """Let nodes of this network reach an address outside of it. Raises ``Unsupported``."""
        await self.enter()
        await self._uplink.open_to(address)

    async def route(self, node: Node, address: str) -> None:
        """The same for one node of this network, and make sure that an answer comes back. Raises ``TrialError``."""
        question = f"the way to {address}"
        if question not in node.known:
            await self.open_to(address)
            await node.run(["ip", "route", "replace", address, "via", f"{_SUBNET}.0.1", "dev", CARD])
            await self._uplink.prove(node, address)
            node.known[question] = "open"

    async def _card(self, kind: str) -> Card:
        await self.enter()
        number = next(number for number in range(2, _MOST) if number not in self._cards)
        card = self._cards[number] = Card(number, f"{kind}{number}")
        return card

    async def _plug_in(self, card: Card) -> None:
        await self._configure(["link", "set", "dev", card.device, "master", _BRIDGE, "up"])

    async def _configure(self, words: list[str], namespace: str = "") -> None:
        await self._host().run(["ip", "-netns", namespace or self.name, *words])


INTERFACE = "the interface that has its address"
"""What ``interface_of`` found, among what is ``known`` of a node."""


async def interface_of(node: Node) -> str:
    """The network interface that has a node's address; asked once. Raises ``TrialError``."""
    if INTERFACE not in node.known:
        with understood(node.name, f"looking for the interface that has {node.address}"):
            listed = await node.output("ip", "-oneline", "address", "show", "to", str(node.address))
            node.known[INTERFACE] = listed.split()[1].partition("@")[0]
    return node.known[INTERFACE]


def enter(namespace: str) -> list[str]:
    """The words before a command that let it run in a network namespace of this machine, and change nothing else."""
    return ["nsenter", f"--net=/run/netns/{namespace}", "--"]
