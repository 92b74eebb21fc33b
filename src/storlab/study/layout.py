"""What a cell sets up, as units: its nodes, the shapes of their networks, and layers that stay equally long.

``layout`` is the only walk over the graph of a cell. Plan, space and order read it before anything runs, and building
makes a part of each unit, known by the same identity: all that it consists of, down to the lowest layer. So cells that
need the same unit share it for as long as it is kept, and one that is different in anything is another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, Protocol

import orjson

from storlab.layers.base import Crossing, Keep, Layer
from storlab.nodes.shaping.keys import Network
from storlab.study.chains import Chain, Link, node_names, node_specs
from storlab.study.schema import HOST, NodeGroup

SERVED = ("Export", "Share", "Server")
"""Resources that are offered to other nodes, by their kinds."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Something that is set up and torn down as one. ``on``: the group of its node, or this machine.

    The rest is about layers. ``owner``: for whom they are, a node or a group whose nodes share them; ``facts_of``: the
    node in whose facts they are, as ``suffix`` says: "" for its own stack. ``position``: how many layers of the chain
    are below. ``slot`` names a crossing among those that end on the node. ``further``: the tops of other chains that
    these layers take in addition to what is ``below`` them. ``foundation``: to what belongs what several of them share.
    """

    kind: Literal["node", "network", "layers"]
    on: str
    node: str
    keep: Keep
    identity: str = ""
    stands_on: tuple[Unit, ...] = ()
    crossings: tuple[tuple[Chain, str, Unit], ...] = ()  # of a node: what it starts with, slot, and what is below
    links: tuple[Link, ...] = ()
    chain: Chain | None = None
    owner: str = ""
    facts_of: str = ""
    suffix: str = ""
    slot: str = ""
    position: int = 0
    user: list[Any] = field(default_factory=list)  # a node that outlives a trial, for which alone these layers are
    below: Unit | None = None
    further: Mapping[str, tuple[Unit, ...]] = field(default_factory=dict)
    foundation: Unit | None = None

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(link.layer for link in self.links)

    @property
    def label(self) -> str:
        if self.kind == "layers":
            return f"{', '.join(layer.label() for layer in self.layers)} for {self.owner}"
        return f"node {self.node}" if self.kind == "node" else f"network of {self.node}"

    @property
    def space(self) -> int:
        """Bytes on its node's scratch file system."""
        return sum(layer.space() for layer in self.layers)

    @property
    def crossing(self) -> Chain | None:
        """The chain that comes to its node with the first of these layers."""
        return self.chain if self.links and isinstance(self.links[0].layer, Crossing) else None


class Cell(Protocol):
    """What a layout is of, as ``storlab.study.cells`` has it."""

    @property
    def chains(self) -> tuple[Chain, ...]: ...
    @property
    def nodes(self) -> Mapping[str, NodeGroup]: ...
    @property
    def network(self) -> Network | None: ...
    @property
    def units(self) -> tuple[Unit, ...]: ...
    def chain(self, group: str, name: str = ...) -> Chain | None: ...
    def continued(self, chain: Chain) -> Chain | None: ...
    def networked(self, group: str) -> bool: ...
    def shaped(self, group: str) -> bool: ...
    def node_names(self) -> Iterator[tuple[str, str]]: ...


@dataclass(frozen=True)
class Layout:
    """All units of a cell, each after those that it stands on.

    By node and chain: ``tops`` are what workloads use, ``underlying`` what crossings stand on. Of a chain that a node
    has several of, these are of the first: workloads use none, and layers all.
    """

    units: tuple[Unit, ...]
    tops: Mapping[tuple[str, str], Unit | None]
    underlying: Mapping[tuple[str, str], Unit]


def layout(cell: Cell) -> Layout:
    walk = _Walk(cell)
    for chain in cell.chains:
        for name in node_names(chain.group, cell.nodes[chain.group]):
            for number in range(chain.count):
                walk.top(chain, name, number)
    for group, name in cell.node_names():
        walk.network(group, name)
    tops = {(name, chain): top for (name, chain, number), top in walk.tops.items() if number == 0}
    return Layout(tuple(walk.units.values()), tops, walk.underlying)


