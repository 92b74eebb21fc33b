"""Nodes of kind ``local``: an agent on this machine, and on its network."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from storlab.agent_binary import agent_path
from storlab.nodes.agents import AgentLauncher, running_agent
from storlab.nodes.demands import Demands
from storlab.nodes.identity import NodeIdentity, machine_of
from storlab.nodes.kind import Launcher, NodeKind, Prepared, Services
from storlab.nodes.machine_network import IPAddress, MachineNetwork
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
