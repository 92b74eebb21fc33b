"""What a reader must know of some disks: those that make no requests of what they get, and partitions.

The kernel makes requests only where there are queues (blk-mq), and knows them by their offset on the whole disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from storlab.blockio.requests import UNITS
from storlab.units import size_text

_SECTOR = 512
_DISK_WIDE = "its requests are listed as {whole}'s, with their offsets on the whole disk"


def without_requests(disk: str, beneath: Sequence[str] = ()) -> str:
    """The sentence for a disk without ``/sys/block/DISK/mq``; ``beneath``: the disks that it lies on."""
    goes = f", before it goes to {', '.join(beneath)}" if beneath else ""
    return f"{disk} makes no requests of its own (it is bio-based): what it gets is counted bio by bio{goes}"


def of_partition(disk: str, whole: str, start: int) -> str:
    """The sentence for a partition, which begins at sector ``start`` (of 512 bytes)."""
    said = f"{disk} is a partition of {whole}: {_DISK_WIDE.format(whole=whole)}"
    return f"{said}; {off_boundary(disk, start)}" if is_off_boundary(start) else said


def is_off_boundary(start: int) -> bool:
    """Whether a partition that begins there moves what it holds off the boundary of any unit of ``UNITS``."""
    return start * _SECTOR % UNITS[-1] != 0


def off_boundary(disk: str, start: int) -> str:
    """The sentence on such a partition."""
    offset = start * _SECTOR
    unit = next(unit for unit in UNITS if offset % unit)
    return (
        f"{disk} begins at a multiple of {size_text(offset & -offset)}, which is on no boundary of {size_text(unit)}: "
        "what is aligned within it is not aligned on the disk"
    )


def counted_twice(disk: str, beneath: Sequence[str]) -> str:
    """The sentence for a disk that lies on others which are watched as well."""
    return (
        f"{disk} lies on {', '.join(beneath)}, and both are watched: what goes through both is counted twice, "
        "and shares are of all of it"
    )
