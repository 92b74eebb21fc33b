"""The run's own folder on a node, where files of layers and workloads lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storlab.errors import StorlabError
from storlab.layers.base import undo
from storlab.nodes.node import Node

PREFIX = "storlab-"


def scratch_path(root: str, run: str) -> str:
    """Where the scratch folder of a run lies."""
    return f"{root.rstrip('/')}/{PREFIX}{run}"


@undo("scratch.remove")
async def _remove(node: Node, arguments: Mapping[str, Any]) -> str | None:
    path = arguments["path"]
    if not path.rpartition("/")[2].startswith(PREFIX):
        raise StorlabError(f"{path} is not a scratch folder of Storlab's: left alone")
    if not (await node.run(["test", "-d", path], check=False)).ok:
        return None
    # Should a mount in there have outlived its own undoing, its contents stay.
    await node.run(["rm", "--recursive", "--force", "--one-file-system", "--", path])
    return f"removed {path}"
