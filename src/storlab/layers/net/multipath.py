"""Several disks of the kernel's that are one at the server, joined by device mapper (drivers/md/dm-mpath.c of Linux).

Requests go to them in turn. One whose path fails is left out from then on, and with none left they fail: nobody queues
them, and no daemon tries again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from storlab.layers.base import LayerContext
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import OF_RUN, RunId, undo

_MODULES = ("dm_multipath", "dm_round_robin")
NEEDS = Needs(programs=("dmsetup", "modprobe"), modules=_MODULES)
_WITHOUT_UDEV = ("--noudevrules", "--noudevsync")  # guests have none, and it would be waited for
_REMOVE = r"""
dmsetup info "$1" > /dev/null 2>&1 || exit 0
dmsetup remove --force --retry --noudevrules --noudevsync "$1" && echo gone
"""


class _Joined(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^storlab-[A-Za-z0-9.-]{1,100}$"), OF_RUN]
    run: RunId


@undo("multipath.remove", arguments=_Joined)
async def remove(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Unjoin them. What still waits for it fails."""
    name = arguments["name"]
    return f"removed {name}" if await node.output("sh", "-c", _REMOVE, "remove", name) else None


async def joined(disks: Sequence[str], context: LayerContext) -> str:
    """The kernel's name of the disk that these are: ``dm-0``."""
    node, name = context.node, f"storlab-{context.run}-{context.slot}"
    await node.run(["modprobe", "--all", *_MODULES], check=False)
    sectors = (await node.read_text(f"/sys/class/block/{disks[0]}/size")).strip()
    paths = " ".join([f"/dev/{disk} 1" for disk in disks])
    table = f"0 {sectors} multipath 0 0 1 1 round-robin 0 {len(disks)} 1 {paths}"  # no features, one group, 1 argument
    await context.register_undo(remove.name, name=name, run=context.run)
    await node.run(["dmsetup", "create", *_WITHOUT_UDEV, name, "--table", table])
    said = await node.output("dmsetup", "info", "--columns", "--noheadings", "--options", "blkdevname", name)
    return said.strip()
