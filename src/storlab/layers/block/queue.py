"""What sysfs says of a block device; Documentation/ABI/stable/sysfs-block in the kernel's sources."""

from __future__ import annotations

from typing import Any

from storlab.nodes.node import Node
from storlab.text import number_or_text

_QUEUE = (
    "logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "max_sectors_kb", "nr_requests",
    "scheduler", "rotational", "write_cache", "fua", "discard_granularity", "read_ahead_kb",
)  # fmt: skip


async def queue_facts(node: Node, disk: str) -> dict[str, Any]:
    """The queue's settings of a disk, by the kernel's names; those that the kernel lacks are left out."""
    paths = [f"/sys/class/block/{disk}/queue/{name}" for name in _QUEUE]
    listing = await node.run(["grep", "--with-filename", "", *paths], check=False)  # 2: one does not exist
    return parse_queue(listing.stdout.decode(errors="replace"))


def parse_queue(listing: str) -> dict[str, Any]:
    """Lines ``…/queue/NAME:VALUE`` as a mapping; numbers become integers, the scheduler in use stands alone."""
    facts: dict[str, Any] = {}
    for line in listing.splitlines():
        path, separator, value = line.partition(":")
        name = path.rpartition("/")[2]
        if not separator or name not in _QUEUE:
            continue
        if name == "scheduler":
            value = next((word.strip("[]") for word in value.split() if word.startswith("[")), value)
        facts[name] = number_or_text(value)
    return facts
