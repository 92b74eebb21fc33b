"""Write logs as QEMU and the kernel write them, from requests; and their meaning, in a few plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storlab.tools.log_writes import ENTRY, HEAD, MAGIC

SECTOR = 512


@dataclass(frozen=True)
class Request:
    """One that was completed. ``sectors`` are those of a discard, which has no data."""

    sector: int = 0
    data: bytes = b""
    flags: int = 0
    sectors: int = 0
    mark: bytes = b""

    @property
    def length(self) -> int:
        """Bytes on the disk."""
        return self.sectors * SECTOR or len(self.data)


def log_bytes(requests: Sequence[Request], count: int | None = None) -> bytes:
    """The whole file. ``count``: what its head says, by default the truth."""
    head = HEAD.pack(MAGIC, 1, len(requests) if count is None else count, SECTOR)
    pieces = [head.ljust(SECTOR, b"\0")]
    for each in requests:
        fields = ENTRY.pack(each.sector, each.length // SECTOR, each.flags, len(each.mark))
        pieces += [(fields + each.mark).ljust(SECTOR, b"\0"), each.data]
    return b"".join(pieces)


def replayed(start: bytes, requests: Sequence[Request]) -> bytes:
    """The disk after all of them, one after another."""
    disk = bytearray(start)
    for each in requests:
        at = each.sector * SECTOR
        disk[at : at + each.length] = each.data or bytes(each.length)
    return bytes(disk)
