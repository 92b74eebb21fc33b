"""Whether what loads left in the caches of clients reaches whoever serves them.

A write that only went to a cache succeeds at once, also where the server is full: the error comes when it is written
back, and only the first fsync(2) or syncfs(2) hears of it. A load that asks for neither measured how
fast its own memory is, and what it wrote is lost.
"""

from __future__ import annotations

import errno
import os

from storlab.errors import DiskFull, TrialError
from storlab.layers.resources import Dir, Disk, Export, Resource, Share
from storlab.nodes.agent import steps
from storlab.nodes.node import Node

_FULL = ("ENOSPC", "EDQUOT")


async def prove_written(node: Node, target: Resource, underlying: Resource | None) -> None:
    """Write back what is left, where ``target`` is a node's client of ``underlying``. Raises ``TrialError``."""
    if not isinstance(underlying, Export | Share) or not isinstance(target, Dir | Disk):
        return
    (done,) = await node.carry_out(steps.sync(target.path), go_on=True)
    if done.ok:
        return
    said = done.result.message or ""
    lost = f"what the load left in its cache could not be written to {target.path}"
    if done.result.errno in _FULL:
        raise DiskFull(f"node {node.name}: target full: {lost}", said)
    number = getattr(errno, done.result.errno or "", None)  # the agent has words of its own for some
    reason = said.rpartition(": ")[2] if number is None else os.strerror(number)
    raise TrialError(f"node {node.name}: {lost}: {reason}", said)
