"""Nodes of kind ``netns``: an agent on this machine, in a network namespace with a card on the run's network.

Files, devices and mounts are this machine's: the agent enters by setns(2), not by ``ip netns exec``, under which mounts
become private and ``storlab clean`` can't see them. So it is a network client only as far as a protocol's client keeps
to the namespace in which it was started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from storlab.errors import StorlabError
from storlab.nodes.agents import AgentLauncher
from storlab.nodes.identity import NodeIdentity
from storlab.nodes.kind import Launcher, NodeKind, Services
from storlab.nodes.needs import Needs
from storlab.nodes.network import NEEDS, Card, enter, remove_network
from storlab.nodes.node import Node
from storlab.nodes.processes import end_marked
from storlab.nodes.shaping.apply import SHAPING_UNDOES
from storlab.nodes.uplink import UPLINK_UNDOES


class NetnsKind(NodeKind):
    """This machine behind a network card of its own, on the network among the nodes."""

    kind: Literal["netns"] = "netns"

    session: ClassVar = True
    here: ClassVar = True
    transports: ClassVar = frozenset({"network"})
    undoes: ClassVar = (end_marked, remove_network, *UPLINK_UNDOES, *SHAPING_UNDOES)

    def needs(self) -> Needs:
        return NEEDS

    @classmethod
    def launcher(cls, services: Services) -> Launcher[NetnsKind]:
        return NetnsLauncher(services)


class NetnsLauncher(AgentLauncher[NetnsKind]):
    """Makes a namespace for each node, and launches its agent there; ``address``: the namespace's name."""

    here: ClassVar = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._cards: dict[str, Card] = {}

    async def stand_in(self, name: str, spec: NetnsKind) -> Node | None:
        return self.services.host

    async def address_of(self, instance: str, spec: NetnsKind) -> str:
        network = self.services.network
        name = f"{network.name}-{instance}"
        await network.namespace(name)
        self._cards[name] = await network.veth(name)
        return name

    async def command(self, address: str, environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
        return [*enter(address), *await super().command(address, environment, arguments)]

    async def took_in(self, node: Node) -> None:
        if (card := self._cards.get(node.identity.address)) is not None:
            node.address = card.address

    async def reach(self, identity: NodeIdentity) -> Node | None:
        """Where its namespace is gone, this machine: all that is left of such a node is here."""
        host = self.services.host
        if not identity.address.startswith(f"{self.services.network.name}-") or "/" in identity.address:
            raise StorlabError(f"the network namespace {identity.address} is not one of this run's: left alone")
        there = await host.run(["test", "-e", f"/run/netns/{identity.address}"], check=False)
        return await super().reach(identity) if there.ok else host
