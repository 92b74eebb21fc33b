"""Building a cell: its nodes and chains as parts, each set up as soon as what it stands on is.

All chains below a node are set up in parallel; then it is started, with what all of its crossings demand of it; then
what is above. Nodes that serve come first, because others' chains stand on theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from storlab.errors import Unsupported
from storlab.layers import stack
from storlab.layers.base import Crossing, Keep, Layer, LayerContext, Shared
from storlab.layers.resources import Dir, Share
from storlab.layers.stack import BuiltStack
from storlab.nodes.agent import steps
from storlab.nodes.demands import Demands
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.run.session import Session
from storlab.run.setup.parts import Part, Parts, Program, key_of
from storlab.run.setup.shapes import Shapes
from storlab.run.setup.units import for_whom
from storlab.study.cells import HOST, MAIN, Cell, node_names, node_specs
from storlab.study.chains import Chain, Link
from storlab.study.networks import serves
from storlab.waiting import all_of


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
        """Ask each layer that is set up what it is now."""
        await all_of(*(part.stack.read_facts() for part in self.parts.values() if part.facts_of))

    def facts(self) -> dict[str, list[dict[str, Any]]]:
        """What each layer was when it was asked last, by node.

        ``on`` names the node that has it, if it is another one; ``chain`` of what, if it is not the node's own stack.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for part in sorted(self.parts.values(), key=lambda part: (part.depth, part.chain)):
            node = part.facts_of
            place = {"chain": part.chain} if part.chain else {}
            if part.node is not None and part.node.name != node:
                place["on"] = part.node.name
            found.setdefault(node, []).extend({**facts, **place} for facts in part.stack.facts)
        return {name: facts for name, facts in found.items() if name and facts}

    def group_of(self, node: str) -> str:
        """The group that a node is of."""
        return next(group for group, name in self.cell.node_names() if name == node)

    def group(self, name: str) -> list[Node]:
        """The nodes of one group."""
        return [self.nodes[node] for node in node_names(name, self.cell.nodes[name])]


@dataclass(frozen=True)
class _Spot:
    """Where layers go, and for whom. ``foundation``: the part that what several of them share belongs to.

    ``shape``: that of the node's network, on which stands what works over it; ``user``: a node for which alone it is.
    """

    node: Part
    owner: str
    facts_of: str
    slot: str = ""
    foundation: Part | None = None
    further: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    shape: Part | None = None
    user: str = ""
    group: str = ""