class _Walk:
    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.units: dict[str, Unit] = {}  # by identity
        self.tops: dict[tuple[str, str, int], Unit | None] = {}
        self.underlying: dict[tuple[str, str], Unit] = {}
        self._nodes: dict[str, Unit] = {}

    def _add(self, unit: Unit, *consists_of: Any) -> Unit:
        identity = key_of(unit.kind, unit.node, *consists_of, [each.identity for each in unit.stands_on])
        return self.units.setdefault(identity, replace(unit, identity=identity))

    def node(self, group: str, name: str) -> Unit:
        """The node itself: it starts once all is there that its crossings hand over.

        One that is there for the whole run anyway waits for nothing.
        """
        if name in self._nodes:
            return self._nodes[name]
        cell = self._cell
        if group not in cell.nodes:
            found = self._add(Unit("node", HOST, HOST, "run"))
        else:
            spec = cell.nodes[group]
            chains = [chain for chain in cell.chains if chain.group == group and chain.crossing is not None]
            places = [] if spec.session else [(chain, number) for chain in chains for number in range(chain.count)]
            below = [self._below(chain, name, number) for chain, number in places]
            crossings = tuple(
                (chain, _slot(cell, chain, number), unit)
                for (chain, number), unit in zip(places, below, strict=True)
                if unit is not None
            )
            boots = [link.layer.boots(slot) for chain, slot, _ in crossings for link in chain.above]
            machine = node_specs(group, spec)[name].model_dump(mode="json")
            stands_on = tuple(unit for _, _, unit in crossings)
            unit = Unit("node", group, name, spec.lasts, stands_on=stands_on, crossings=crossings)
            found = self._add(unit, machine, cell.networked(group), boots, _for_whom(cell, group))
        self._nodes[name] = found
        return found

    def network(self, group: str, name: str) -> Unit | None:
        """The shape of a node's network, where the study asks for one."""
        node, cell = self.node(group, name), self._cell
        if group not in cell.nodes or not cell.shaped(group):
            return None
        tcp = cell.nodes[group].tcp
        wanted = [None if each is None else each.model_dump(mode="json") for each in (cell.network, tcp)]
        unit = Unit("network", group, name, cell.nodes[group].lasts, stands_on=(node,), facts_of=name)
        return self._add(unit, wanted)

    def top(self, chain: Chain, name: str, number: int) -> Unit | None:
        """The top of a chain on one of its nodes; ``None`` where it has no layer."""
        key = name, chain.name, number
        if key not in self.tops:
            below = self._below(chain, name, number) if chain.crossing is not None else None
            own = {**_owned(chain, name, number), "slot": _slot(self._cell, chain, number)}
            spot = Unit("layers", chain.group, name, "run", chain=chain, position=len(chain.below), **own)
            self.tops[key] = self._layers(chain.above, spot, below)
        return self.tops[key]

    def _below(self, chain: Chain, name: str, number: int) -> Unit | None:
        """What a chain's crossing stands on, for one node: what all share, then what is this node's alone."""
        cell = self._cell
        source = node_names(chain.source, cell.nodes[chain.source])[0] if chain.source in cell.nodes else HOST
        base = cell.continued(chain)
        lowest = None if base is None else self.top(base, source, 0)
        shared: dict[str, Any] = {"owner": chain.group, "facts_of": source, "suffix": chain.group}
        spot = Unit("layers", chain.source, source, "run", chain=chain, **shared)
        unit = foundation = self._layers(chain.below[: chain.shared], spot, lowest)
        if unit is None and chain.below:  # base images need somebody to belong to
            unit = foundation = self._segment((), replace(spot, keep=chain.below[0].keep), None)
        own = replace(spot, foundation=foundation, user=_for_whom(cell, chain.group), **_owned(chain, name, number))
        unit = self._layers(chain.below[chain.shared :], replace(own, position=chain.shared), unit)
        if unit is not None:
            self.underlying.setdefault((name, chain.name), unit)
        return unit

    def _layers(self, links: tuple[Link, ...], spot: Unit, below: Unit | None) -> Unit | None:
        """A unit for each run of layers that are kept equally long, all at one ``spot``; the topmost."""
        for keep, equal in groupby(links, key=lambda link: link.keep):
            segment = tuple(equal)
            below = self._segment(segment, replace(spot, keep=keep), below)
            foundation = below if spot.foundation is None and segment[0].once else spot.foundation
            spot = replace(spot, position=spot.position + len(segment), foundation=foundation)
        return below

    def _segment(self, links: tuple[Link, ...], spot: Unit, below: Unit | None) -> Unit:
        node = self.node(spot.on, spot.node)
        shape = self.network(spot.on, spot.node) if _over_network(links) else None
        further = {}
        for name in (name for link in links for name in link.layer.chains()):
            other = self._cell.chain(spot.on, name)
            assert other is not None, "checked when the study was loaded"
            tops = (self.top(other, spot.node, number) for number in range(other.count))
            further[name] = tuple(top for top in tops if top is not None)
        under = [each for each in (below, shape) if each is not None]
        stands_on = (node, *under, *(top for tops in further.values() for top in tops))
        unit = replace(spot, links=links, below=below, further=further, stands_on=stands_on)
        dumps = [link.layer.model_dump(mode="json") for link in links]
        return self._add(unit, spot.owner, spot.slot, spot.position, spot.user, dumps)


