"""Nodes whose kind the command line changes, so that one study runs here, in guests, and on other machines.

What only nodes of their former kind have is left out: memory, say, and what a hypervisor would attach. So levels may
become one and the same set-up, which is refused: a verdict would be about nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from storlab.layers.base import Crossing
from storlab.registry import node_kinds
from storlab.study.cells import Cell
from storlab.study.read_cells import Report, keys_of
from storlab.study.schema import group_model
from storlab.study.toml_text import Path


def kinds_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The kind of each group of nodes, as it is written."""
    return {name: table.get("kind", "local") for name, table in _tables(raw).items()}


def change_kinds(raw: Mapping[str, Any], before: Mapping[str, Any], changed: Collection[Path]) -> None:
    """Make nodes fit the kind that --set gave them, which is ``ssh`` if it gave them hosts. In place.

    ``before``: what they were. Keys that their new kind does not have are left out, but for those that --set gave.
    """
    for name, table in _tables(raw).items():
        given = {path[2] for path in changed if path[:2] == ("nodes", name) and len(path) > 2}
        if "hosts" in given and "kind" not in given:
            table["kind"] = "ssh"
        former, kind = (node_kinds().get(str(each)) for each in (before.get(name), table.get("kind", "local")))
        if former is None or kind is None or former is kind:
            continue
        lost = keys_of(former) - keys_of(group_model(str(table["kind"])))
        for key in (lost | ({"count"} if "hosts" in given else set())) - given:
            table.pop(key, None)
        if "hypervisor" in former.transports - kind.transports:
            table["placement"] = "native"


def _tables(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    nodes = raw.get("nodes")
    return {name: each for name, each in nodes.items() if isinstance(each, dict)} if isinstance(nodes, dict) else {}


def _left_out(cell: Cell) -> Iterator[tuple[str, Crossing]]:
    for each in cell.declared:
        group = cell.groups[each.group]
        for layer in each.layers if group.placement == "native" else ():
            if isinstance(layer, Crossing) and layer.transport not in group.transports:
                yield each.group, layer


def check_alike(cells: Sequence[Cell], report: Report) -> None:
    """Report cells that differ in nothing but layers that are left out: their levels would be one set-up."""
    known: dict[str, Cell] = {}
    for cell in cells:
        for group, layer in _left_out(cell):
            chains = [(chain.group, chain.name, chain.source, chain.layers, chain.count) for chain in cell.chains]
            nodes = [(name, each.spec(), each.count, each.tcp) for name, each in cell.nodes.items()]
            rest = (cell.loads, cell.probes, cell.trial, cell.precondition, cell.network, cell.verified, cell.crash)
            first = known.setdefault(repr((chains, nodes, rest)), cell)
            if first is not cell and [each.layers for each in first.declared] != [
                each.layers for each in cell.declared
            ]:
                levels = " ".join(
                    f"{name}={level}" for name, level in cell.levels.items() if first.levels[name] != level
                )
                report(
                    ("nodes", group),
                    f"without layer {layer.layer}, which virtual machines alone have, {levels} is the same set-up as "
                    "another level: choose levels with --only, or leave the kind of these nodes as it is",
                )
                return


def native_notes(cells: Sequence[Cell]) -> Iterator[str]:
    """What is left out, each once."""
    found = ((group, layer.layer, cell.groups[group].kind) for cell in cells for group, layer in _left_out(cell))
    for group, layer, kind in dict.fromkeys(found):
        yield f"{group}: {layer} is left out, because these nodes are of kind {kind} and no virtual machines"
