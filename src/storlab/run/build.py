"""Building cells: a part for each unit of a layout, set up as soon as what it stands on is, and torn down in order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from storlab.base.errors import NodeLost, Unsupported
from storlab.base.waiting import all_of, cancelled
from storlab.layers import stack
from storlab.layers.base import Crossing, Keep, LayerContext, Shared
from storlab.layers.resources import Dir, Share
from storlab.layers.stack import BuiltStack
from storlab.nodes.agent import steps
from storlab.nodes.demands import Demands
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.run.parts import Part, Parts, Program, Shapes
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.reclaim import Teardown
from storlab.run.session import Session
from storlab.study.cells import Cell, node_names
from storlab.study.chains import node_specs
from storlab.study.layout import Unit

_LOOK = 0.2  # s


@dataclass
class Built:
    """A cell that is set up, or that was begun: its nodes by name, and what each of their chains gives."""

    cell: Cell
    number: int = 0  # among the cells that are set up at the same time: they share nothing that is a trial's own
    nodes: dict[str, Node] = field(default_factory=dict)
    stacks: dict[tuple[str, str], BuiltStack] = field(default_factory=dict)  # node, chain
    parts: dict[str, Part] = field(default_factory=dict)  # those that it uses, by key
    underlying: dict[tuple[str, str], BuiltStack] = field(default_factory=dict)  # node, chain: below its crossing

    async def read_facts(self) -> None:
        await all_of(*(part.stack.read_facts() for part in self.parts.values() if part.unit.facts_of))

    def facts(self) -> dict[str, list[dict[str, Any]]]:
        """What each layer was when it was asked last, by node.

        ``on`` names the node that has it, if it is another one; ``chain`` of what, if it is not the node's own stack.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for part in sorted(self.parts.values(), key=lambda p: (p.depth, p.unit.suffix, p.unit.kind == "layers")):
            node = part.unit.facts_of
            place = {"chain": part.unit.suffix} if part.unit.suffix else {}
            if part.node is not None and part.node.name != node:
                place["on"] = part.node.name
            found.setdefault(node, []).extend({**facts, **place} for facts in part.stack.facts)
        return {name: facts for name, facts in found.items() if name and facts}

    def group_of(self, node: str) -> str:
        return next(group for group, name in self.cell.node_names() if name == node)

    def settings_of(self, node: Node) -> Mapping[str, int | str]:
        """What the study sets of a node's kernel; this machine may be none of the cell's nodes."""
        of = [group for group, name in self.cell.node_names() if name == node.name]
        return self.cell.nodes[of[0]].settings if of else {}

    def group(self, name: str) -> list[Node]:
        return [self.nodes[node] for node in node_names(name, self.cell.nodes[name])]

    def shares_directory(self, group: str, chain: str) -> bool:
        """Whether several nodes work in one directory: what their crossings stand on is the same for all of them."""
        resources = [below.resource for (_, name), below in self.underlying.items() if name == chain]
        names = node_names(group, self.cell.nodes[group])
        mine = [self.underlying[node, chain].resource for node in names if (node, chain) in self.underlying]
        return any(resources.count(each) > 1 for each in mine if isinstance(each, Dir | Share))


