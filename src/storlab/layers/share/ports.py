"""Which TCP ports of a node are taken, by programs or by the kernel itself; proc_pid_net(5)."""

from __future__ import annotations

from storlab.nodes.node import Node

_LISTENING = "0A"  # of a socket in /proc/net/tcp, see net/tcp_states.h of the kernel


def is_listening(sockets: str, port: int) -> bool:
    """Whether there is a socket that listens at this port, of what ``/proc/net/tcp`` says, see proc(5)."""
    lines = [line.split() for line in sockets.splitlines()[1:]]
    return any(line[1].endswith(f":{port:04X}") and line[3] == _LISTENING for line in lines if len(line) > 3)


async def is_taken(node: Node, port: int | None) -> bool:
    sockets = await node.texts("/proc/net/tcp", "/proc/net/tcp6")  # the latter is not there without IPv6
    return port is not None and any(is_listening(each or "", port) for each in sockets)
