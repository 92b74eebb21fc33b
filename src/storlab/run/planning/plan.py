"""What a run would do: cells that this machine supports, those that it doesn't and why, space, time, order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from storlab.analysis.questions import compared_cells, count_of_pairs
from storlab.base.errors import MissingImage, MissingTool, UserError
from storlab.base.limits import COMPARISONS
from storlab.base.text import alike, connected, grouped, ranges
from storlab.layers.resources import Disk
from storlab.nodes.kind import Prepared
from storlab.nodes.needs import together
from storlab.records.manifest import Order
from storlab.run.permissions import NO_PERMISSIONS, UNCONFINED, Permissions, Want
from storlab.run.planning.checks import (
    Checks,
    about_slices,
    group_needs,
    key_of,
    needs_here,
    node_needs,
    open_machines,
    place,
    refuse_unsliceable,
)
from storlab.run.planning.design import design_of
from storlab.run.planning.metrics import narrowed, refuse_unknown_metrics
from storlab.run.planning.order import PlannedTrial, round_order
from storlab.run.planning.space import Room, guests_memory, loads_space, refuse_double_claims, stacks_room
from storlab.run.planning.wants import refuse_unpermitted
from storlab.run.session import Session
from storlab.study.cells import Cell
from storlab.study.chains import Chain
from storlab.study.layout import kept_for_a_round
from storlab.study.study import Study


@dataclass(frozen=True)
class Plan:
    """``unsupported``: cell → reasons. ``space``: bytes of stacks on the scratch file system at the worst moment;
    ``laid_out``: what loads write into directories that exist, at the worst moment, by the directory.

    ``prepared`` is what was found out of the nodes of each group; ``memory`` is what they take up of this machine's.
    """

    study: Study
    seed: int
    rounds: tuple[int, int]
    unsupported: Mapping[int, tuple[str, ...]]
    space: Room
    root_needed_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    permissions: Permissions = NO_PERMISSIONS
    prepared: Mapping[str, Prepared] = field(default_factory=dict)
    memory: Room = field(default_factory=lambda: Room(0, None))
    order_rule: Order = "together"
    laid_out: Mapping[str, Room] = field(default_factory=dict)
    wants: tuple[Want, ...] = ()
    assigned: tuple[int, int] | None = None  # the rounds that are done here, where other machines do the others

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader of the results must know first."""
        of_nodes = (caution for prepared in self.prepared.values() for caution in prepared.cautions)
        freedom = [UNCONFINED] if self.permissions.unconfined else []
        cells = self.supported
        return tuple(dict.fromkeys((*freedom, *of_nodes, *_of_one_boot(cells), *_kept(cells), *_in_memory(cells))))

    @property
    def emulated(self) -> bool:
        return any(prepared.emulated for prepared in self.prepared.values())

    def refuse_empty(self) -> None:
        """Raise ``UserError`` with the reasons where this machine supports no cell at all."""
        if not self.supported:
            reasons = dict.fromkeys(reason for found in self.unsupported.values() for reason in found)
            raise UserError(f"nothing of this study can run here: {'; '.join(reasons)}")

    @property
    def supported(self) -> list[Cell]:
        return [cell for cell in self.study.cells if cell.number not in self.unsupported]

    def order(self, round_number: int) -> list[PlannedTrial]:
        """One round in its order. Cells that are not supported keep their place: the order of a run never changes."""
        groups = self.groups if self.order_rule == "together" else None
        return round_order([cell.number for cell in self.study.cells], round_number, self.seed, self.blocks, groups)

    @cached_property
    def groups(self) -> Mapping[int, int]:
        """Cell → group: cells that are compared, directly or through others."""
        return connected((cell.number for cell in self.study.cells), compared_cells(design_of(self.study)))

    @property
    def side_by_side(self) -> bool:
        return any(cell.trial.side_by_side for cell in self.study.cells)

    @property
    def slices(self) -> float | None:
        """Seconds of the turns in which they then work; ``None`` if that is at once."""
        return next((cell.trial.slices for cell in self.study.cells), None)

    @cached_property
    def blocks(self) -> Mapping[int, int]:
        """Cell → block: cells of one block share what is kept for a round."""
        kept = {cell.number: shared for cell in self.study.cells if (shared := kept_for_a_round(cell))}
        numbers = {shared: number for number, shared in enumerate(dict.fromkeys(kept.values()), start=1)}
        return {cell: numbers[shared] for cell, shared in kept.items()}

    def as_dict(self) -> dict[str, Any]:
        """For the manifest: factors with their levels, and each cell with what is run in it."""
        return {
            "factors": {factor.name: [level.label for level in factor.levels] for factor in self.study.factors},
            "cells": [_cell(cell, self.unsupported.get(cell.number, ())) for cell in self.study.cells],
        }


