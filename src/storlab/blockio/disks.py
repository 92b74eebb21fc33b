"""Disks that make no requests of what they get: the kernel does so only where there are queues (blk-mq)."""

from __future__ import annotations

from collections.abc import Sequence


def without_requests(disk: str, beneath: Sequence[str] = ()) -> str:
    """The sentence for a disk without ``/sys/block/DISK/mq``; ``beneath``: the disks that it lies on."""
    goes = f", before it goes to {', '.join(beneath)}" if beneath else ""
    return f"{disk} makes no requests of its own (it is bio-based): what it gets is counted bio by bio{goes}"
