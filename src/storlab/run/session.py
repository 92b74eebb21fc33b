"""A run's nodes: launched together, launched anew where one is lost, found by name, ended together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from storlab.errors import StorlabError
from storlab.nodes.local import local_node
from storlab.nodes.node import Node
from storlab.nodes.programs import PROGRAMS, version_commands
from storlab.nodes.vm.devices import Devices
from storlab.nodes.waiting import all_of
from storlab.run.hypervisor import Hypervisor
from storlab.run.journal import Journal
from storlab.run.processes import end_processes, mark
from storlab.study.cells import HOST, Cell
from storlab.study.schema import NodeGroup

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass
class Session:
    """The nodes that are up. ``host`` is this machine; it is there whether or not a workload runs on it."""

    run: str
    nodes: dict[str, Node] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)  # node → boot id of its machine
    told: Callable[[str], None] = lambda _: None
    extras: dict[str, frozenset[str]] = field(default_factory=dict)  # node group → what its image needs besides
    _contexts: dict[str, AsyncExitStack] = field(default_factory=dict)

    @property
    def host(self) -> Node:
        """This machine."""
        return self.nodes[HOST]

    def group(self, name: str, group: NodeGroup) -> list[Node]:
        """The nodes of one group of the study."""
        return [self.nodes[node] for node in node_names(name, group)]

    async def launch(self, name: str) -> None:
        """Launch one node."""
        launcher = local_node(name, cgroup=cgroup_name(self.run, name), environment=mark(self.run, name))
        self._contexts[name] = AsyncExitStack()
        self.nodes[name] = await self._contexts[name].enter_async_context(launcher)

    async def launch_missing(self, names: Iterable[str]) -> None:
        """Launch what is not there yet of these nodes on this machine."""
        missing = [name for name in names if name not in self.nodes]
        for name in missing:
            await self.launch(name)
        if missing:
            await self.look()

    @cached_property
    def hypervisor(self) -> Hypervisor:
        """What starts and ends virtual machines on this machine."""
        return Hypervisor(self.run, lambda: self.host, self.told)

    async def start_guest(
        self, name: str, group: str, spec: NodeGroup, devices: Devices, console: Path, *, networked: bool, serves: bool
    ) -> Node:
        """Start a virtual machine; from now on it is one of the nodes."""
        guest = await self.hypervisor.start(
            name, spec, self.extras.get(group, frozenset()), devices, console, networked=networked, serves=serves
        )
        self.machines[name] = (await guest.node.read_text(_BOOT_ID)).strip()
        self.facts[name] = {"uid": 0}
        self.nodes[name] = guest.node
        return guest.node

    def guest_facts(self) -> dict[str, dict[str, Any]]:
        """What each virtual machine is, for the records."""
        return {name: guest.facts() for name, guest in self.hypervisor.guests.items()}

    async def end_guest(self, name: str) -> None:
        """End a virtual machine; nothing where there is none."""
        self.nodes.pop(name, None)
        self.facts.pop(name, None)
        self.machines.pop(name, None)
        await self.hypervisor.end(name)

    async def revive(self) -> None:
        """Launch anew every node on this machine that is lost, once all is ended that it could have left."""
        for name in [name for name, node in self.nodes.items() if node.lost is not None and node.kind == "local"]:
            await self._contexts[name].aclose()
            with contextlib.suppress(StorlabError):  # what hangs in the kernel stays in the journal, and is told later
                await end_processes(self.run, name, cgroup_name(self.run, name))
            await self.launch(name)

    async def close(self) -> None:
        """End all nodes, virtual machines first."""
        async with AsyncExitStack() as together:
            for contexts in self._contexts.values():
                together.push_async_callback(contexts.aclose)
            together.push_async_callback(self.hypervisor.close)

    async def look(self) -> None:
        """Ask every node what it is."""

        async def one(name: str, node: Node) -> None:
            self.facts[name] = await node.facts(version_commands(PROGRAMS))
            self.machines[name] = (await node.read_text(_BOOT_ID)).strip()

        await all_of(*(one(name, node) for name, node in self.nodes.items()))

    def announce(self, journal: Journal) -> None:
        """Journal how to end what the agents could leave, should they be killed themselves."""
        self.hypervisor.journal = journal
        for name in self.nodes:
            arguments = {"run": self.run, "node": name, "cgroup": cgroup_name(self.run, name)}
            journal.will(HOST, "processes.end", arguments)


def cgroup_name(run: str, node: str) -> str:
    """The cgroup of a node's agent; a run that is resumed uses another than what may be left of the first."""
    return f"storlab-{run}.{os.getpid()}-{node}"


def node_names(name: str, group: NodeGroup) -> list[str]:
    """``vm`` → ``vm``, or ``vm-1`` … ``vm-4`` where there are several."""
    return [name] if group.count == 1 else [f"{name}-{number}" for number in range(1, group.count + 1)]


def wanted_nodes(cells: Iterable[Cell]) -> list[str]:
    """``host``, and every other node on this machine that some cell needs."""
    groups = (entry for cell in cells for entry in cell.nodes.items())
    names = (node for name, group in groups if group.kind == "local" for node in node_names(name, group))
    return list(dict.fromkeys([HOST, *names]))


@asynccontextmanager
async def open_session(
    run: str, names: Iterable[str], told: Callable[[str], None] = lambda _: None
) -> AsyncIterator[Session]:
    """Launch an agent for each node on this machine; leaving the context ends them and all that they started.

    ``told`` gets a sentence for the user where something takes a while.
    """
    session = Session(run, told=told)
    try:
        for name in names:
            await session.launch(name)
        await session.look()
        yield session
    finally:
        await session.close()
