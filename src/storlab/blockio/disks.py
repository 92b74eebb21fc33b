"""Which disks have requests of their own. The kernel's block layer makes them only for disks with queues (blk-mq)."""

from __future__ import annotations

from collections.abc import Sequence


def without_requests(disk: str, beneath: Sequence[str] = ()) -> str:
    """The sentence for a disk without ``/sys/block/DISK/mq``; ``beneath``: the disks that it lies on."""
    instead = f"watch those beneath it: {', '.join(beneath)}" if beneath else "watch the disks beneath it"
    return f"{disk} has no requests of its own, it hands what it gets on as it is (bio-based); {instead}"