def key_of(*parts: Any) -> str:
    """A short name for what something consists of: equal for equal values."""
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def kept_for_a_round(cell: Cell) -> frozenset[str]:
    """The identities of all that a cell keeps for a round: boots and layers. Cells that agree in them share these."""

    def counts(unit: Unit) -> bool:
        return bool(unit.links) or (unit.kind == "node" and cell.nodes[unit.on].boots_anew)

    return frozenset(unit.identity for unit in cell.units if unit.keep == "round" and counts(unit))


def _owned(chain: Chain, name: str, number: int) -> dict[str, Any]:
    """``vm``, ``vm-data``, or ``vm-data-2`` where a node has several of the chain."""
    suffix = chain.name if chain.count == 1 or not chain.name else f"{chain.name}-{number + 1}"
    return {"owner": f"{name}-{suffix}" if suffix else name, "facts_of": name, "suffix": suffix}


def _slot(cell: Cell, chain: Chain, number: int) -> str:
    mine = [each for each in cell.chains if each.group == chain.group and each.crossing is not None]
    before = sum(each.count for each in mine[: mine.index(chain)]) if chain in mine else 0
    return f"disk{before + number}"


def _for_whom(cell: Cell, group: str) -> list[Any]:
    """What the nodes of a group that outlive a trial are, and all that is kept with them; empty for others.

    Two such nodes are there at the same time where they differ, so neither may have what lies below the other's
    crossing: a guest, say, that is kept for the run with ``cache = "none"``, and one with ``cache = "writeback"``; or
    with ext4 on its disk, which is kept as well, and with XFS.
    """
    nodes = cell.nodes[group]
    if nodes.session or nodes.lasts == "trial":
        return []
    chains = [chain for chain in cell.chains if chain.group == group]
    crossings = [chain.crossing for chain in chains if chain.crossing is not None]
    plugged = [each.model_dump(mode="json") for each in crossings if each.transport == "hypervisor"]
    kept = [[link.layer.model_dump(mode="json") for link in c.links if link.keep != "trial"] for c in chains]
    return [nodes.spec().model_dump(mode="json"), cell.networked(group), plugged, kept]


def over_network(chain: Chain) -> Iterator[Link]:
    """The layers of a chain that work over the network: what serves, the crossing, and all above it."""
    yield from (link for link in chain.below if _serves(link))
    yield from chain.above if chain.crossing is not None and chain.crossing.transport == "network" else ()


def _serves(link: Link) -> bool:
    return link.layer.gives.kind in SERVED


def _over_network(links: tuple[Link, ...]) -> bool:
    """Whether these layers serve others over the network, or begin with what takes it from there."""
    first = links[0].layer if links else None
    return (isinstance(first, Crossing) and first.transport == "network") or any(map(_serves, links))
