"""What a run would do: cells that this machine supports, those that it doesn't and why, space, time, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storlab.errors import UserError
from storlab.layers.base import Layer
from storlab.layers.stack import stack_needs
from storlab.nodes.needs import Needs, lacks, together
from storlab.nodes.node import Node
from storlab.run.order import PlannedTrial, round_order
from storlab.run.session import Session
from storlab.run.space import free_space, refuse_loads_too_large, refuse_stacks_too_large, stacks_space
from storlab.study.cells import Cell
from storlab.study.study import Study

_OVERHEAD = 0.5  # s a trial, beyond its load: stacks, settling, gathering; replaced by what is measured once it runs


@dataclass(frozen=True)
class Plan:
    """``unsupported``: cell → reasons. ``space``: bytes on the scratch file system at the worst moment, by node."""

    study: Study
    seed: int
    rounds: tuple[int, int]
    unsupported: Mapping[int, tuple[str, ...]]
    space: Mapping[str, int]
    free: Mapping[str, int]
    root_needed_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def supported(self) -> list[Cell]:
        """The cells that are run."""
        return [cell for cell in self.study.cells if cell.number not in self.unsupported]

    def order(self, round_number: int) -> list[PlannedTrial]:
        """One round in its order. Cells that are not supported keep their place: the order of a run never changes."""
        return round_order([cell.number for cell in self.study.cells], round_number, self.seed)

    def round_time(self) -> float | None:
        """Seconds that a round is expected to take; ``None`` where a workload's length depends on the machine."""
        times = [trial_time(cell) for cell in self.supported]
        return None if None in times else sum(time or 0.0 for time in times)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest: factors with their levels, and each cell with what is run in it."""
        return {
            "factors": {factor.name: [level.label for level in factor.levels] for factor in self.study.factors},
            "cells": [_cell(cell, self.unsupported.get(cell.number, ())) for cell in self.study.cells],
        }


def trial_time(cell: Cell) -> float | None:
    """Seconds that a trial of this cell is expected to take; ``None`` where that is unknown."""
    times = [load.workload.duration(cell.trial.warm_up) for load in cell.loads]
    return None if None in times else max(time or 0.0 for time in times) + cell.trial.settle.wait + _OVERHEAD


def cell_needs(cell: Cell) -> Needs:
    """All that a cell needs of its nodes."""
    workloads = [load.workload for load in cell.loads] + ([cell.precondition] if cell.precondition else [])
    return together(
        [
            *(stack_needs(layers) for layers in cell.stacks.values()),
            *(workload.needs() for workload in workloads),
            *(probe.needs() for probe in cell.probes.values()),
        ]
    )


async def make_plan(study: Study, session: Session, seed: int, rounds: tuple[int, int]) -> Plan:
    """Look at the nodes, change nothing. Raises ``UserError`` for what can't be, with its place in the study."""
    unsupported: dict[int, tuple[str, ...]] = {}
    checked = _Checks(study, session)
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
    root = [needs.root for needs in (cell_needs(cell) for cell in study.cells) if needs.root]
    return Plan(study, seed, rounds, unsupported, space, free, tuple(dict.fromkeys(root)), study.notes)


class _Checks:
    """Asks each node each question once, however many cells ask it."""

    def __init__(self, study: Study, session: Session) -> None:
        self._study, self._session = study, session
        self._lacks: dict[tuple[str, Needs], list[str]] = {}
        self._done: set[tuple[str, object]] = set()

    async def lacks_of(self, cell: Cell) -> list[str]:
        found: list[str] = []
        needs = cell_needs(cell)
        for name, group in cell.nodes.items():
            for node in self._session.group(name, group):
                key = node.name, needs
                if key not in self._lacks:
                    self._lacks[key] = [str(lack) for lack in await lacks(node, needs)]
                found += self._lacks[key]
        return list(dict.fromkeys(found))

    async def check(self, cell: Cell) -> None:
        """What layers and workloads find wrong without changing anything, as an error with its place in the study."""
        for name, group in cell.nodes.items():
            for node in self._session.group(name, group):
                for position, layer in enumerate(cell.stacks[name]):
                    await self._once(node, layer, cell.origins[name][position])
                for load in cell.loads:
                    if name in load.on:
                        await self._once(node, load.workload, ("workload", load.name))
                if cell.precondition is not None:
                    await self._once(node, cell.precondition, ("trial", "precondition"))

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
        for name, group in cell.nodes.items():
            for node in session.group(name, group):
                for position, layer in enumerate(cell.stacks[name]):
                    claim = layer.claims()
                    if claim is None:
                        continue
                    owner = node.name, repr(cell.stacks[name])
                    if standing.setdefault((session.machines[node.name], claim), owner) != owner:
                        reason = "several stacks that stand at the same time: take a device for each"
                        if cell.trial.keep_stacks:
                            reason += ", or leave out keep_stacks"
                        raise study.problem(cell.origins[name][position], f"{claim} is in {reason}")


def _cell(cell: Cell, unsupported: Sequence[str]) -> dict[str, Any]:
    return {
        "cell": cell.number,
        "levels": dict(cell.levels),
        "stack": [layer.model_dump(mode="json", by_alias=True, exclude_none=True) for layer in _first(cell.stacks)],
        "stacks": {
            name: [layer.model_dump(mode="json", by_alias=True, exclude_none=True) for layer in layers]
            for name, layers in cell.stacks.items()
        },
        "workloads": [load.name for load in cell.loads],
        "unsupported": list(unsupported),
    }


def _first(stacks: Mapping[str, Sequence[Layer]]) -> Sequence[Layer]:
    return next(iter(stacks.values()), ())
