"""Nodes that serve others with disks: kept between trials for as long as they stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from storlab.layers.stack import StandingStack
from storlab.run.assembly import Assembly, fingerprint
from storlab.run.placement import on_storage
from storlab.run.teardown import Teardown
from storlab.study.cells import Cell


@dataclass
class Servers:
    """The serving groups that are up; each trial's disks on them are made and removed by the trial itself."""

    make: Callable[[str], Assembly]
    _up: dict[str, tuple[str, Assembly]] = field(default_factory=dict)

    async def get(self, cell: Cell, name: str, foundation: StandingStack | None) -> Assembly:
        """The group's nodes and stacks, put up unless they stand already, unchanged and alive."""
        key = _key(cell, name)
        if name in self._up:
            known, assembly = self._up[name]
            if known == key and assembly.alive:
                return assembly
            await self.take_down(name)
        assembly = self.make(name)
        self._up[name] = key, assembly
        await assembly.put_up(cell, name, foundation)
        return assembly

    async def take_down(self, name: str) -> Teardown:
        """Take down one group; what can't be stays in the journal."""
        _, assembly = self._up.pop(name)
        return await assembly.take_down()

    async def forget_broken(self) -> Teardown:
        """Take down every group that lost a node."""
        total = Teardown()
        for name in [name for name, (_, assembly) in self._up.items() if not assembly.alive]:
            result = await self.take_down(name)
            total.did += result.did
            total.failed += result.failed
        return total


def _key(cell: Cell, name: str) -> str:
    group = cell.nodes[name].model_dump(mode="json", exclude={"stack", "disk"})
    disk = cell.disks.get(name)
    layers = (*(on_storage(disk) if disk else ()), *(disk.layers[-1:] if disk else ()), *cell.stacks[name])
    return orjson.dumps(group).decode() + fingerprint(layers)
