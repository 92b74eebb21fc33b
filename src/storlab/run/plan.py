"""What a run would do: cells that this machine supports, those that it doesn't and why, space, time, order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storlab.errors import UserError
from storlab.layers.base import Layer
from storlab.nodes.needs import Needs, lacks, together
from storlab.nodes.node import Node
from storlab.run.assembly import shared_layers
from storlab.run.guest_plan import (
    Guests,
    Memory,
    group_needs,
    look_at_guests,
    needs_on_host,
    refuse_guests_too_large,
)
from storlab.run.order import PlannedTrial, round_order
from storlab.run.placement import on_storage, place
from storlab.run.session import Session, node_names, wanted_nodes
from storlab.run.space import free_space, refuse_loads_too_large, refuse_stacks_too_large, stacks_space
from storlab.study.cells import HOST, Cell
from storlab.study.study import Study
from storlab.workloads.base import Workload

OVERHEAD = 0.5  # s a trial, beyond its load: stacks, settling, gathering; replaced by what is measured once it runs
_GUEST = 4.0  # s for each virtual machine, likewise


@dataclass(frozen=True)
class Plan:
    """``unsupported``: cell → reasons. ``space``: bytes on the scratch file system at the worst moment, by node.

    ``guests`` and ``memory`` are of the virtual machines.
    """

    study: Study
    seed: int
    rounds: tuple[int, int]
    unsupported: Mapping[int, tuple[str, ...]]
    space: Mapping[str, int]
    free: Mapping[str, int]
    root_needed_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    guests: Guests = field(default_factory=Guests)
    memory: Memory = field(default_factory=lambda: Memory(0, None))

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader of the results must know first."""
        return self.guests.cautions

    def refuse_empty(self) -> None:
        """Raise ``UserError`` with the reasons where this machine supports no cell at all."""
        if not self.supported:
            reasons = dict.fromkeys(reason for found in self.unsupported.values() for reason in found)
            raise UserError(f"nothing of this study can run here: {'; '.join(reasons)}")

    @property
    def supported(self) -> list[Cell]:
        """The cells that are run."""
        return [cell for cell in self.study.cells if cell.number not in self.unsupported]

    def order(self, round_number: int) -> list[PlannedTrial]:
        """One round in its order. Cells that are not supported keep their place: the order of a run never changes."""
        return round_order([cell.number for cell in self.study.cells], round_number, self.seed)

    def round_time(self, overhead: float = OVERHEAD) -> float | None:
        """Seconds that a round is expected to take; ``None`` where a workload's length depends on the machine.

        ``overhead``: seconds of a trial beyond its load, where they were measured on this machine.
        """
        times = [trial_time(cell, overhead) for cell in self.supported]
        return None if None in times else sum(time or 0.0 for time in times)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest: factors with their levels, and each cell with what is run in it."""
        return {
            "factors": {factor.name: [level.label for level in factor.levels] for factor in self.study.factors},
            "cells": [_cell(cell, self.unsupported.get(cell.number, ())) for cell in self.study.cells],
        }


def trial_time(cell: Cell, overhead: float = OVERHEAD) -> float | None:
    """Seconds that a trial of this cell is expected to take; ``None`` where that is unknown."""
    times = [load.workload.duration(cell.trial.warm_up) for load in cell.loads]
    guests = sum(group.count for group in cell.nodes.values() if group.kind == "vm")
    beyond = cell.trial.settle.wait + overhead + guests * _GUEST
    return None if None in times else max(time or 0.0 for time in times) + beyond


async def make_plan(study: Study, session: Session, seed: int, rounds: tuple[int, int]) -> Plan:
    """Look at the nodes, change nothing. Raises ``UserError`` for what can't be, with its place in the study.

    The plan's own study has every node in its place.
    """
    placed = await place(study, session.host)
    study = placed.study
    await session.launch_missing(wanted_nodes(study.cells))
    guests = await look_at_guests(study, session)
    unsupported: dict[int, tuple[str, ...]] = {}
    checked = _Checks(study, session, guests)
    for cell in study.cells:
        reasons = await checked.lacks_of(cell)
        if reasons:
            unsupported[cell.number] = tuple(reasons)
        else:
            await checked.check(cell)
    supported = [cell for cell in study.cells if cell.number not in unsupported]
    free = {name: await free_space(node, study.model.scratch) for name, node in session.nodes.items()}
    space = stacks_space(supported, session)
    refuse_stacks_too_large(study, supported, space, free)
    await refuse_loads_too_large(study, supported, session)
    _refuse_double_claims(study, supported, session)
    memory = refuse_guests_too_large(study, supported, await session.host.read_text("/proc/meminfo"))
    root = [needs.root for cell in study.cells for needs in needs_on_host(cell) if needs.root]
    notes = (*placed.notes, *study.notes, *_left_out(supported))
    return Plan(study, seed, rounds, unsupported, space, free, tuple(dict.fromkeys(root)), notes, guests, memory)


def _left_out(cells: Sequence[Cell]) -> Iterator[str]:
    """What of the study some load won't do, each sentence once."""
    said = ((load.name, load.workload.leaves_out(cell.trial.warm_up)) for cell in cells for load in cell.loads)
    yield from dict.fromkeys(f"{name}: {what}" for name, what in said if what)


