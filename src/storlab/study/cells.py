"""Cells: one for each combination of levels, with everything that is run in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storlab.layers.base import Layer
from storlab.probes.base import Probe
from storlab.study.positions import Path
from storlab.study.schema import NodeGroup, Trial
from storlab.workloads.base import Workload

HOST = "host"


@dataclass(frozen=True)
class Load:
    """One workload of a cell and the node groups that it runs on."""

    name: str
    workload: Workload
    on: tuple[str, ...]


@dataclass(frozen=True)
class Disk:
    """What becomes the disk of each virtual machine of a group: layers, of which the last attaches it.

    ``on``: the node group that the others stand on. ``origins``: where each was written.
    """

    on: str
    layers: tuple[Layer, ...]
    origins: tuple[Path, ...]


@dataclass(frozen=True)
class Cell:
    """One combination of levels. ``stacks`` by node group; ``origins`` says where each stack's layers were written.

    ``disks``: those of the groups whose nodes are virtual machines, as far as they have one. A group without a stack
    of its own has an empty one.
    """

    number: int
    levels: Mapping[str, str]
    nodes: Mapping[str, NodeGroup]
    stacks: Mapping[str, tuple[Layer, ...]]
    loads: tuple[Load, ...]
    probes: Mapping[str, Probe]
    trial: Trial
    precondition: Workload | None = None
    origins: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    disks: Mapping[str, Disk] = field(default_factory=dict)

    @property
    def in_order(self) -> list[str]:
        """The node groups, each after the one that its disk is made on."""
        ordered: list[str] = []
        while len(ordered) < len(self.nodes):
            ready = [name for name in self.nodes if name not in ordered and self.foundation(name) in (None, *ordered)]
            assert ready, "checked when the study was loaded"
            ordered += ready
        return ordered

    def foundation(self, group: str) -> str | None:
        """The group that a group's disk is made on; ``None`` where that is just this machine."""
        disk = self.disks.get(group)
        return None if disk is None or disk.on not in self.nodes else disk.on

    @property
    def serving(self) -> set[str]:
        """The groups that disks of others are made on, and that have no load of their own."""
        return {disk.on for disk in self.disks.values() if disk.on in self.nodes and not self.working(disk.on)}

    def working(self, group: str) -> bool:
        """Whether a workload runs on these nodes."""
        return any(group in load.on for load in self.loads)

    @property
    def timeout(self) -> float:
        """Seconds that a trial of this cell may take."""
        matching = [
            rule.timeout
            for rule in self.trial.timeouts
            if all(self.levels.get(factor) == level for factor, level in rule.where.items())
        ]
        return matching[-1] if matching else self.trial.timeout
