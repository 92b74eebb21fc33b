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
class Cell:
    """One combination of levels. ``stacks`` by node group; ``origins`` says where each stack's layers were written."""

    number: int
    levels: Mapping[str, str]
    nodes: Mapping[str, NodeGroup]
    stacks: Mapping[str, tuple[Layer, ...]]
    loads: tuple[Load, ...]
    probes: Mapping[str, Probe]
    trial: Trial
    precondition: Workload | None = None
    origins: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def timeout(self) -> float:
        """Seconds that a trial of this cell may take."""
        matching = [
            rule.timeout
            for rule in self.trial.timeouts
            if all(self.levels.get(factor) == level for factor, level in rule.where.items())
        ]
        return matching[-1] if matching else self.trial.timeout