@dataclass
class Builder:
    """Builds one cell. Consoles of its nodes go to ``folder``, and to ``kept`` of those that outlive the trial; what
    this process itself keeps of layers goes to where ``held`` says these are.
    """

    session: Session
    parts: Parts
    built: Built
    folder: Path
    kept: Path
    held: Callable[[Path], Path]
    shapes: Shapes = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = Shapes(self.session, self.parts, self.built.cell, self.built.parts)

    @property
    def _cell(self) -> Cell:
        return self.built.cell

    async def build(self) -> None:
        """Set everything up. On failure, what is set up stays until its parts are torn down."""
        names = [name for _, name in self._cell.node_names()]
        await all_of(*(self._whole(group, name) for group, name in self._cell.node_names()))
        # In the study's order, whichever was there first.
        self.built.nodes = {name: self.built.nodes[name] for name in names}
        await self.shapes.look()

    async def _whole(self, group: str, name: str) -> None:
        await self._shape(group, name)
        chains = [chain for chain in self._cell.chains if chain.group == group]
        await all_of(*(self._top(chain, name, number) for chain in chains for number in range(chain.count)))

    async def _node(self, group: str, name: str) -> Part:
        """The node itself, once all is there that its crossings hand over."""
        spec = self._cell.nodes[group]
        chains = [chain for chain in self._cell.chains if chain.group == group and chain.crossing is not None]
        # Session nodes are there anyway; what is below their crossings is waited for where it is used.
        places = [] if spec.session else [(chain, number) for chain in chains for number in range(chain.count)]
        below = await all_of(*(self._below(chain, name, number) for chain, number in places))
        demands = Demands(network=self._cell.networked(group))
        for (chain, number), part in zip(places, below, strict=True):
            assert chain.crossing is not None
            resource = part.stack.resource if part is not None else None
            assert resource is not None, "checked when the study was loaded"
            slot = self._slot(chain, number)
            demands |= chain.crossing.demands(resource, slot)
            for link in chain.above:
                demands |= Demands(root=link.layer.boots(slot))
        own = node_specs(group, spec)[name]
        machine = own.model_dump(mode="json")
        stands_on = [part for part in below if part is not None]
        apart = self._apart(spec.lasts)
        demanded = demands.network, demands.devices, demands.root, for_whom(self._cell, group)
        key = key_of("node", name, machine, *demanded, [part.key for part in stands_on], *apart)

        folder = self.held(self.folder if spec.lasts == "trial" else self.kept) / name

        for chain in chains:
            if chain.crossing is not None and chain.crossing.transport == "hypervisor":
                await self.shapes.open_way(chain, None)  # QEMU opens it

        async def start(part: Part) -> None:
            part.started = not spec.session
            part.node = await self.session.open(name, group, own, demands, folder)
            if spec.boots_anew:
                part.booted = True
                await self.session.boot(part.node, own)

        slot = f"boot of {name}" if spec.boots_anew else ""
        if slot:  # all that is set up in another boot goes before the machine does
            await self.parts.make_room(slot, key)
        about: dict[str, Any] = {"label": f"node {name}", "slot": slot}
        part = await self.parts.get(key, spec.lasts, stands_on, start, self.built.parts, **about)
        assert part.node is not None
        self.built.nodes[name] = part.node
        return part

    async def _shape(self, group: str, name: str) -> Part | None:
        """The shape of the network of a node, where the study asks for one; the node is started in any case."""
        node = await self._node(group, name)
        return await self.shapes.of(group, name, node, self._apart(self._cell.nodes[group].lasts))

    async def _served(self, chain: Chain) -> tuple[Part, Part | None]:
        """The node that a chain comes from, and the top of that one's own stack."""
        if chain.source not in self._cell.nodes:
            return await self._host(), None
        (name,) = node_names(chain.source, self._cell.nodes[chain.source])
        node = await self._node(chain.source, name)
        base = self._cell.continued(chain)
        return node, None if base is None else await self._top(base, name, 0)

    async def _reach(self, chain: Chain, node: Node | None) -> None:
        """A chain that crosses the network: its node reaches the one that serves."""
        if chain.crossing is not None and chain.crossing.transport == "network":
            await self.shapes.open_way(chain, node)

    async def _host(self) -> Part:
        async def there(part: Part) -> None:
            part.node = self.session.host

        return await self.parts.get(HOST, "run", (), there, self.built.parts, label=f"node {HOST}")

    async def _below(self, chain: Chain, name: str, number: int) -> Part | None:
        """What a chain's crossing stands on, for one node: what all share, then what is this node's alone."""
        node, top = await self._served(chain)
        shape = await self._shape(chain.source, _name(node)) if chain.source in self._cell.nodes else None
        further = await self._further(chain.source, _name(node), chain.below)
        common = _Spot(node, chain.group, _name(node), further=further, shape=shape, group=chain.group)
        shared = await self._segments(chain.below[: chain.shared], 0, common, top)
        part, foundation = shared, shared
        if foundation is None and chain.below:  # base images need somebody to belong to
            part = foundation = await self._segment((), 0, common, None, chain.below[0].keep)
        user = for_whom(self._cell, chain.group)
        owner = _owner(chain, name, number)
        own = replace(common, owner=owner, facts_of=name, foundation=foundation, user=user)
        part = await self._segments(chain.below[chain.shared :], chain.shared, own, part)
        if part is not None:
            self.built.underlying[name, chain.name] = part.stack
        return part

    async def _top(self, chain: Chain, name: str, number: int) -> Part | None:
        """The top of a chain on one of its nodes; ``None`` where it has no layer."""
        below = await self._below(chain, name, number) if chain.crossing is not None else None
        node, shape = await self._node(chain.group, name), await self._shape(chain.group, name)
        await self._reach(chain, node.node)
        await self.shapes.prove(chain, name)
        further = await self._further(chain.group, name, chain.above)
        spot = _Spot(node, _owner(chain, name, number), name, self._slot(chain, number), None, further, shape)
        top = await self._segments(chain.above, len(chain.below), spot, below)
        # Of a chain that a node has several of, workloads use none, and layers all.
        self.built.stacks.setdefault((name, chain.name), top.stack if top is not None else BuiltStack(None))
        return top

    async def _further(self, group: str, name: str, links: Sequence[Link]) -> dict[str, list[Part]]:
        """The tops of a node's further chains that these layers take in addition to what lies below them, by name."""
        found: dict[str, list[Part]] = {}
        for wanted in {each for link in links for each in link.layer.chains()}:
            other = self._cell.chain(group, wanted)
            assert other is not None, "checked when the study was loaded"
            tops = await all_of(*(self._top(other, name, number) for number in range(other.count)))
            found[wanted] = [top for top in tops if top is not None]
        return found

    async def _segments(self, links: Sequence[Link], begin: int, spot: _Spot, below: Part | None) -> Part | None:
        """Layers on one node, one part for each run of those that are kept equally long."""
        part = below
        for segment in _equally_long(links):
            part = await self._segment(segment, begin, spot, part, segment[0].keep)
            begin += len(segment)
            if spot.foundation is None and segment[0].once:
                spot = replace(spot, foundation=part)
        return part

    async def _segment(self, links: Sequence[Link], begin: int, spot: _Spot, below: Part | None, keep: Keep) -> Part:
        further = [part for tops in spot.further.values() for part in tops]
        below_it = [each for each in (below, spot.shape if _over_network(links) else None) if each is not None]
        stands_on = (spot.node, *below_it, *further)
        dumps = [link.layer.model_dump(mode="json") for link in links]
        place = spot.owner, spot.slot, begin, spot.user
        key = key_of(*place, dumps, [part.key for part in stands_on], *self._apart(keep))

        async def set_up(part: Part) -> None:
            part.node = spot.node.node
            await self._set_up(part, [link.layer for link in links], begin, spot, below)

        label = f"{', '.join(link.layer.label() for link in links)} for {spot.owner}"
        about = {"label": label, "facts_of": spot.facts_of, "chain": spot.owner.removeprefix(spot.facts_of).lstrip("-")}
        return await self.parts.get(key, keep, stands_on, set_up, self.built.parts, **about)

    async def _set_up(self, part: Part, layers: Sequence[Layer], begin: int, spot: _Spot, below: Part | None) -> None:
        node = part.node
        assert node is not None
        register, lost = self.parts.registering(part, node), self.parts.losing(part)
        records = self.held(self.folder if part.keep == "trial" else self.kept) / spot.facts_of / "stack"
        part.shared = spot.foundation.shared if spot.foundation is not None else Shared(register_undo=register)
        folder = f"{await self.session.scratch_on(node)}/{spot.owner}-{part.key}"
        further = spot.further.items()
        others = {name: [top.stack.resource for top in tops if top.stack.resource] for name, tops in further}

        def context_of(at: int) -> LayerContext:
            return LayerContext(
                node,
                folder,
                begin + at,
                self.session.run,
                register,
                spot.owner,
                part.shared,
                spot.slot,
                others,
                records=records,
                notify_running=lambda name, *where: part.programs.append(Program(f"{name}-{spot.owner}", *where)),
                notify_lost=lost,
                warn=self.parts.warnings.append,
                planned=self.session.planned_on(node),
                claim=self.session.claims.claim,
                system=partial(self._system_disk, spot.group),
            )

        on = below.stack.resource if below is not None else None
        part.stack = await stack.set_up(layers, context_of, on, [steps.make_directory(folder, parents=True)])
        if layers and isinstance(crossing := layers[0], Crossing):
            part.crossings.append((crossing, part.stack.resources[0], context_of(0)))

    async def _system_disk(self, group: str, size: int) -> Path:
        if group not in self._cell.nodes:
            raise Unsupported("this machine has no root file system that could be put on a disk")
        prepared = await self.session.prepare(group, self._cell.nodes[group].spec(), Needs())
        return await asyncio.to_thread(prepared.system_disk, size)

    def _apart(self, keep: Keep) -> list[int]:
        return [self.built.number] if keep == "trial" and self.built.number else []

    def _slot(self, chain: Chain, number: int) -> str:
        mine = [each for each in self._cell.chains if each.group == chain.group and each.crossing is not None]
        before = sum(each.count for each in mine[: mine.index(chain)]) if chain in mine else 0
        return f"disk{before + number}"


