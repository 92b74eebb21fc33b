"""Which TCP ports of a node are taken, by programs or by the kernel itself; proc_pid_net(5)."""

from __future__ import annotations

from storlab.layers.server.nbd_servers import is_listening
from storlab.nodes.node import Node


async def is_taken(node: Node, port: int | None) -> bool:
    sockets = await node.texts("/proc/net/tcp", "/proc/net/tcp6")  # the latter is not there without IPv6
    return port is not None and any(is_listening(each or "", port) for each in sockets)
