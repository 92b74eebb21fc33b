"""Cells: one for each combination of levels, with everything that is run in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from storlab.layers.base import Layer
from storlab.metrics import MetricSpec
from storlab.nodes.shaping.keys import Network
from storlab.probes.base import Probe
from storlab.study.chains import MAIN, Chain, Chains, Declared, continued, in_order, node_names, resolve, started
from storlab.study.layout import Layout, Unit, layout
from storlab.study.schema import HOST, NodeGroup, Trial
from storlab.workloads.base import Workload
from storlab.workloads.limits import Limits

__all__ = ["HOST", "MAIN", "Cell", "Load", "Target", "node_names"]


@dataclass(frozen=True)
class Target:
    """What a workload runs on: a chain of a node group, by default its own stack."""

    group: str
    chain: str = MAIN


@dataclass(frozen=True)
class Load:
    """One workload of a cell and what it runs on.

    ``same_files``: nodes that share a directory use the same files in it, and not each a folder of its own.
    ``verifies``: it looks at the directory after the loads, and is measured by nothing but what it finds. ``limits``:
    what it may take on each node, if that is limited.
    """

    name: str
    workload: Workload
    on: tuple[Target, ...]
    same_files: bool = False
    verifies: bool = False
    limits: Limits | None = None

    def declares(self) -> tuple[MetricSpec, ...]:
        return self.workload.verifies() if self.verifies else self.workload.declares()

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(target.group for target in self.on)


@dataclass(frozen=True)
class CrashCheck:
    """Power cuts after the rounds. ``load`` commits, beside the cell's own; ``None`` if one of these does."""

    moments: int
    unit: int
    load: Load | None


@dataclass(frozen=True)
class Cell:
    """One combination of levels. ``groups`` are all node groups of the study, ``declared`` their stacks as written.

    ``network``: what the study asks of the network among the nodes; ``None``: nothing. ``verified``: what looks at the
    loads' directories after them; ``crash``: what power cuts are tried after the rounds.
    """

    number: int
    levels: Mapping[str, str]
    groups: Mapping[str, NodeGroup]
    declared: tuple[Declared, ...]
    loads: tuple[Load, ...]
    probes: Mapping[str, Probe]
    trial: Trial
    precondition: Workload | None = None
    network: Network | None = None
    verified: Load | None = None
    crash: CrashCheck | None = None

    @property
    def yielding(self) -> tuple[Load, ...]:
        """All that there are results of: the loads, and what looks at their directories after them."""
        return self.loads if self.verified is None else (*self.loads, self.verified)

    @cached_property
    def all_chains(self) -> Chains:
        """Every chain of every group, also of groups that this cell does not start. Raises ``ChainError``."""
        return resolve(self.groups, self.declared)

    @cached_property
    def nodes(self) -> Mapping[str, NodeGroup]:
        """The node groups of this cell, each after the one that it stands on."""
        wanted = started(self.groups, self.all_chains, (name for load in self.loads for name in load.groups))
        return {name: self.groups[name] for name in in_order(self.groups) if name in wanted}

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        return tuple(chain for chain in self.all_chains.values() if chain.group in self.nodes)

    def chain(self, group: str, name: str = MAIN) -> Chain | None:
        """A group's own stack, or a further chain of it; ``None`` where it has none."""
        return self.all_chains.get((group, name)) if group in self.nodes else None

    @cached_property
    def layout(self) -> Layout:
        return layout(self)

    @property
    def units(self) -> tuple[Unit, ...]:
        """All that it sets up, each unit after those that it stands on."""
        return self.layout.units

    def layers_on(self, group: str) -> list[Layer]:
        """All layers that stand on the nodes of a group: its own, and those that others cross from."""
        return [layer for unit in self.units if unit.on == group for layer in unit.layers]

    def is_here(self, group: str) -> bool:
        """Whether a group's nodes share this machine's devices and disks."""
        return group not in self.nodes or self.nodes[group].here

    def continued(self, chain: Chain) -> Chain | None:
        return continued(chain, self.all_chains)

    @property
    def serving(self) -> set[str]:
        """The groups that chains of others cross from, and that have no load of their own."""
        sources = {chain.source for chain in self.chains if chain.crossing is not None}
        return {group for group in sources if group in self.nodes and not self.working(group)}

    @property
    def outward(self) -> list[list[str]]:
        """The groups in waves: those that nobody stands on, those whose shares and disks they use, and so on."""
        waves: dict[str, int] = {}
        for name in reversed([*self.nodes]):
            users = [chain.group for chain in self.chains if chain.source == name and chain.crossing is not None]
            waves[name] = 1 + max((waves[user] for user in users if user in waves), default=-1)
        return [[name for name, wave in waves.items() if wave == number] for number in sorted({*waves.values()})]

    def working(self, group: str) -> bool:
        return any(group in load.groups for load in self.loads)

    def node_names(self) -> Iterator[tuple[str, str]]:
        return ((name, node) for name, group in self.nodes.items() for node in node_names(name, group))

    def networked(self, group: str) -> bool:
        """Whether something is served to these nodes, or by them, over the network among the run's nodes."""
        return any(
            group in (chain.group, chain.source)
            if chain.crossing is not None and chain.crossing.transport == "network"
            else group == chain.source and self._opened_remotely(chain)
            for chain in self.chains
        )

    def shaped(self, group: str) -> bool:
        """Whether the study asks for anything of the network of these nodes, which are on one."""
        shapes = self.network is not None and self.network.shapes
        return (shapes or self.groups[group].tcp is not None) and self.networked(group)

    def by_uplink(self, chain: Chain) -> bool:
        """Whether a chain comes to the run's network from outside of it: from a machine that is on its own."""
        source = self.groups.get(chain.source)
        if chain.crossing is None or source is None or source.network_of == "run":
            return False
        crosses = chain.crossing.transport == "network" or self._opened_remotely(chain)
        return crosses and self.groups[chain.group].network_of == "run"

    def _opened_remotely(self, chain: Chain) -> bool:
        source = self.nodes.get(chain.source)
        crossing = chain.crossing
        return crossing is not None and crossing.transport == "hypervisor" and source is not None and not source.here

    def with_groups(self, groups: Mapping[str, NodeGroup]) -> Cell:
        """The same on other kinds of nodes. Raises ``ChainError``."""
        return replace(self, groups={**self.groups, **groups})

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """All commands that the study words itself, in the order in which they run."""
        workloads = [*filter(None, [self.precondition]), *(load.workload for load in self.yielding)]
        of_loads = (argv for workload in workloads for argv in workload.commands())
        return (*self.trial.prepare, *of_loads, *self.trial.verify)

    @property
    def timeout(self) -> float:
        """Seconds that a trial of this cell may take."""
        matching = [rule.timeout for rule in self.trial.timeouts if rule.where.items() <= self.levels.items()]
        return matching[-1] if matching else self.trial.timeout
