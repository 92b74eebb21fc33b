"""The run's own folder on a node, where files of layers and workloads lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storlab.layers.base import LONG, undo
from storlab.layers.ours import remove_folder
from storlab.nodes.node import Node
from storlab.run.journal import Journal


async def make_scratch(node: Node, root: str, run: str, journal: Journal) -> str:
    """Make the scratch folder of a run below ``root``; returns its path."""
    if node.kind == "vm":  # whose root file system is new, and has no folder of this machine's
        await node.run(["mkdir", "--parents", "--", root])
    # The kernel names mounts and loop devices by real paths, and so must the journal.
    real = (await node.output("readlink", "--canonicalize-existing", root)).removesuffix("\n")
    path = f"{real.rstrip('/')}/storlab-{run}"
    journal.will(node.name, "scratch.remove", {"path": path}, guest=node.kind == "vm")
    await node.run(["mkdir", "--parents", "--mode=0700", "--", path])
    return path


@undo("scratch.remove", patience=LONG)
async def _remove(node: Node, arguments: Mapping[str, Any]) -> str | None:
    return await remove_folder(node, arguments["path"])