class Builder:
    """Builds one cell. Consoles of its nodes go to ``folder``, and to ``kept`` of those that outlive the trial; what
    this process itself keeps of layers goes to where ``held`` says these are.
    """

    def __init__(
        self, session: Session, parts: Parts, built: Built, folder: Path, kept: Path, held: Callable[[Path], Path]
    ) -> None:
        self._session, self._parts, self._built, self._cell = session, parts, built, built.cell
        self._folder, self._kept, self._held = folder, kept, held
        self._shapes = Shapes(session, parts, built.cell)
        self._made: dict[str, Part] = {}  # by the identity of its unit

    async def build(self) -> None:
        """Set everything up. On failure, what is set up stays until its parts are torn down."""
        layout, done = self._cell.layout, {unit.identity: asyncio.Event() for unit in self._cell.units}

        async def make(unit: Unit) -> None:
            for each in unit.stands_on:
                await done[each.identity].wait()
            self._made[unit.identity] = await self._part(unit, [self._made[each.identity] for each in unit.stands_on])
            done[unit.identity].set()

        await all_of(*map(make, layout.units))
        built = self._built
        # In the study's order, whichever was there first.
        built.nodes = {name: built.nodes[name] for _, name in self._cell.node_names()}
        built.underlying = {place: self._made[unit.identity].stack for place, unit in layout.underlying.items()}
        built.stacks = {
            place: BuiltStack(None) if unit is None else self._made[unit.identity].stack
            for place, unit in layout.tops.items()
        }
        await self._shapes.look()

    async def _part(self, unit: Unit, below: Sequence[Part]) -> Part:
        apart = f"-{self._built.number}" if unit.keep == "trial" and self._built.number else ""
        key, used = f"{unit.identity}{apart}", self._built.parts
        match unit.kind:
            case "node":
                return await self._node(unit, key, below)
            case "network":
                return await self._shapes.of(unit, key, below, used)
            case "layers":
                if unit.crossing is not None:
                    await self._shapes.cross(unit.crossing, below[0])
                return await self._parts.get(unit, key, below, partial(self._set_up, of=below[0]), used)

    async def _node(self, unit: Unit, key: str, below: Sequence[Part]) -> Part:
        spec = self._cell.nodes.get(unit.on)
        slot = f"boot of {unit.node}" if spec is not None and spec.boots_anew else ""
        for chain, _, _ in unit.crossings:
            await self._shapes.open_way(chain, None)  # QEMU opens it
        if slot:  # all that is set up in another boot goes before the machine does
            await self._parts.make_room(slot, key)
        part = await self._parts.get(unit, key, below, self._start, self._built.parts, slot)
        if spec is not None:
            assert part.node is not None
            self._built.nodes[unit.node] = part.node
            if not self._cell.shaped(unit.on):  # its network is as it was again
                await self._shapes.make_room(part.node)
        return part

    async def _start(self, part: Part) -> None:
        unit = part.unit
        spec = self._cell.nodes.get(unit.on)
        if spec is None:
            part.node = self._session.host
            return
        demands = Demands(network=self._cell.networked(unit.on))
        for chain, slot, below in unit.crossings:
            resource = self._made[below.identity].stack.resource
            assert chain.crossing is not None and resource is not None, "checked when the study was loaded"
            demands |= chain.crossing.demands(resource, slot)
            for link in chain.above:
                demands |= Demands(root=link.layer.boots(slot))
        own = node_specs(unit.on, spec)[unit.node]
        part.started = not spec.session
        part.node = await self._session.open(unit.node, unit.on, own, demands, self._records(unit) / unit.node)
        if spec.boots_anew:
            part.booted = True
            await self._session.boot(part.node, own)

    def _records(self, unit: Unit) -> Path:
        return self._held(self._folder if unit.keep == "trial" else self._kept)

    async def _set_up(self, part: Part, of: Part) -> None:
        """Layers, on the node ``of`` a part."""
        node = part.node = of.node
        assert node is not None
        unit = part.unit
        register, lost = self._parts.registering(part, node), self._parts.losing(part)
        records = self._records(unit) / unit.facts_of / "stack"
        foundation = unit.foundation
        shared = Shared(register_undo=register) if foundation is None else self._made[foundation.identity].shared
        part.shared = shared
        folder = f"{await self._session.scratch_on(node)}/{unit.owner}-{part.key}"
        tops = {name: [self._made[top.identity].stack.resource for top in tops] for name, tops in unit.further.items()}
        others = {name: [each for each in resources if each] for name, resources in tops.items()}

        def context_of(at: int) -> LayerContext:
            return LayerContext(
                node,
                folder,
                unit.position + at,
                self._session.run,
                register,
                unit.owner,
                shared,
                unit.slot,
                others,
                records=records,
                notify_running=lambda name, *where: part.programs.append(Program(f"{name}-{unit.owner}", *where)),
                notify_lost=lost,
                warn=self._parts.warnings.append,
                planned=self._session.planned_on(node),
                claim=self._session.claims.claim,
                system=partial(self._system_disk, unit),
            )

        on = None if unit.below is None else self._made[unit.below.identity].stack.resource
        part.stack = await stack.set_up(unit.layers, context_of, on, [steps.make_directory(folder, parents=True)])
        if unit.layers and isinstance(crossing := unit.layers[0], Crossing):
            part.crossings.append((crossing, part.stack.resources[0], context_of(0)))

    async def _system_disk(self, unit: Unit, size: int) -> Path:
        """The root file system of the nodes that a layer below their crossing is for."""
        chain = unit.chain
        if chain is None or unit.position >= len(chain.below) or chain.group not in self._cell.nodes:
            raise Unsupported("this machine has no root file system that could be put on a disk")
        prepared = await self._session.prepare(chain.group, self._cell.nodes[chain.group].spec(), Needs())
        return await asyncio.to_thread(prepared.system_disk, size)