def shared_directory(built: Built, group: str, chain: str) -> bool:
    """Whether several nodes work in one directory: what their crossings stand on is the same for all of them."""
    resources = [below.resource for (_, name), below in built.underlying.items() if name == chain]
    names = node_names(group, built.cell.nodes[group])
    mine = [built.underlying[node, chain].resource for node in names if (node, chain) in built.underlying]
    return any(resources.count(each) > 1 for each in mine if isinstance(each, Dir | Share))


def _name(part: Part) -> str:
    return part.node.name if part.node is not None else ""


def _owner(chain: Chain, name: str, number: int) -> str:
    if chain.name == MAIN:
        return name
    return f"{name}-{chain.name}" if chain.count == 1 else f"{name}-{chain.name}-{number + 1}"


def _over_network(links: Sequence[Link]) -> bool:
    """Whether these layers serve others over the network, or begin with what takes it from there."""
    crosses = links and isinstance(links[0].layer, Crossing) and links[0].layer.transport == "network"
    return bool(crosses) or any(serves(link) for link in links)


def _equally_long(links: Sequence[Link]) -> Iterator[list[Link]]:
    run: list[Link] = []
    for link in links:
        if run and link.keep != run[-1].keep:
            yield run
            run = []
        run.append(link)
    if run:
        yield run
