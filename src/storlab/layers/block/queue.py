"""What sysfs says of a block device; Documentation/ABI/stable/sysfs-block in the kernel's sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storlab.layers.resources import Disk, Resource
from storlab.text import number_or_text

if TYPE_CHECKING:
    from storlab.nodes.node import Node

QUEUE = (
    "logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "max_sectors_kb",
    "max_hw_sectors_kb", "nr_requests", "scheduler", "rotational", "write_cache", "fua", "discard_granularity",
    "read_ahead_kb",
)  # fmt: skip


def sysfs(disk: str) -> str:
    """The folder of a disk by its name, which has slashes where sysfs has exclamation marks."""
    return f"/sys/class/block/{disk.replace('/', '!')}"


async def has_volatile_cache(node: Node, below: Resource) -> bool:
    """Whether what is written there can be lost until it is flushed; of a file that is not known, so it may be."""
    if not isinstance(below, Disk):
        return True
    return "back" in await node.read_text(f"{sysfs(below.name)}/queue/write_cache")


async def queue_facts(node: Node, disk: str) -> dict[str, Any]:
    """The queue's settings of a disk, by the kernel's names; those that the kernel lacks are left out."""
    paths = [f"{sysfs(disk)}/queue/{name}" for name in QUEUE]
    listing = await node.run(["grep", "--with-filename", "", *paths], check=False)  # 2: one does not exist
    return parse_queue(listing.stdout.decode(errors="replace"))


def parse_queue(listing: str) -> dict[str, Any]:
    """Lines ``…/queue/NAME:VALUE`` as a mapping; numbers become integers, the scheduler in use stands alone."""
    facts: dict[str, Any] = {}
    for line in listing.splitlines():
        path, separator, value = line.partition(":")
        name = path.rpartition("/")[2]
        if not separator or name not in QUEUE:
            continue
        facts[name] = number_or_text(chosen(value) if name == "scheduler" else value)
    return facts


def chosen(value: str) -> str:
    """Of alternatives, that in brackets: ``none`` of ``[none] mq-deadline``; else the value as it is."""
    return next((word.strip("[]") for word in value.split() if word.startswith("[")), value.strip())
