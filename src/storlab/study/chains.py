"""Chains: which layer of a stack stands on which node, for how long, and who shares it.

A node group has one stack and says whose it continues. One layer of it may be a crossing: what is below it stands on
the nodes that serve, the crossing and all above on the group's own. A level without a crossing is the local case of the
same study: what would have been served is set up on the group's own nodes, and nobody serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from storlab.layers.base import KEEPS, Crossing, Keep, Layer
from storlab.layers.resources import Dir, Pool, Resource, Share
from storlab.nodes.kind import NodeKind
from storlab.study.schema import HOST, NodeGroup
from storlab.study.toml_text import Path

_A = {"trial": "a trial", "round": "a round", "run": "the run"}

MAIN = ""
"""The name of a group's own stack among its chains."""


class ChainError(Exception):
    """A chain that cannot be. ``origin``: where what is at fault was written."""

    def __init__(self, origin: Path, message: str) -> None:
        super().__init__(message)
        self.origin = origin


@dataclass(frozen=True)
class Declared:
    """A stack as a study writes it. ``source``: the group whose stack it continues, or this machine."""

    group: str
    name: str
    source: str
    layers: tuple[Layer, ...]
    origins: tuple[Path, ...]
    path: Path
    count: int = 1

    def chain(self, source: str, below: tuple[Link, ...], above: tuple[Link, ...]) -> Chain:
        return Chain(self.group, self.name, source, below, above, self.path, self.count)


@dataclass(frozen=True)
class Link:
    """A layer in its place. ``once``: all nodes of the group share it."""

    layer: Layer
    origin: Path
    keep: Keep
    once: bool = False


@dataclass(frozen=True)
class Chain:
    """The layers of one stack of a group, the lowest first.

    ``below`` stand on the node of ``source``, on top of that group's own stack where it is one of the study; ``above``
    on the group's own nodes, beginning with the crossing where there is one. ``count``: how many a node has of it.
    """

    group: str
    name: str
    source: str
    below: tuple[Link, ...]
    above: tuple[Link, ...]
    path: Path
    count: int = 1

    @property
    def crossing(self) -> Crossing | None:
        """The layer that takes it from the source to the group's nodes."""
        first = self.above[0].layer if self.above else None
        return first if isinstance(first, Crossing) else None

    @property
    def links(self) -> tuple[Link, ...]:
        return (*self.below, *self.above)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(link.layer for link in self.links)

    def stands_on(self, link: Link) -> str:
        """The group on whose node one of its layers is set up: that one's further chains are there for it to take."""
        return self.group if link in self.above else self.source

    @property
    def shared(self) -> int:
        """How many of the layers below stand once for all nodes of the group."""
        return sum(link.once for link in self.below)


Chains = Mapping[tuple[str, str], Chain]


def resolve(groups: Mapping[str, NodeGroup], declared: Iterable[Declared]) -> Chains:
    """Every chain by group and name. Raises ``ChainError``."""
    by_name = {(each.group, each.name): each for each in declared}
    found: dict[tuple[str, str], Chain] = {}
    for group in in_order(groups):
        for (owner, name), each in by_name.items():
            if owner == group:
                found[owner, name] = _resolved(each, groups, found)
    return found


def in_order(groups: Mapping[str, NodeGroup]) -> list[str]:
    """The groups, each after the one whose stack it continues. Raises ``ChainError`` for a circle."""
    ordered: list[str] = []
    while len(ordered) < len(groups):
        waits = {n: (groups[n].sources & groups.keys()) - {HOST, *ordered} for n in groups if n not in ordered}
        ready = [n for n, others in waits.items() if not others]
        if not ready:
            raise _circle(groups, waits)
        ordered += ready
    return ordered


def _circle(groups: Mapping[str, NodeGroup], waits: Mapping[str, set[str]]) -> ChainError:
    """Follows the sources from one that waits for another, until one comes again."""
    names: list[str] = [next(iter(waits))]
    while (following := min(waits[names[-1]])) not in names:
        names.append(following)
    circle = names[names.index(following) :]
    group, source = groups[circle[0]], circle[1] if len(circle) > 1 else circle[0]
    extra = () if group.source == source else ("extra", next(n for n, e in group.extra.items() if e.source == source))
    if len(circle) == 1:
        message = f"the stack of {circle[0]} continues itself: name other nodes, or leave from out"
    else:
        message = f"these stacks continue each other in a circle: {', '.join(circle)}"
    return ChainError(("nodes", circle[0], *extra, "from"), message)