class _Checks:
    """Asks each node each question once, however many cells ask it."""

    def __init__(self, study: Study, session: Session, guests: Guests) -> None:
        self._study, self._session, self._guests = study, session, guests
        self._lacks: dict[tuple[str, Needs], list[str]] = {}
        self._done: set[tuple[str, object]] = set()

    async def lacks_of(self, cell: Cell) -> list[str]:
        found: list[str] = []
        for name, group in cell.nodes.items():
            needs = group_needs(cell, name)
            if group.kind == "vm":
                found += self._guests.lacks(name, needs)
            else:
                for node in self._session.group(name, group):
                    found += await self._lacks_of(node, needs)
        found += await self._lacks_of(self._session.host, together(needs_on_host(cell)))
        return list(dict.fromkeys(found))

    async def _lacks_of(self, node: Node, needs: Needs) -> list[str]:
        key = node.name, needs
        if key not in self._lacks:
            self._lacks[key] = [str(lack) for lack in await lacks(node, needs)]
        return self._lacks[key]

    async def check(self, cell: Cell) -> None:
        """What layers and workloads find wrong without changing anything, as an error with its place in the study.

        Guests don't run yet: what is for them is checked here, where that is possible.
        """
        for disk in cell.disks.values():
            if disk.on == HOST or cell.nodes[disk.on].kind == "local":
                node = self._session.nodes[disk.on]
                for layer, origin in zip(on_storage(disk), disk.origins, strict=False):
                    await self._once(node, layer, origin)
        for name, group in cell.nodes.items():
            guest = group.kind == "vm"
            for node in [self._session.host] if guest else self._session.group(name, group):
                if not guest:
                    for layer, origin in zip(cell.stacks[name], cell.origins[name], strict=True):
                        await self._once(node, layer, origin)
                for load in cell.loads:
                    if name in load.on:
                        await self._check_load(node, load.workload, ("workload", load.name))
                if cell.precondition is not None:
                    await self._check_load(node, cell.precondition, ("trial", "precondition"))

    async def _check_load(self, node: Node, workload: Workload, origin: tuple[str | int, ...]) -> None:
        if not await self._lacks_of(node, workload.needs()):
            await self._once(node, workload, origin)

    async def _once(self, node: Node, what: Any, origin: tuple[str | int, ...]) -> None:
        key = node.name, what.model_dump_json()
        if key in self._done:
            return
        self._done.add(key)
        try:
            await what.check_node(node)
        except UserError as error:
            raise self._study.problem((*origin, *error.key), str(error)) from None


def _refuse_double_claims(study: Study, cells: Sequence[Cell], session: Session) -> None:
    """A device can't be in two stacks that stand at the same time, on several nodes or because stacks are kept."""
    kept: dict[tuple[str, str], tuple[str, str]] = {}
    for cell in cells:
        standing = kept if cell.trial.keep_stacks else {}
        for machine, node_name, layers, origins in _standing_together(cell, session):
            for layer, origin in zip(layers, origins, strict=False):
                claim = layer.claims()
                if claim is None:
                    continue
                owner = node_name, repr(layers)
                if standing.setdefault((machine, claim), owner) != owner:
                    reason = "several stacks that stand at the same time: take a device for each"
                    if cell.trial.keep_stacks:
                        reason += ", or leave out keep_stacks"
                    raise study.problem(origin, f"{claim} is in {reason}")


def _standing_together(
    cell: Cell, session: Session
) -> Iterator[tuple[str, str, Sequence[Layer], Sequence[tuple[str | int, ...]]]]:
    """Machine, node, layers and their places in the study, of every stack of a cell that stands on this machine."""
    for name, group in cell.nodes.items():
        if group.kind == "local":
            for node in session.group(name, group):
                yield session.machines[node.name], node.name, cell.stacks[name], cell.origins[name]
    here = session.machines[session.host.name]
    for name, disk in cell.disks.items():
        if disk.on == HOST or cell.nodes[disk.on].kind == "local":
            layers = on_storage(disk)
            split = shared_layers(layers)
            yield here, name, layers[:split], disk.origins
            for node_name in node_names(name, cell.nodes[name]):
                yield here, node_name, layers[split:], disk.origins[split:]


def _cell(cell: Cell, unsupported: Sequence[str]) -> dict[str, Any]:
    return {
        "cell": cell.number,
        "levels": dict(cell.levels),
        "stack": _dump(_first(cell.stacks)),
        "stacks": {name: _dump(layers) for name, layers in cell.stacks.items() if layers},
        "disks": {name: {"on": disk.on, "layers": _dump(disk.layers)} for name, disk in cell.disks.items()},
        "workloads": [load.name for load in cell.loads],
        "unsupported": list(unsupported),
    }


def _dump(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    return [layer.model_dump(mode="json", by_alias=True, exclude_none=True) for layer in layers]


def _first(stacks: Mapping[str, Sequence[Layer]]) -> Sequence[Layer]:
    return next((layers for layers in stacks.values() if layers), ())
