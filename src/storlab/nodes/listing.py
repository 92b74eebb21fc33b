"""The regular files in a folder of a node and in all below it, with their sizes."""

from __future__ import annotations

import re

from storlab.errors import NodeError
from storlab.nodes.agent import steps
from storlab.nodes.node import Node

_ENTRY = re.compile(r"(\d{1,18}) (.+)", re.DOTALL)
_TOO_MUCH = ("EFBIG", "ENAMETOOLONG")  # for one answer of the agent's: find(1) has no such bounds


async def files_below(node: Node, folder: str) -> list[tuple[str, int]]:
    """Each with its path from the folder on, and bytes. Raises ``NodeError`` where the listing is none.

    Names are the node's own words: whoever makes files of them checks them first.
    """
    (done,) = await node.carry_out(steps.files(folder), go_on=True)
    if done.result.errno in _TOO_MUCH:
        listing = await node.output("find", folder, "-type", "f", "-printf", "%s %P\\0")
        entries = listing.split("\0")[:-1]
    else:
        entries = done.check(node.name).entries
    return [_entry(node, folder, each) for each in entries]


def _entry(node: Node, folder: str, entry: str) -> tuple[str, int]:
    parts = _ENTRY.fullmatch(entry)
    if parts is None:
        raise NodeError(f"node {node.name}: it says that {folder} holds {entry[:80]!r}, which can be no file there")
    return parts[2], int(parts[1])
