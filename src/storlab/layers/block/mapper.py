"""Disks of the kernel's device mapper (drivers/md/dm.c of Linux): how they are named, found and removed.

``DM_DISABLE_UDEV`` lets libdevmapper make and remove the name below ``/dev/mapper`` itself: guests have no udev, which
it would wait for. The disk itself, ``/dev/dm-0``, is the kernel's.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from storlab.base.text import number_or_text
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import sysfs
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import OF_RUN, undo

WITHOUT_UDEV = ("env", "DM_DISABLE_UDEV=1")
SECTOR = 512
"""Bytes, in which tables count, whatever the sectors of a disk are."""
_REMOVE = r"""
dmsetup info "$1" > /dev/null 2>&1 || exit 0
DM_DISABLE_UDEV=1 dmsetup remove --force --retry "$1" && echo gone
"""
_Name = Annotated[str, Meta(pattern=r"^storlab-[A-Za-z0-9._+-]{1,100}$"), OF_RUN]


@undo("mapper.remove")
async def remove(node: Node, name: _Name) -> str | None:
    """Remove a disk of device mapper. What still waits for it fails."""
    return f"removed {name}" if await node.output("sh", "-c", _REMOVE, "remove", name) else None


def needs(*modules: str, programs: Sequence[str] = ()) -> Needs:
    return Needs(programs=("dmsetup", "modprobe", *programs), modules=modules, root="disks of device mapper")


def name_of(context: LayerContext) -> str:
    return f"storlab-{context.run}-{context.owner}-{context.position}-{zlib.crc32(context.scratch.encode()):08x}"


async def announce(context: LayerContext, name: str, *modules: str) -> None:
    """Journal how a disk is removed that is made next, and load what it takes, which stays loaded."""
    await load_modules(context.node, *modules)
    await context.register_undo(remove.name, name=name)


async def create(context: LayerContext, name: str, table: str, *modules: str) -> str:
    """The kernel's name, ``dm-0``, of a new disk with this ``table``, a line a part of it."""
    await announce(context, name, *modules)
    return await make(context.node, name, table)


async def make(node: Node, name: str, table: str) -> str:
    """The same of a disk that is announced already."""
    await node.run([*WITHOUT_UDEV, "dmsetup", "create", name], stdin=table.encode())
    return await kernels_name(node, name)


async def kernels_name(node: Node, name: str) -> str:
    columns = ("--columns", "--noheadings", "--options", "blkdevname")
    return (await node.output("dmsetup", "info", *columns, name)).strip()


async def sectors_of(node: Node, disk: str) -> int:
    """The size of a disk by its kernel's name, in the sectors that tables count in."""
    return int(await node.read_text(f"{sysfs(disk)}/size"))


async def size_of(node: Node, disk: str) -> int:
    return await sectors_of(node, disk) * SECTOR


def parse_status(text: str, shown: Sequence[str]) -> dict[str, Any]:
    """``cryptsetup status``: lines ``  cipher:  aes-xts-plain64`` after the first, of which some are shown."""
    pairs = (line.partition(":") for line in text.splitlines() if line.startswith(" "))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: number_or_text(found[name]) for name in shown if found.get(name)}