def started(groups: Mapping[str, NodeGroup], chains: Chains, loaded: Iterable[str]) -> set[str]:
    """The groups that a cell needs: all but those that only would have served, where no chain crosses from them."""
    working = {*loaded}
    sources = {source for group in groups.values() for source in group.sources} - {HOST}
    needed = {name for name in groups if name in working or name not in sources}
    while True:
        more = {chain.source for chain in chains.values() if chain.group in needed and chain.crossing is not None}
        if (more & groups.keys()) <= needed:
            return needed
        needed |= more & groups.keys()


def _resolved(each: Declared, groups: Mapping[str, NodeGroup], chains: Chains) -> Chain:
    group = groups[each.group]
    placed = zip(each.layers, each.origins, strict=True)
    links = tuple(Link(layer, origin, layer.keep or group.keep) for layer, origin in placed)
    at = _crossing_of(each)
    if at is None:
        return _without_crossing(each, links, groups, chains)
    crossing = each.layers[at]
    assert isinstance(crossing, Crossing)
    below, above = links[:at], links[at:]
    if group.placement == "native" and crossing.transport not in group.transports:
        stand_in = _stand_in(crossing, each, at, chains)
        if stand_in is not None:
            own = tuple(replace(above[0], layer=layer) for layer in stand_in)
            return _without_crossing(each, (*below, *own, *above[1:]), groups, chains)
    if group.placed or crossing.transport not in group.transports:
        stand_in = _stand_in(crossing, each, at, chains) if group.placed else None
        if stand_in is None:
            raise ChainError(each.origins[at], _cannot_end(crossing, each.group, group))
        here = tuple(replace(above[0], layer=layer) for layer in stand_in)
        return each.chain(each.source, (), (*below, *here, *above[1:]))
    source = groups.get(each.source)
    if crossing.transport == "network":
        if each.source == HOST and source is None:
            table = f"nodes.{each.group}" + (f".extra.{each.name}" if each.name else "")
            remedy = f'write from = "…" in [{table}], the nodes that serve'
            raise ChainError(each.origins[at], f"layer {crossing.layer} crosses the network from other nodes: {remedy}")
        if source is not None and "network" not in source.transports:
            remedy = f'write kind = "netns" or "vm" in [nodes.{each.source}]'
            raise ChainError(
                each.origins[at], f"layer {crossing.layer}: the nodes {each.source} are on no network: {remedy}"
            )
        if (unreached := _out_of_reach(each.source, each.group, groups)) is not None:
            raise ChainError(each.origins[at], f"layer {crossing.layer}: {unreached}")
    elif source is not None and not source.here and not (below and below[-1].layer.gives.kind == "Export"):
        below = (*below, *_export(crossing, each, at, above[0], chains))
    wrong = next((link for link in above if link.layer.once), None)
    if wrong is not None:
        where = f"is on the nodes {each.group}, and each of them has its own"
        raise ChainError(wrong.origin, f"layer {wrong.layer.layer} with once = true {where}: leave once out")
    shared = _shared(below)
    below = tuple(replace(link, once=index < shared) for index, link in enumerate(below))
    return _checked(each.chain(each.source, below, above), groups, chains)


def _out_of_reach(served_by: str, name: str, groups: Mapping[str, NodeGroup]) -> str | None:
    """Why nodes that are on some network are not reached by those of another group; ``None`` if they are."""
    group, source = groups[name], groups.get(served_by)
    if source is None:
        return None
    if source.network_of == "run" and group.network_of != "run":
        return (
            f"the nodes {served_by} are on the run's own network, which nothing outside of it reaches: put the nodes "
            f'{name} on it, too (kind = "netns" or "vm"), or serve from a machine (kind = "local" or "ssh")'
        )
    if not source.served_at:
        return (
            f'the nodes {served_by} are on no network: write kind = "netns" or "vm" in [nodes.{served_by}], or '
            "address = …, where others reach this machine"
        )
    return None


