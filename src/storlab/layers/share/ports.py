"""Which TCP ports of a node are taken, by programs or by the kernel itself; ss(8)."""

from __future__ import annotations

from storlab.nodes.node import Node


async def is_taken(node: Node, port: int | None) -> bool:
    """Whether anything listens on this port, on any of the node's addresses."""
    return f":{port} " in await node.output("ss", "--no-header", "--listening", "--tcp", "--numeric")
