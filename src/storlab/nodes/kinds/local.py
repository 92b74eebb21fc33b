"""Nodes of kind ``local``: an agent on this machine, and on its network."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from storlab.base.errors import StorlabError
from storlab.base.programs import agent_path
from storlab.nodes.agents import AgentLauncher, running_agent
from storlab.nodes.demands import Demands
from storlab.nodes.identity import NodeIdentity, machine_of
from storlab.nodes.kind import IPAddress, Launcher, MachineNetwork, NodeKind, Prepared, Services
from storlab.nodes.needs import Needs
from storlab.nodes.network import NEEDS, UPLINK_UNDOES, Card, enter, remove_network
from storlab.nodes.node import Node, Ports
from storlab.nodes.processes import end_marked
from storlab.nodes.shaping.apply import SHAPING_UNDOES


class LocalKind(MachineNetwork, NodeKind):
    """This machine, with an agent of its own."""

    kind: Literal["local"] = "local"
    address: IPAddress | None = Field(
        None, description="Where nodes on other machines reach what is served on this one: one of its own addresses."
    )

    session: ClassVar = True
    here: ClassVar = True
    transports: ClassVar = frozenset({"network"})
    undoes: ClassVar = (end_marked, *SHAPING_UNDOES)

    @property
    def served_at(self) -> bool:
        return self.address is not None

    @classmethod
    def launcher(cls, services: Services) -> Launcher[LocalKind]:
        return LocalLauncher(services)


class LocalLauncher(AgentLauncher[LocalKind]):
    """Agents on this machine."""

    here: ClassVar = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._ports = Ports()

    async def address_of(self, instance: str, spec: LocalKind) -> str:
        return ""

    async def open(self, name: str, spec: LocalKind, prepared: Prepared, demands: Demands, folder: Path) -> Node:
        node = await super().open(name, spec, prepared, demands, folder)
        node.address = spec.address
        return node

    async def took_in(self, node: Node) -> None:
        node.ports = self._ports  # they all have this machine's

    async def stand_in(self, name: str, spec: LocalKind) -> Node | None:
        return self.services.host

    async def reach(self, identity: NodeIdentity) -> Node | None:
        host = self.services.host
        if host.lost is not None:
            await super().reach(host.identity)
        return host


@contextlib.asynccontextmanager
async def local_node(
    name: str, *, cgroup: str | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Node]:
    """An agent on this machine that belongs to no run, for as long as the context lasts.

    ``environment`` is added to that of every command. ``cgroup`` names the agent's cgroup.
    """
    argv = [str(agent_path()), "serve", *(["--cgroup", cgroup] if cgroup else [])]
    async with running_agent(name, argv) as node:
        node.environment = environment or {}
        machine = await machine_of(node)
        node.identity, node.machine = NodeIdentity(name, "local", "", machine), machine.boot
        yield node


# Nodes of kind ``netns``: an agent on this machine, in a network namespace with a card on the run's network.
#
# Files, devices and mounts are this machine's: the agent enters by setns(2), not by ``ip netns exec``, under which
# mounts become private and ``storlab clean`` can't see them. So it is a network client only as far as a protocol's
# client keeps to the namespace in which it was started.


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
