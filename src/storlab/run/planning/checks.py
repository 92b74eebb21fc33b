"""Where nodes are, what a cell needs of them, and whether they can do what is asked, before anything runs.

A place is the same for all cells: a comparison between a disk that was made here and one that was made in a guest would
tell the places apart, not the disks. What is made in a guest reaches the others over NBD.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from storlab.base.errors import NodeError, UserError
from storlab.base.programs import unused_user
from storlab.base.units import shown
from storlab.base.waiting import all_of
from storlab.layers.base import Layer
from storlab.layers.block.device import refuse_changed
from storlab.nodes.agent.protocol import MAX_TURNS
from storlab.nodes.identity import Machine
from storlab.nodes.kind import NodeKind, Prepared, check_machine_network
from storlab.nodes.needs import Lack, Needs, lacks, together
from storlab.nodes.network import NEEDS as RUN_NETWORK
from storlab.nodes.network import UPLINK_NEEDS as UPLINK
from storlab.nodes.node import Node
from storlab.nodes.privileges import confinement
from storlab.run.planning.space import Device
from storlab.run.session import Session
from storlab.run.trial.subjects import watched_groups
from storlab.study.cells import HOST, Cell, Load, node_names
from storlab.study.chains import ChainError, Link, node_specs
from storlab.study.schema import NodeGroup, default_groups
from storlab.study.study import Study
from storlab.workloads.base import Workload


async def open_machines(study: Study, session: Session) -> None:
    """Open the nodes on other machines that are there for the whole run, all at once.

    Raises ``StudyError`` if two of a cell, or one and this machine, are the same machine.
    """
    specs = {
        (name, spec.model_dump_json()): (group, name, spec)
        for cell in study.cells
        for group, of_group in cell.nodes.items()
        if of_group.session and not of_group.here
        for name, spec in node_specs(group, of_group).items()
    }
    opened = await all_of(*(_opened(study, session, *each) for each in specs.values()))
    nodes = dict(zip(specs, opened, strict=True))
    for cell in study.cells:
        _refuse_same(study, cell, nodes, session.host.identity.machine)


async def _opened(study: Study, session: Session, group: str, name: str, spec: NodeKind) -> Node | None:
    try:
        return await session.stand_in(name, spec)
    except NodeError as error:
        raise study.problem(("nodes", group), str(error)) from None


def _refuse_same(study: Study, cell: Cell, nodes: dict[tuple[str, str], Node | None], here: Machine) -> None:
    known: list[tuple[str, Machine]] = [(HOST, here)]
    for group, of_group in cell.nodes.items():
        for number, (name, spec) in enumerate(node_specs(group, of_group).items()):
            node = nodes.get((name, spec.model_dump_json()))
            if node is None:
                continue
            mine = node.identity.machine
            for other, machine in known:
                if why := _same(mine, machine):
                    first = "this machine" if other == HOST else f"node {other}"
                    at: Sequence[str | int] = ("nodes", group, *(("hosts", number) if "hosts" in spec.__dict__ else ()))
                    raise study.problem(tuple(at), f"node {name} ({spec.describe()}) {why.format(first)}")
            known.append((name, mine))


def _same(one: Machine, other: Machine) -> str:
    """How two machines are one, in words; empty where they are two. Copies of one image may share a machine id."""
    if one.boot == other.boot:
        return "is {} under another name, by its boot id: name each machine once"
    if one.id and one.id == other.id:
        return (
            "has the machine id of {}, so the two can't be told apart later: if it is a copy, give it another by "
            "`rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup` there"
        )
    return ""


async def place(study: Study, host: Node) -> Study:
    """The study with every node's place decided, and in its notes what was decided, and why.

    Raises ``StudyError`` if a chain can't be on this machine.
    """
    names = dict.fromkeys(
        name for cell in study.cells for name, group in cell.nodes.items() if group.placement == "auto"
    )
    try:
        missing = {name: _telling(await lacks(host, _needs(study.cells, name))) for name in names}
        here = {name for name, reasons in missing.items() if not reasons}
        cells = tuple(cell.with_groups(_moved(cell, here)) for cell in study.cells)
        for cell in cells:
            assert cell.all_chains is not None  # what can't be is found now
    except ChainError as error:
        raise study.problem(error.origin, str(error)) from None
    notes = (_note(name, reasons) for name, reasons in missing.items())
    return replace(study, cells=cells, notes=(*notes, *study.notes))


def _moved(cell: Cell, here: set[str]) -> dict[str, NodeGroup]:
    local = type(default_groups()[HOST])
    common = NodeGroup.model_fields.keys() - {"kind"}
    return {
        name: local.model_construct(kind="local", **{key: getattr(group, key) for key in common})
        for name, group in cell.groups.items()
        if name in here
    }


def _needs(cells: Sequence[Cell], name: str) -> Needs:
    """All that the layers need which would stand here, in any cell. What is moved crosses to nobody."""
    moved = (cell.with_groups(_moved(cell, {name})) for cell in cells if name in cell.nodes)
    return together(layer.needs() for cell in moved for layer in cell.layers_on(name))


def _telling(found: Sequence[Lack]) -> list[str]:
    """What is missing, in words; where the kernel lacks something, all else is beside the point."""
    return [lack.what for lack in found if "kernel" in lack.what] or [lack.what for lack in found]


def _note(name: str, missing: Sequence[str]) -> str:
    if not missing:
        return f"{name}: the disks are made on this machine, which has all that they need"
    return f"{name}: the disks are made on a virtual machine and served over NBD, since {'; '.join(missing)}"


Origin = tuple[str | int, ...]
"""Where something stands in the study."""


def group_needs(cell: Cell, name: str) -> Needs:
    """All that a cell needs of the nodes of one group: for its layers, loads and probes."""
    workloads = [load.workload for load in cell.yielding if name in load.groups]
    if cell.precondition is not None and name not in cell.serving:
        workloads.append(cell.precondition)
    probes = [probe.needs() for probe in cell.probes.values() if name in watched_groups(probe, cell)]
    shape = [cell.network.needs()] if cell.network is not None and cell.networked(name) else []
    if name in cell.nodes and cell.nodes[name].settings:
        shape.append(Needs(root="settings of the kernel"))
    if any(load.limits is not None and name in load.groups for load in cell.yielding):
        shape.append(Needs(root="limits of loads"))
    layers = (layer.needs() for layer in cell.layers_on(name))
    return together([*layers, *shape, *(workload.needs() for workload in workloads), *probes])


def needs_here(cell: Cell) -> Needs:
    """What this machine itself must have for a cell, beyond what nodes need that are this machine."""
    probes = [probe.needs() for probe in cell.probes.values() if HOST in watched_groups(probe, cell)]
    kinds = [group.needs() for group in cell.nodes.values()]
    network = [RUN_NETWORK for name, group in cell.nodes.items() if cell.networked(name) and group.network_of == "run"]
    network += [UPLINK for chain in cell.chains if cell.by_uplink(chain)]
    below = [layer.needs() for layer in cell.layers_on(HOST)] if HOST not in cell.nodes else []
    return together([*probes, *kinds, *network, *below])


def node_needs(cell: Cell) -> list[Needs]:
    return [group_needs(cell, name) for name in cell.nodes if cell.is_here(name)]


def key_of(group: NodeGroup) -> str:
    """What tells nodes of a group apart, where a factor is in their keys."""
    return group.spec().model_dump_json()


class Checks:
    """Asks each node each question once, however many cells ask it."""

    def __init__(self, study: Study, session: Session, prepared: Mapping[tuple[str, str], Prepared]) -> None:
        """``prepared``: what was found out of the nodes of each group, by its name and its ``key_of``."""
        self._study, self._session, self._prepared = study, session, prepared
        self._lacks: dict[tuple[str, Needs], list[str]] = {}
        self._done: set[tuple[str, object]] = set()
        self._loads: dict[tuple[str, type[Workload]], list[tuple[Node, Workload, Origin]]] = {}
        self.claimed: dict[tuple[str, str], Device] = {}  # node, path → the device that it leads to, and where

    async def lacks_of(self, cell: Cell) -> list[str]:
        found: list[str] = []
        for name, group in cell.nodes.items():
            needs = group_needs(cell, name)
            for node in await self._nodes(name, group):
                for load in cell.loads:
                    if name in load.groups:
                        await self._refuse_absent(name, group, node, load.workload, ("workload", load.name))
                found += await self._absent(name, group, node, needs)
        found += await self._lacks_of(self._session.host, needs_here(cell))
        return list(dict.fromkeys(found))

    async def _nodes(self, name: str, group: NodeGroup) -> list[Node | None]:
        """Those of a group that can be asked: one where all are alike, ``None`` where they don't run yet."""
        asked: list[Node | None] = []
        for own, spec in node_specs(name, group).items():
            node = await self._session.stand_in(own, spec)
            if not any(node is other for other in asked):
                asked.append(node)
        return asked

    async def _absent(self, name: str, group: NodeGroup, node: Node | None, needs: Needs) -> list[str]:
        return self._prepared[name, key_of(group)].lacks(needs) if node is None else await self._lacks_of(node, needs)

    async def _refuse_absent(
        self, name: str, group: NodeGroup, node: Node | None, workload: Workload, origin: Origin
    ) -> None:
        """A set-up whose own program is missing can't be measured anywhere: it is misspelt, or not built yet."""
        for program, key in workload.programs().items():
            if await self._absent(name, group, node, Needs(programs=(program,))):
                where = f"node {name}" if node is None else f"node {node.name}"
                remedy = "write where it is" if "/" in program else "install it, or write its path"
                raise self._study.problem(
                    (*origin, workload.kind, *key), f"there is no program {shown(program)} on {where}: {remedy}"
                )

    async def _lacks_of(self, node: Node, needs: Needs) -> list[str]:
        key = node.name, needs
        if key not in self._lacks:
            self._lacks[key] = [str(lack) for lack in await lacks(node, needs)]
        return self._lacks[key]

    async def check(self, cell: Cell) -> None:
        """What layers and workloads find wrong without changing anything, as an error with its place in the study.

        Nodes that don't run yet can't be asked; loads for them are checked here, where that is possible.
        """
        for unit in filter(lambda unit: unit.links, cell.units):
            group = cell.nodes.get(unit.on)
            spec = None if group is None else node_specs(unit.on, group)[unit.node]
            node = self._session.host if spec is None else await self._session.stand_in(unit.node, spec)
            for link in unit.links if node is not None else ():
                assert node is not None
                if self._is_new(node, link.layer):
                    await self._ask(node, link.layer, link.origin)
                await self._identify(node, unit.node, link)
        for name, group in cell.nodes.items():
            await self._check_network(name, group)
            for node in [each or self._session.host for each in await self._nodes(name, group)]:
                for load in cell.loads:
                    if name in load.groups:
                        await self._check_load(node, load.workload, ("workload", load.name))
                if cell.verified is not None and name in cell.verified.groups:
                    await self._check_load(node, cell.verified.workload, ("trial", "verify"))
                if cell.precondition is not None:
                    await self._check_load(node, cell.precondition, ("trial", "precondition"))

    async def _check_network(self, name: str, group: NodeGroup) -> None:
        if group.network_of == "run" or (name, key_of(group)) in self._done:
            return
        self._done.add((name, key_of(group)))
        for own, spec in node_specs(name, group).items():
            node = await self._session.stand_in(own, spec)
            assert node is not None, "such nodes are there for the whole run"
            try:
                await check_machine_network(node, getattr(spec, "address", None) or node.address, spec.shaped)
            except UserError as error:
                raise self._study.problem(("nodes", name, *error.key), str(error)) from None

    async def check_loads(self) -> None:
        """All loads that the cells have, those of a kind together: some tools can be asked about many at once."""
        for (_, kind), found in self._loads.items():
            node = found[0][0].confined(confinement(found[0][0], user=unused_user()))
            origins = {id(workload): origin for _, workload, origin in found}
            for workload in await kind.unchecked(node, [workload for _, workload, _ in found]):
                await self._ask(node, workload, origins[id(workload)])

    async def _identify(self, node: Node, name: str, link: Link) -> None:
        """Keep which device a name of the study leads to. Refuse it where that was another when the run was planned."""
        path = link.layer.claims()
        if path is None or (name, path) in self.claimed:
            return
        device = await link.layer.identify(node)
        there = link.layer.claims_on(node)
        if device is None or there is None:
            return
        machine = node.identity.machine.id
        try:
            refuse_changed(node, there, self._session.devices.get((machine, there)), device)
        except UserError as error:
            raise self._study.problem((*link.origin, "path"), str(error)) from None
        self._session.devices[machine, there] = device
        self.claimed[name, path] = machine, device

    async def _check_load(self, node: Node, workload: Workload, origin: Origin) -> None:
        if not await self._lacks_of(node, workload.needs()) and self._is_new(node, workload):
            self._loads.setdefault((node.name, type(workload)), []).append((node, workload, origin))

    def _is_new(self, node: Node, what: Layer | Workload) -> bool:
        key = node.name, what.model_dump_json()
        new = key not in self._done
        self._done.add(key)
        return new

    async def _ask(self, node: Node, what: Layer | Workload, origin: Origin) -> None:
        try:
            await what.check_node(node)
        except UserError as error:
            raise self._study.problem((*origin, *error.key), str(error)) from None


