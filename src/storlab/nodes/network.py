"""The network among a run's nodes: a namespace of its own with a bridge, and a port for each node that is in it.

Nothing leads from there to the outside, unless the study asks for a way out (see ``uplink``), and nobody else on this
machine can reach what is served in it. The QEMUs whose disks come over this network run in the namespace, too. Needs
root.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from storlab.errors import NodeLost, StorlabError
from storlab.nodes.answers import understood
from storlab.nodes.demands import Devices
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunName, undo
from storlab.nodes.uplink import Uplink

CARD = "storlab0"  # the name of each node's card
NEEDS = Needs(programs=("ip", "nsenter"), root="a network among the nodes")
_BRIDGE = "nodes"
_SUBNET, PREFIX = "10.213", 16
_MOST = 2**16 - 2
_NAME = re.compile(r"storlab-\d{8}-\d{6}-[0-9a-f]{4}(-[A-Za-z0-9_.+-]+)?")


def is_a_runs(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


@undo("network.remove")
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
