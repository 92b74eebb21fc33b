"""A disk beneath a pool: a name by which ZFS takes it as it is, and what is left on it afterwards.

Given ``/dev/vdb``, ``zpool create`` makes a partition table and waits until udev has linked its first partition. Guests
run no udev, so that it fails there after half a minute. A device node of another name it does not take for a whole disk
(``efi_get_info`` in OpenZFS's lib/libefi/rdwr_efi.c), and so puts its labels on the disk itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from storlab.layers.base import LayerContext
from storlab.layers.resources import Disk
from storlab.nodes.node import Node
from storlab.nodes.ours import refuse_foreign, refuse_foreign_pool
from storlab.nodes.undo import undo


@undo("zpool.forget", outlives_boot=True)
async def forget_labels(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Wipe the labels of a pool of Storlab's, which ``zpool destroy`` only marks, from a device of the user's."""
    device, pool = arguments["device"], arguments["pool"]
    refuse_foreign_pool(pool)
    found = await node.run(["wipefs", "--no-act", "--json", device], check=False)
    if not is_only_member(found.stdout, pool):
        return None
    # Exclusively: it fails, and so stays pending, should the pool still be imported.
    await node.run(["wipefs", "--all", "--quiet", "--types", "zfs_member", device])
    return f"wiped the labels of the pool {pool} from {device}"


@undo("zpool.node")
async def remove_device_node(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Remove a device node that was made for a pool."""
    path = arguments["path"]
    refuse_foreign(path)
    if not (await node.run(["test", "-b", path], check=False)).ok:
        return None
    await node.run(["rm", "--force", "--", path])
    await node.run(["rmdir", "--ignore-fail-on-non-empty", "--", path.rpartition("/")[0]], check=False)
    return f"removed the device node {path}"


async def pool_disk(disk: Disk, pool: str, context: LayerContext) -> str:
    """A device node for the disk that is Storlab's own. In ``/dev``: other file systems may be mounted without any."""
    path = f"/dev/{pool}/{disk.name}"
    if not disk.ours:
        await context.register_undo("zpool.forget", device=disk.path, pool=pool)
    await context.register_undo("zpool.node", path=path)
    major, minor = (await context.node.read_text(f"/sys/class/block/{disk.name}/dev")).strip().split(":")
    await context.node.run(["mkdir", "--parents", "--", path.rpartition("/")[0]])
    await context.node.run(["rm", "--force", "--", path])
    await context.node.run(["mknod", "--mode=0600", path, "b", major, minor])
    return path


def is_only_member(listing: bytes, pool: str) -> bool:
    """Whether all labels of ZFS that ``wipefs --json`` shows, of which there is at least one, are of this pool."""
    rows = orjson.loads(listing)["signatures"] if listing.strip() else []
    names = [row.get("label") for row in rows if row["type"] == "zfs_member"]
    return bool(names) and all(name == pool for name in names)
