"""Loads that still have a file system mounted: they are confined to mount namespaces of their own.

umount(8) doesn't know of these, and would take away the only path by which a file system that hangs can be reached.
"""

from __future__ import annotations

import asyncio

from storlab.errors import StorlabError
from storlab.nodes.node import Node

_TRIES, _WAIT = 20, 0.1  # s between them
_NAMESPACES = ("find", "/proc", "-mindepth", "3", "-maxdepth", "3", "-path", "/proc/[0-9]*/ns/mnt")


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
    for pid in await _one_of_each_namespace(node):
        try:
            mounts = await node.read_text(f"/proc/{pid}/mountinfo")
            here = any(line.split(" ", 3)[2] == device for line in mounts.splitlines())
            if here and "/storlab-" in await node.read_text(f"/proc/{pid}/cgroup"):
                return pid
        except (FileNotFoundError, StorlabError):
            continue  # it has just ended
    return None


async def _one_of_each_namespace(node: Node) -> list[int]:
    """A process in each mount namespace, but for the agent's own."""
    listing = (await node.run([*_NAMESPACES, "-printf", "%l %P\n"], check=False)).stdout.decode(errors="replace")
    found = [line.split(" ", 1) for line in listing.splitlines() if " " in line]
    pids = {namespace: int(path.partition("/")[0]) for namespace, path in found}
    own = next((namespace for namespace, path in found if path == f"{node.pid}/ns/mnt"), "")
    return [pid for namespace, pid in pids.items() if namespace != own]
