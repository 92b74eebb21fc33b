"""A run's nodes: launched together, launched anew where one is lost, found by name, ended together."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from storlab.nodes.local import local_node
from storlab.nodes.node import Node
from storlab.nodes.programs import PROGRAMS, version_commands
from storlab.run.journal import Journal
from storlab.run.processes import MARK
from storlab.study.cells import HOST, Cell
from storlab.study.schema import NodeGroup


@dataclass
class Session:
    """The nodes that are up. ``host`` is this machine; it is there whether or not a workload runs on it."""

    run: str
    _contexts: AsyncExitStack
    nodes: dict[str, Node] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)  # node → boot id of its machine

    @property
    def host(self) -> Node:
        """This machine."""
        return self.nodes[HOST]

    def group(self, name: str, group: NodeGroup) -> list[Node]:
        """The nodes of one group of the study."""
        return [self.nodes[node] for node in node_names(name, group)]

    async def launch(self, name: str) -> None:
        """Launch one node, or launch it anew."""
        launcher = local_node(name, cgroup=cgroup_name(self.run, name), environment={MARK: self.run})
        self.nodes[name] = await self._contexts.enter_async_context(launcher)

    async def revive(self) -> list[str]:
        """Launch anew every node that is lost; returns their names."""
        lost = [name for name, node in self.nodes.items() if node.lost is not None]
        for name in lost:
            await self.launch(name)
        return lost

    async def look(self) -> None:
        """Ask every node what it is."""
        for name, node in self.nodes.items():
            self.facts[name] = await node.facts(version_commands(PROGRAMS))
            self.machines[name] = (await node.read_text("/proc/sys/kernel/random/boot_id")).strip()

    def announce(self, journal: Journal) -> None:
        """Journal how to end what the agents could leave, should they be killed themselves."""
        for name in self.nodes:
            journal.will(HOST, "processes.end", {"run": self.run, "cgroup": cgroup_name(self.run, name)})


def cgroup_name(run: str, node: str) -> str:
    """The cgroup of a node's agent; a run that is resumed uses another than what may be left of the first."""
    return f"storlab-{run}.{os.getpid()}-{node}"


def node_names(name: str, group: NodeGroup) -> list[str]:
    """``vm`` → ``vm``, or ``vm-1`` … ``vm-4`` where there are several."""
    return [name] if group.count == 1 else [f"{name}-{number}" for number in range(1, group.count + 1)]


def wanted_nodes(cells: Iterable[Cell]) -> list[str]:
    """Every node that some cell needs, and ``host``."""
    names = (node for cell in cells for name, group in cell.nodes.items() for node in node_names(name, group))
    return list(dict.fromkeys([HOST, *names]))


@asynccontextmanager
async def open_session(run: str, names: Iterable[str]) -> AsyncIterator[Session]:
    """Launch an agent for each node; leaving the context ends them and all that they started."""
    async with AsyncExitStack() as contexts:
        session = Session(run, contexts)
        for name in names:
            await session.launch(name)
        await session.look()
        yield session
