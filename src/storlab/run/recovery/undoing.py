"""All ways of tearing something down, in one table: those of layers and node kinds, and the run's own."""

from __future__ import annotations

from functools import cache
from itertools import chain

from storlab.nodes.node import Node
from storlab.nodes.settings import restore
from storlab.nodes.undo import LONG, RunPath, Undo, remove_folder, undo
from storlab.registry import layer_types, node_kinds
from storlab.run.recovery.leftovers import remove_leftovers


@undo("scratch.remove", patience=LONG, outlives_boot=True)
async def remove_scratch(node: Node, path: RunPath) -> str | None:
    """Remove the run's own folder on a node."""
    return await remove_folder(node, path)


_OWN = (remove_scratch, remove_leftovers, restore)


@cache
def undo_table() -> dict[str, Undo]:
    """Each by the name that journals use; also those of somebody else's packages."""
    layers = (cls.undoes for cls in layer_types().values())
    kinds = (cls.undoes for cls in node_kinds().values())
    table: dict[str, Undo] = {}
    for each in chain(_OWN, *layers, *kinds):
        assert table.setdefault(each.name, each) is each, f"two ways to undo {each.name}"
    return table
