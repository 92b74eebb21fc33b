"""Stacks that are up: put up through the journal, kept between trials where the study allows it, taken down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storlab.errors import StorlabError
from storlab.layers.resources import Dir, Disk, Resource
from storlab.layers.stack import StandingStack
from storlab.nodes.node import Node
from storlab.run.assembly import Assembly
from storlab.run.backing import Backing
from storlab.run.journal import Journal
from storlab.run.servers import Servers
from storlab.run.session import Session, node_names
from storlab.run.teardown import Teardown
from storlab.study.cells import Cell


@dataclass
class Stacks:
    """All stacks of a run: of the trial that runs, of cells that keep theirs, and of nodes that serve others.

    ``scratch``: the run's own folder on each node; ``root``: what the study says that it is made in.
    """

    session: Session
    scratch: dict[str, str]
    root: str
    journal: Journal
    folder: Path  # the run's, where consoles of nodes that outlive a trial are kept
    _current: dict[str, Assembly] = field(default_factory=dict)
    _servers: Servers | None = None
    _serving: list[Assembly] = field(default_factory=list)

    async def put_up(self, cell: Cell, folder: Path) -> dict[str, StandingStack]:
        """Each node's stack, put up unless it is up already. ``folder``: the trial's, for its guests' consoles."""
        self._serving = []
        key = _key(cell)
        if key not in self._current:
            self._current[key] = self._assembly(folder)
            await self._assemble(cell, self._current[key])
        return self._standing(cell)

    async def _assemble(self, cell: Cell, mine: Assembly) -> None:
        if self._servers is None:
            self._servers = Servers(lambda name: self._assembly(self.folder / "guests"))
        standing: dict[str, StandingStack] = {}
        for name in cell.in_order:
            on = cell.foundation(name)
            foundation = standing[on] if on is not None else None
            if name in cell.serving:
                server = await self._servers.get(cell, name, foundation)
                self._serving.append(server)
                standing |= server.standing
            else:
                await mine.put_up(cell, name, foundation)
                standing |= mine.standing

    def _assembly(self, consoles: Path) -> Assembly:
        return Assembly(self.session, self.scratch, self.root, self.journal, consoles)

    def _standing(self, cell: Cell) -> dict[str, StandingStack]:
        assemblies = [*self._serving, self._current[_key(cell)]]
        names = {node for name, group in cell.nodes.items() for node in node_names(name, group)}
        return {name: stack for each in assemblies for name, stack in each.standing.items() if name in names}

    def facts_so_far(self) -> dict[str, list[dict[str, Any]]]:
        """What each layer that is up really got, by node."""
        assemblies = [*self._serving, *self._current.values()]
        found = {name: [*stack.facts] for each in assemblies for name, stack in each.standing.items()}
        for each in assemblies:
            for on, facts in each.common_facts:
                found.setdefault(on, []).extend(facts)
        return {name: facts for name, facts in found.items() if facts}

    async def backings(self, cell: Cell) -> list[Backing]:
        """The disks on which those of the virtual machines lie: one for each node that disks are made on."""
        standing = self._standing(cell)
        above: dict[str, list[str]] = {}
        for name, disk in cell.disks.items():
            if name not in cell.serving:
                above.setdefault(disk.on, []).extend(node_names(name, cell.nodes[name]))
        found = []
        for on, names in above.items():
            node = self.session.nodes[on]
            disk_name = disk_of(standing[on].resource) if on in standing else None
            disk_name = disk_name or await _disk_beneath(node, self.scratch[on])
            if disk_name is not None:
                found.append(Backing(node, disk_name, tuple(names)))
        return found

    async def end_guests(self) -> None:
        """End the guests of the trial that runs, at once; their stacks stay in the journal."""
        for assembly in self._current.values():
            await assembly.end_guests()

    async def take_down(self, cell: Cell) -> Teardown:
        """Take down what was put up for one cell, and nodes that serve others where they are lost."""
        result = Teardown()
        if _key(cell) in self._current:
            result = await self._current.pop(_key(cell)).take_down()
        if self._servers is not None:
            broken = await self._servers.forget_broken()
            result = Teardown(result.did + broken.did, result.failed + broken.failed)
        return result


def _key(cell: Cell) -> str:
    """Cells whose nodes and stacks are the same share them, where they are kept."""
    return repr((cell.nodes, cell.stacks, cell.disks))


def disk_of(target: Resource | None) -> str | None:
    """The kernel's name of the disk beneath a resource."""
    return target.name if isinstance(target, Disk) else target.disk if isinstance(target, Dir) else None


async def _disk_beneath(node: Node, path: str) -> str | None:
    """The kernel's name of the disk that a folder's file system is on; ``None`` where it has none, or several."""
    try:
        number = int((await node.output("stat", "--format=%d", path)).strip())
        link = f"/sys/dev/block/{number >> 8 & 0xFFF}:{number & 0xFF | number >> 12 & 0xFFF00}"
        found = await node.run(["readlink", "--canonicalize-existing", link], check=False)
    except (StorlabError, ValueError):
        return None
    return found.stdout.decode().strip().rpartition("/")[2] or None if found.ok else None