@dataclass
class Setups:
    """All that is set up in a run. ``folder``: the run's, for the consoles of nodes that outlive a trial.

    ``held``: what this process itself writes into below ``folder``, if its name may come to lead elsewhere.
    """

    session: Session
    journal: Journal
    folder: Path
    held: Callable[[Path], Path] = lambda path: path
    parts: Parts = field(init=False)
    _live: dict[int, Built] = field(default_factory=dict)  # the cells that are set up, by number
    _seen: list[Built] = field(default_factory=list)  # those that were, since losses are counted

    def __post_init__(self) -> None:
        self.parts = Parts(self.session, self.journal)

    def begin(self, cell: Cell) -> Built:
        number = next(number for number in itertools.count() if number not in self._live)
        built = self._live[number] = Built(cell, number)
        self._seen.append(built)
        return built

    async def set_up(self, built: Built, folder: Path) -> None:
        """Set up what the cell needs and is not there already. ``folder``: the trial's, for its nodes' consoles."""
        await Builder(self.session, self.parts, built, folder, self.folder / "guests", self.held).build()

    async def tear_down(self, built: Built, *, failed: bool) -> Teardown:
        """Tear down what is not kept after a trial; where it ``failed``, all that it used.

        What other cells use at the same time stays until the last of them has ended, unless it is lost for them, too.
        """
        self._live.pop(built.number, None)
        used = {key for other in self._live.values() for key in other.parts}
        doomed = []
        for part in built.parts.values():
            part.doubtful |= failed and part.is_set_up
            lost = not part.sound
            if lost or ((part.doubtful or part.unit.keep == "trial") and part.key not in used):
                doomed.append(part)
        return await self.parts.tear_down(doomed, severed=failed)

    async def end_of(self, keep: Keep) -> Teardown:
        return await self.parts.tear_down(
            part for part in self.parts.all() if part.unit.keep == keep and part.is_set_up
        )

    async def tear_down_all(self) -> Teardown:
        return await self.parts.tear_down(self.parts.all())

    async def cut_off(self, built: Built) -> None:
        """End the nodes that the cell started, and cut others off from what crosses to them: nothing waits any more.

        What other cells use at the same time is cut off, too: it may be what the cell waits for. They fail for that.
        What was set up stays in the journal.
        """
        parts = list(built.parts.values())
        await self.parts.end_nodes(parts)
        await self.parts.sever(reversed(parts))

    async def until_lost(self, built: Built) -> None:
        """Wait until a node or a program that a cell has is gone before its time. Raises ``NodeLost``."""
        await self._until_any_is_lost()
        while not (losses := self._losses(built)):  # noqa: ASYNC110 - what is lost is another cell's, which is rare
            await asyncio.sleep(_LOOK)
        raise NodeLost(min((at, reason) for _, at, reason, _ in losses)[1])

    async def _until_any_is_lost(self) -> None:
        waiting = [asyncio.create_task(each) for each in (self.parts.until_lost(), self.session.until_one_is_lost())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(*waiting)

    def forget_losses(self) -> None:
        self._seen = list(self._live.values())
        self.parts.forget_losses()
        self.session.forget_losses()

    def first_loss(self, built: Built) -> tuple[float, str, str] | None:
        """Of all that was lost, what is lowest: the rest may only follow from it. When, why, and its last lines."""
        found = self._losses(built)
        return min(found)[1:] if found else None

    def _losses(self, built: Built) -> list[tuple[int, float, str, str]]:
        """Depth in the graph, when, why and its last lines, of all that was lost but what only other cells have."""
        others = [part for other in self._seen if other is not built for part in other.parts.values()]
        foreign = {part.key for part in others} - built.parts.keys()
        theirs = {part.node.instance for part in others if part.started and part.node and part.key in foreign}
        started = [part for part in built.parts.values() if part.started]
        depth = {part.node.instance: part.depth for part in started if part.node is not None}
        found = [
            (depth.get(loss.node, 0), loss.at, loss.reason, loss.detail)
            for loss in self.session.losses
            if loss.node not in theirs
        ]
        lost_layers = [lost for lost in self.parts.lost if lost.part not in foreign]
        return found + [(lost.depth, lost.at, lost.reason, lost.log) for lost in lost_layers]
