"""What a cell will set up, known before anything runs: which layers on which machine, how many times, for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storlab.layers.base import Keep, Layer
from storlab.nodes.needs import Needs, together
from storlab.study.cells import HOST, Cell, node_names
from storlab.study.chains import Chain, Link


@dataclass(frozen=True)
class Unit:
    """Layers that follow each other on one node, for one owner.

    ``on``: the group whose node it is, or this machine. ``below`` describes all that they stand on.
    """

    on: str
    node: str
    owner: str
    links: tuple[Link, ...]
    below: str

    @property
    def identity(self) -> str:
        """Equal for units that are the same, in whatever cell."""
        return f"{self.node} {self.owner} {self.below} {_described(self.links)}"

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, without their places."""
        return tuple(link.layer for link in self.links)

    @property
    def space(self) -> dict[Keep, int]:
        """Bytes that it takes up on its node's scratch file system, by how long."""
        sizes: dict[Keep, int] = {}
        for link in self.links:
            sizes[link.keep] = sizes.get(link.keep, 0) + link.layer.space()
        return sizes


def units(cell: Cell) -> Iterator[Unit]:
    """Everything that a cell sets up, the serving nodes' first."""
    for chain in cell.chains:
        source = _single(cell, chain.source)
        shared, own = chain.below[: chain.shared], chain.below[chain.shared :]
        base = _beneath(cell, chain)
        if shared:
            yield Unit(chain.source, source, chain.group, shared, base)
        user = for_whom(cell, chain.group)
        for node in node_names(chain.group, cell.nodes[chain.group]):
            for number in range(chain.count):
                owner = f"{node}-{chain.name}-{number + 1}" if chain.name else node
                if own:
                    yield Unit(chain.source, source, owner, own, base + _described(shared) + user)
                if chain.above:
                    yield Unit(chain.group, node, owner, chain.above, base + _described(chain.below) + user)


def kept_for_a_round(cell: Cell) -> str:
    """What a cell has that is kept for a round, as one text: equal for cells that share it, empty where nothing is."""
    found = []
    for unit in units(cell):
        kept = [link for link in unit.links if link.keep != "trial"]
        if any(link.keep == "round" for link in kept):
            found.append(f"{unit.node} {unit.owner} {unit.below} {_described(kept)}")
    for group, nodes in cell.nodes.items():
        if nodes.boots_anew:  # whatever else they do, cells of one boot follow each other
            found += [f"{name} boots {nodes.spec().model_dump_json()}" for name in node_names(group, nodes)]
    return "\n".join(sorted(found))


def for_whom(cell: Cell, group: str) -> str:
    """What the nodes of a group that outlive a trial are; empty for others.

    Two such nodes are there at the same time where they differ, so neither may have what lies below the other's
    crossing: a guest, say, that is kept for the run with ``cache = "none"``, and one with ``cache = "writeback"``; or
    with ext4 on its disk, which is kept as well, and with XFS.
    """
    nodes = cell.nodes[group]
    return "" if nodes.session or nodes.lasts == "trial" else kept_together(cell, group)


def kept_together(cell: Cell, group: str) -> str:
    """What a group's nodes are from their start, and all that is kept with them, from the bottom up, as one text."""
    chains = [chain for chain in cell.chains if chain.group == group]
    crossings = [chain.crossing for chain in chains if chain.crossing is not None]
    plugged = [each.model_dump_json() for each in crossings if each.transport == "hypervisor"]
    kept = [_described([link for link in chain.links if link.keep != "trial"]) for chain in chains]
    return "\n".join([cell.nodes[group].spec().model_dump_json(), str(cell.networked(group)), *plugged, *kept])


def layers_on(cell: Cell, group: str) -> list[Layer]:
    """All layers that stand on the nodes of a group: its own, and those that others cross from."""
    return [layer for unit in units(cell) if unit.on == group for layer in unit.layers]


def layer_needs(cell: Cell, group: str) -> Needs:
    """What those layers need."""
    return together(layer.needs() for layer in layers_on(cell, group))


def is_here(cell: Cell, group: str) -> bool:
    """Whether a group's nodes share this machine's devices and disks."""
    return group not in cell.nodes or cell.nodes[group].here


def _single(cell: Cell, source: str) -> str:
    return node_names(source, cell.nodes[source])[0] if source in cell.nodes else HOST


def _beneath(cell: Cell, chain: Chain) -> str:
    base = cell.continued(chain)
    return f"{_beneath(cell, base)}{_described(base.links)}|" if base is not None else ""


def _described(links: Sequence[Link]) -> str:
    return " ".join(link.layer.model_dump_json(exclude_none=True) for link in links)