async def make_plan(
    study: Study,
    session: Session,
    seed: int,
    rounds: tuple[int, int],
    order: Order = "together",
    *,
    without_image: bool = False,
) -> Plan:
    """Look at the nodes, change nothing. Raises ``UserError`` for what can't be, with its place in the study.

    The plan's own study has every node in its place. ``order``: that of the run, where one is resumed.
    ``without_image``: a guest image that has to be built first is a note, and not refused as ``MissingImage``.
    """
    _refuse_too_many_comparisons(study)
    refuse_unknown_metrics(study)
    study = await place(narrowed(study), session.host)
    wants = refuse_unpermitted(study, session.permissions)
    images: dict[str, None] | None = {} if without_image else None
    prepared = await _prepare(study, session, images)
    await open_machines(study, session)
    unsupported: dict[int, tuple[str, ...]] = {}
    checked = Checks(study, session, prepared)
    for cell in study.cells:
        reasons = await checked.lacks_of(cell)
        if reasons:
            unsupported[cell.number] = tuple(reasons)
        else:
            await checked.check(cell)
    await checked.check_loads()
    supported = [cell for cell in study.cells if cell.number not in unsupported]
    refuse_unsliceable(study, supported)
    together = any(cell.trial.side_by_side for cell in supported)
    space = await stacks_room(study, supported, session, together)
    laid_out = await loads_space(study, supported, session)
    refuse_double_claims(study, supported, checked.claimed, together)
    meminfo = await session.host.read_text("/proc/meminfo")
    memory = guests_memory(study, supported, meminfo, together)
    root = [needs.root for cell in study.cells for needs in [needs_here(cell), *node_needs(cell)] if needs.root]
    of_cells = (*about_slices(supported), *_left_out(supported), *_shared_in_rounds(supported))
    notes = alike((*study.notes, *(images or ()), *of_cells))
    needed = tuple(dict.fromkeys(root))
    of_groups = {name: each for (name, _), each in prepared.items()}
    found = needed, tuple(notes), session.permissions, of_groups, memory
    return Plan(study, seed, rounds, unsupported, space, *found, order, laid_out, wants=wants)


def _refuse_too_many_comparisons(study: Study) -> None:
    """Each is judged after each round, and the more there are, the more evidence each takes."""
    count = count_of_pairs(design_of(study))
    if count > COMPARISONS:
        said = f"{count:,} pairs of cells would be compared, more than {COMPARISONS:,}"
        at = ("compare", 0) if study.model.compare else ("factors",)
        raise study.problem(at, f"{said}: name the pairs of levels that matter, in [[compare]] pairs, or use --only")


async def _prepare(study: Study, session: Session, images: dict[str, None] | None) -> dict[tuple[str, str], Prepared]:
    """What is found out of each group's nodes, by its name and its keys. Raises an error with its place in the study.

    A missing image is noted in ``images``, and of its nodes nothing is known; without these, it is raised.
    """
    prepared = {}
    needed = grouped((name, group_needs(cell, name)) for cell in study.cells for name in cell.nodes)
    needs = {name: together(dict.fromkeys(each)) for name, each in needed.items()}
    for cell in study.cells:
        for name, group in cell.nodes.items():
            try:
                prepared[name, key_of(group)] = await session.prepare(name, group.spec(), needs[name])
            except MissingImage as error:
                if images is None:
                    raise
                images[f"{error}. What its guests would lack is not known before"] = None
                prepared[name, key_of(group)] = Prepared()
            except MissingTool:
                raise
            except UserError as error:
                raise study.problem(("nodes", name, *error.key), str(error)) from None
    return prepared


