"""The labels that a pool leaves on a device of the user's, and wiping them.

``zpool destroy`` only marks them. On a whole disk ZFS also makes a partition table (GPT) with two partitions.
"""

from __future__ import annotations

import orjson

from storlab.nodes.node import Node


async def forget_pool(node: Node, device: str, pool: str) -> str | None:
    """Wipe the labels of this pool, and the partition table that came with it; whatever else is there stays."""
    partition = f"{device}p1" if device[-1].isdigit() else f"{device}1"
    ninth = f"{partition[:-1]}9"
    found = await node.run(["wipefs", "--no-act", "--json", partition], check=False)
    if labels_of(found.stdout, pool):
        for part in (partition, ninth):
            await node.run(["wipefs", "--all", "--quiet", "--force", part], check=False)
        await node.run(["wipefs", "--all", "--quiet", "--force", device])
        await node.run(["blockdev", "--rereadpt", device], check=False)
        return f"wiped the pool {pool} and its partition table from {device}"
    found = await node.run(["wipefs", "--no-act", "--json", device], check=False)
    if labels_of(found.stdout, pool):
        await node.run(["wipefs", "--all", "--quiet", "--types", "zfs_member", device])
        return f"wiped the pool {pool} from {device}"
    return None


def labels_of(listing: bytes, pool: str) -> bool:
    """Whether all labels of ZFS that ``wipefs --json`` shows, of which there is at least one, are of this pool."""
    rows = orjson.loads(listing)["signatures"] if listing.strip() else []
    names = [row.get("label") for row in rows if row["type"] == "zfs_member"]
    return bool(names) and all(name == pool for name in names)