def _without_crossing(
    each: Declared, links: tuple[Link, ...], groups: Mapping[str, NodeGroup], chains: Chains
) -> Chain:
    """The local case: what the source would have served is set up where this stack is."""
    base = chains.get((each.source, MAIN)) if each.source != HOST else None
    if base is None:
        return _checked(each.chain(HOST, (), links), groups, chains)
    _refuse_moving(base, each, groups)
    group, crossing = groups[each.group], base.crossing
    moved = tuple(replace(link, keep=min(link.keep, group.keep, key=KEEPS.index)) for link in base.above)
    if crossing is None:
        return _checked(each.chain(HOST, (), (*moved, *links)), groups, chains)
    if crossing.transport in group.transports and not group.placed:
        if crossing.transport == "network" and (wrong := _out_of_reach(base.source, each.group, groups)) is not None:
            raise ChainError(each.path, f"layer {crossing.layer} of the nodes {each.source}: {wrong}")
        return _checked(each.chain(base.source, base.below, (*moved, *links)), groups, chains)
    stand_in = crossing.at_home(base.below[-1].layer) if base.below else None
    if stand_in is None:
        raise ChainError(each.path, _cannot_end(crossing, each.group, group))
    local = (replace(moved[0], layer=layer) for layer in stand_in)
    return _checked(each.chain(HOST, (), (*base.below, *local, *moved[1:], *links)), groups, chains)


def _refuse_moving(base: Chain, each: Declared, groups: Mapping[str, NodeGroup]) -> None:
    """A device that the study names is on the machine where it says so, and stays there."""
    if groups[each.source].here and groups[each.group].here:
        return
    for link in base.above:
        claim = link.layer.claims()
        if claim is not None:
            wrong = f"{claim} of the nodes {each.source} would be looked for on the nodes {each.group}"
            remedy = "add a crossing to this stack, or give these nodes a device of their own"
            raise ChainError(each.path, f"without a crossing, {wrong}: {remedy}")


def _crossing_of(each: Declared) -> int | None:
    found = [index for index, layer in enumerate(each.layers) if isinstance(layer, Crossing)]
    if len(found) > 1:
        first, second = (each.layers[index].layer for index in found[:2])
        wrong = f"layer {second} crosses to other nodes, and so does layer {first} below it: a stack crosses once"
        remedy = "give the nodes in between a group of their own, and continue its stack with from"
        raise ChainError(each.origins[found[1]], f"{wrong}; {remedy}")
    return found[0] if found else None


def _cannot_end(crossing: Crossing, name: str, group: NodeGroup) -> str:
    if group.placed:
        return (
            f"layer {crossing.layer} cannot be left out on this machine, where the nodes {name} may be placed: leave "
            'placement = "auto" out'
        )
    if crossing.transport == "hypervisor":
        return (
            f'layer {crossing.layer} ends in a virtual machine, and the nodes {name} are of kind "{group.kind}": write '
            f'kind = "vm" in [nodes.{name}]' + (", or leave the layer out" if name != HOST else "")
        )
    return (
        f'layer {crossing.layer} crosses a network, and the nodes {name} of kind "{group.kind}" are on none: write '
        f'kind = "netns" or "vm" in [nodes.{name}]'
    )


def _stand_in(crossing: Crossing, each: Declared, at: int, chains: Chains) -> tuple[Layer, ...] | None:
    base = chains.get((each.source, MAIN)) if each.source != HOST else None
    lowest = each.layers[at - 1] if at else base.layers[-1] if base is not None and base.links else None
    return crossing.at_home(lowest) if lowest is not None else None


def _export(crossing: Crossing, each: Declared, at: int, link: Link, chains: Chains) -> tuple[Link, ...]:
    """What serves a disk that is made on another virtual machine to the QEMU that opens it."""
    export = crossing.exported()
    if export is None:
        wrong = f"hands over what is on the machine that runs the virtual machines, and the nodes {each.source}"
        remedy = "leave from out, or cross by the network"
        raise ChainError(each.origins[at], f"layer {crossing.layer} {wrong} are elsewhere: {remedy}")
    return (replace(link, layer=export),)


