"""What sysfs says of a block device; Documentation/ABI/stable/sysfs-block in the kernel's sources."""

from __future__ import annotations

from collections.abc import Mapping
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


def sysfs_of_device(number: int) -> str:
    """The link to a disk's folder, by the number of a file system on it, as stat(2) has that."""
    return f"/sys/dev/block/{number >> 8 & 0xFFF}:{number & 0xFF | number >> 12 & 0xFFF00}"


async def has_volatile_cache(node: Node, below: Resource) -> bool:
    """Whether what is written there can be lost until it is flushed; of a file that is not known, so it may be."""
    if not isinstance(below, Disk):
        return True
    return "back" in await node.read_text(f"{sysfs(below.name)}/queue/write_cache")


async def queue_facts(node: Node, disk: str) -> dict[str, Any]:
    """The queue's settings of a disk, by the kernel's names; those that the kernel lacks are left out."""
    paths = [f"{sysfs(disk)}/queue/{name}" for name in QUEUE]
    said = dict(zip(QUEUE, await node.texts(*paths), strict=True))
    return parse_queue({name: value for name, value in said.items() if value is not None})


def parse_queue(said: Mapping[str, str]) -> dict[str, Any]:
    """What each file says: numbers become integers, the scheduler in use stands alone."""
    return {name: number_or_text(chosen(value) if name == "scheduler" else value) for name, value in said.items()}


def chosen(value: str) -> str:
    """Of alternatives, that in brackets: ``none`` of ``[none] mq-deadline``; else the value as it is."""
    return next((word.strip("[]") for word in value.split() if word.startswith("[")), value.strip())
