"""Delays of a pool's disks that ZFS itself makes, by zinject(8): ``ZINJECT_DELAYS`` of OpenZFS's tests/perf.

A pool with injections can't be destroyed or exported (``spa_inject_addref`` in module/zfs/spa_misc.c), so they are
withdrawn first, whatever injected them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from storlab.errors import TrialError
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.reach import Choice

Delay = Annotated[Choice, Field(pattern=r"^[1-9][0-9]{0,5}:[1-9][0-9]{0,3}$")]
"""Milliseconds that a request takes at least, and how many are let through at once."""

DELAY_NEEDS = Needs(programs=("zinject",))
_ROW = re.compile(r"^\s*(\d+)\s+(\S+)\s", re.MULTILINE)


async def delay(node: Node, pool: str, disks: Sequence[str], delays: Sequence[str]) -> None:
    """Delay each of the disks by all of these. Raises ``TrialError`` where ZFS has not taken them all."""
    if not delays:
        return
    for each in delays:
        for disk in disks:
            await node.run(["zinject", "-d", disk, "-D", each, pool])
    wanted, found = len(delays) * len(disks), len(await injections(node, pool))
    if found != wanted:
        raise TrialError(f"node {node.name}: ZFS delays {found} of {wanted} times that were asked for")


async def injections(node: Node, pool: str) -> list[str]:
    listed = await node.run(["zinject"], check=False)
    return numbers_of(listed.stdout.decode(errors="replace"), pool) if listed.ok else []


def numbers_of(listing: str, pool: str) -> list[str]:
    """``zinject`` without arguments: tables of handlers, whose first columns are a number and a pool."""
    return [number for number, name in _ROW.findall(listing) if name == pool]


async def withdraw(node: Node, pool: str) -> None:
    """Take back all that was injected into a pool."""
    for number in await injections(node, pool):
        await node.run(["zinject", "-c", number], check=False)