def _shared(below: Sequence[Link]) -> int:
    """How many layers stand once for all nodes: up to the last pool, directory or share, but for what ``once`` says."""
    many = [(index, link) for index, link in enumerate(below) if not link.layer.serves_one]
    holds = [index for index, link in many if issubclass(link.layer.gives, Pool | Dir | Share)]
    shared = holds[-1] + 1 if holds else 0
    said = [(index, link) for index, link in enumerate(below) if link.layer.once is not None]
    for index, link in said:
        if link.layer.once:
            if (alone := next((each.layer for each in below[: index + 1] if each.layer.serves_one), None)) is not None:
                reason = f"{alone.layer} serves one node alone: leave once out, each node gets its own"
                raise ChainError(link.origin, f"layer {link.layer.layer} with once = true: {reason}")
            shared = max(shared, index + 1)
    for index, link in said:
        if not link.layer.once:
            above = next((other for other, over in said if over.layer.once and other > index), None)
            if above is not None:
                wrong = f"with once = false is below layer {below[above].layer.layer} with once = true"
                reason = "what is set up once cannot lie on what each node has for itself"
                raise ChainError(link.origin, f"layer {link.layer.layer} {wrong}: {reason}")
            shared = min(shared, index)
    return shared


def _checked(chain: Chain, groups: Mapping[str, NodeGroup], chains: Chains) -> Chain:
    """Refuse what would be kept for longer than what it stands on."""
    group = groups[chain.group]
    lowest: tuple[Keep, str] = ("run", "")
    if chain.crossing is not None and chain.source in groups and chain.source != HOST:
        served = chains.get((chain.source, MAIN))
        source = groups[chain.source]
        lowest = source.lasts, f"the nodes {chain.source}"
        if served is not None and served.links:
            lowest = served.links[-1].keep, f"layer {served.links[-1].layer.layer} of {chain.source}"
    if chain.crossing is None:
        lowest = group.lasts, f"the nodes {chain.group}"
    written = {link.origin: link.layer.layer for link in chain.links}  # what serves a crossing by itself, nobody wrote
    for index, link in enumerate(chain.links):
        if index == len(chain.below) and chain.crossing is not None:
            if KEEPS.index(group.lasts if not group.session else link.keep) > KEEPS.index(lowest[0]):
                below = f"{lowest[1]}, which they stand on, only for {_A[lowest[0]]}"
                wrong = f"the nodes {chain.group} are kept for {_A[group.lasts]}, but {below}"
                raise ChainError(link.origin, f'{wrong}: write keep = "{group.lasts}" there, too')
            lowest = min(lowest, (group.lasts, f"the nodes {chain.group}"), key=lambda each: KEEPS.index(each[0]))
        if KEEPS.index(link.keep) > KEEPS.index(lowest[0]):
            wrong = f"is kept for {_A[link.keep]}, but {lowest[1]} below it only for {_A[lowest[0]]}"
            remedy = f'write keep = "{link.keep}" there, too'
            raise ChainError(link.origin, f"layer {written[link.origin]} {wrong}: {remedy}")
        lowest = link.keep, f"layer {written[link.origin]}"
    return chain


def ends_as(chain: Chain, chains: Chains) -> type[Resource] | None:
    """What the chain gives at its top; ``None`` where it has no layer."""
    base = continued(chain, chains)
    given = ends_as(base, chains) if base is not None else None
    for layer in chain.layers:
        given = layer.gives_above(given)
    return given


def continued(chain: Chain, chains: Chains) -> Chain | None:
    return chains.get((chain.source, MAIN)) if chain.crossing is not None and chain.source != HOST else None


def down(chain: Chain, chains: Chains) -> Iterator[Chain]:
    """The chain and those that it stands on, the lowest last."""
    current: Chain | None = chain
    while current is not None:
        yield current
        current = continued(current, chains)


def node_specs(name: str, group: NodeGroup) -> dict[str, NodeKind]:
    return dict(zip(node_names(name, group), group.each(), strict=True))


def node_names(name: str, group: NodeGroup) -> list[str]:
    """``vm`` → ``vm``, or ``vm-1`` … ``vm-4`` where there are several."""
    return [name] if group.count == 1 else [f"{name}-{number}" for number in range(1, group.count + 1)]
