"""Loads that still have a file system mounted: they are confined to mount namespaces of their own.

umount(8) doesn't know of these, and would take away the only path by which a file system that hangs can be reached.
"""

from __future__ import annotations

import asyncio

from storlab.errors import StorlabError
from storlab.nodes.agent import steps
from storlab.nodes.node import Node

_TRIES, _WAIT = 20, 0.1  # s between them


async def until_ended(node: Node, device: str) -> int | None:
    """A process that has ``device`` mounted even after a while: one that was just killed, or just starts, has not."""
    for _ in range(_TRIES):
        pid = await load_with(node, device)
        if pid is None:
            return None
        await asyncio.sleep(_WAIT)
    return pid


async def load_with(node: Node, device: str) -> int | None:
    """A process of an agent's that has ``device`` (``major:minor``) mounted in another namespace than the node's."""
    pids = await _one_of_each_namespace(node)
    paths = [f"/proc/{pid}/mountinfo" for pid in pids]
    read = await node.carry_out(*(steps.read(path) for path in paths), go_on=True)
    for pid, path, each in zip(pids, paths, read, strict=True):
        try:
            mounts = each.text if each.ok else await node.read_text(path)  # too much for one answer, or it has ended
            here = any(line.split(" ", 3)[2] == device for line in mounts.splitlines())
            if here and "/storlab-" in await node.read_text(f"/proc/{pid}/cgroup"):
                return pid
        except (FileNotFoundError, StorlabError):
            continue  # it has just ended
    return None


async def _one_of_each_namespace(node: Node) -> list[int]:
    """A process in each mount namespace, but for the agent's own."""
    (listed,) = await node.carry_out(steps.names("/proc"))
    pids = [int(name) for name in listed.entries if name.isascii() and name.isdigit()]
    found = await node.carry_out(*(steps.readlink(f"/proc/{pid}/ns/mnt") for pid in pids), go_on=True)
    namespaces = {pid: each.text for pid, each in zip(pids, found, strict=True) if each.ok}
    others = {namespace: pid for pid, namespace in namespaces.items() if namespace != namespaces.get(node.pid or 0)}
    return list(others.values())