def _shared_in_rounds(cells: Sequence[Cell]) -> Iterator[str]:
    """Which cells follow each other, because they share what is kept for a round."""
    shared = grouped((kept, cell) for cell in cells if (kept := kept_for_a_round(cell)))
    blocks = [those for those in shared.values() if len(those) > 1]
    if not blocks:
        return
    if sum(map(len, blocks)) == len(cells) and (same := _told_apart_by(blocks)):
        yield f"Kept for each round by all cells of the same {' and '.join(same)}, which follow each other"
        return
    named = (f"{_kept_for(those[0])} (cells {ranges([cell.number for cell in those])})" for those in blocks)
    yield f"Kept for each round, by cells that follow each other: {'; '.join(named)}"


def _told_apart_by(blocks: Sequence[Sequence[Cell]]) -> list[str]:
    """The factors of which each block has a single level, if these tell the blocks apart; else none."""
    first = blocks[0][0].levels
    same = [name for name in first if all(len({cell.levels[name] for cell in those}) == 1 for those in blocks)]
    same = [name for name in same if len({those[0].levels[name] for those in blocks}) > 1]
    return same if len({tuple(those[0].levels[name] for name in same) for those in blocks}) == len(blocks) else []


def _kept_for(cell: Cell) -> str:
    layers = (layer for unit in cell.units if unit.keep == "round" for layer in unit.layers)
    boots = (f"the boot of {name}" for name, nodes in cell.nodes.items() if nodes.boots_anew)
    return ", ".join(dict.fromkeys([*boots, *(layer.label() for layer in layers)]))


def _kept(cells: Sequence[Cell]) -> Iterator[str]:
    """What outlives trials, which its reader must know: a verdict about kept things is about these, not their kind."""
    chains = (chain for cell in cells for chain in cell.chains if cell.working(chain.group))
    kept = {link.layer.label() for chain in chains for link in chain.links if link.keep == "run"}
    if kept:
        yield f"Kept for the whole run: {', '.join(sorted(kept))}. Verdicts are about these very instances."


def _of_one_boot(cells: Sequence[Cell]) -> Iterator[str]:
    """Kernels that are compared by copies of one boot of each: rounds don't vary what such a boot happens to be."""
    found = grouped((name, nodes.copied_boot()) for cell in cells for name, nodes in cell.nodes.items())
    for name, boots in found.items():
        if None not in boots and len(set(boots)) > 1:
            yield (
                f"The virtual machines {name} are copies of one boot of each kernel: what is due to that boot can't be "
                'told from the kernel. start = "cold" boots each of them, and keep = "round" once a round.'
            )


def _in_memory(cells: Sequence[Cell]) -> Iterator[str]:
    """A guest's own root is in its memory: what is put there without a disk measures that."""
    for cell in cells:
        for chain in cell.chains:
            first = chain.above[0].layer if chain.above else None
            lowest = chain.crossing is None and first is not None and not first.chains() and first.claims() is None
            if lowest and first is not None and cell.nodes[chain.group].volatile and not issubclass(first.gives, Disk):
                yield (
                    f"The layer {first.label()} of {chain.group} is in the memory of these virtual machines: no layer "
                    "below it, such as virtio-blk, brings them a disk."
                )


def _left_out(cells: Sequence[Cell]) -> Iterator[str]:
    """What of the study some load won't do, each sentence once."""
    said = ((load.name, load.workload.leaves_out(cell.trial.warm_up)) for cell in cells for load in cell.loads)
    yield from dict.fromkeys(f"{name}: {what}" for name, what in said if what)


def _cell(cell: Cell, unsupported: Sequence[str]) -> dict[str, Any]:
    return {
        "cell": cell.number,
        "levels": dict(cell.levels),
        "chains": [_chain(chain) for chain in cell.chains],
        "workloads": [load.name for load in cell.loads],
        "unsupported": list(unsupported),
    }


def _chain(chain: Chain) -> dict[str, Any]:
    places = [(chain.source, chain.below), (chain.group, chain.above)]
    return {
        "nodes": chain.group,
        "name": chain.name,
        "layers": [
            {"on": on, "keep": link.keep}
            | link.layer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"keep", "once"})
            for on, links in places
            for link in links
        ],
    }