def refuse_unsliceable(study: Study, cells: Sequence[Cell]) -> None:
    """Raise ``StudyError`` if a study asks for slices that some cell can't work in, with the reason."""
    ways = {(cell.trial.slices, cell.trial.parallel) for cell in cells}
    if ways <= {(None, False)}:
        return
    if len(ways) > 1:
        raise study.problem(("trial",), "all cells of a round work alike: write slices and parallel without factors")
    ((length, parallel),) = ways
    what = "parallel" if parallel else "slices"
    for cell in cells:
        groups = {name for load in cell.loads for name in load.groups}
        if sum(len(node_names(name, cell.nodes[name])) for name in groups) > 1:
            raise study.problem(("trial", what), f"its loads would be on several nodes at once: leave out {what}")
        for load in cell.loads:
            if reason := _reason(cell, load):
                message = f"{load.name} cannot be paused and resumed: {reason}; or leave out [trial] {what}"
                raise study.problem(("workload", load.name), message)
            seconds = (load.workload.duration(0.0) or 0.0) + cell.trial.warm_up
            if length is not None and math.ceil(seconds / length) > MAX_TURNS:
                message = f"{load.name} would have {math.ceil(seconds / length)} slices a round, of at most {MAX_TURNS}"
                raise study.problem(("trial", "slices"), f"{message}: make them longer, or its runtime shorter")


def _reason(cell: Cell, load: Load) -> str:
    layers = [link.layer for chain in cell.chains for link in chain.links]
    later = next((layer.label() for layer in layers if layer.flush), "")
    return load.workload.unsliceable(later)


def about_slices(cells: Sequence[Cell]) -> Iterator[str]:
    """What a reader of the plan and of the results must know of them."""
    trial = next((cell.trial for cell in cells), None)
    if trial is None or not trial.side_by_side:
        return
    if trial.slices is None:
        yield (
            "The cells of a round are set up side by side and work at the same time: this says how they fare against "
            "each other, and not how fast each of them is by itself."
        )
    else:
        yield (
            f"The cells of a round are set up side by side and work in turns of {trial.slices:g} s, in an order drawn "
            "by lot; rates are over the time for which each worked."
        )
    left_out = {
        name: None
        for cell in cells
        for name, probe in cell.probes.items()
        if not probe.in_slices and watched_groups(probe, cell)
    }
    if left_out:
        yield f"Left out, as they can't tell whose turn it is: {', '.join(left_out)}."
