"""Logs of all writes and flushes underneath a disk, in the format of the kernel's target dm-log-writes.

QEMU's block filter ``blklogwrites`` writes the same. See Documentation/admin-guide/device-mapper/log-writes.rst of the
kernel, and block/blklogwrites.c of QEMU. All numbers are little-endian:

- sector 0: magic, version, number of entries (64 bits each), size of a sector in bytes (32 bits);
- then each entry: a sector that begins with first sector, number of sectors, flags and length of inline data (64 bits
  each), and after it the data, unless it is a discard. What a mark says lies in the entry's own sector.

The number in sector 0 may lag behind what was logged, and so is the least that must be there.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from storlab.base.errors import ParseError

MAGIC, VERSION = 0x6A736677736872, 1
HEAD, ENTRY = struct.Struct("<QQQI"), struct.Struct("<QQQQ")
MAX_ENTRIES = 4_000_000
"""What is held in memory of one log; about 150 bytes each."""
_SECTORS = range(512, 2**24)
_MAX_DISK = 2**63  # bytes


class Flag(IntFlag):
    """What an entry is. One without any is a plain write."""

    FLUSH = 1
    FUA = 2
    DISCARD = 4
    MARK = 8
    METADATA = 16


_ALL = int(Flag.FLUSH | Flag.FUA | Flag.DISCARD | Flag.MARK | Flag.METADATA)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that was completed. Bytes: ``offset`` and ``length`` on the disk; ``data`` and ``end`` in the log.

    A flush and a mark have no length. ``end`` is where the entry ends in the log.
    """

    offset: int
    length: int
    flags: int
    data: int
    end: int


@dataclass(frozen=True)
class WriteLog:
    """A whole log: its entries in the order in which the requests were completed."""

    path: Path
    sector_size: int
    entries: tuple[Entry, ...]

    def before(self, size: int) -> int:
        """How many entries had been logged when the log had so many bytes: all that are whole below that."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.entries[middle].end <= size else (low, middle)
        return low


def read_log(path: Path) -> WriteLog:
    """Read what was logged; the data stay where they are. Raises ``ParseError``, ``OSError``.

    An empty file is an empty log: QEMU writes nothing before the first request.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ParseError("not a regular file", str(path))
        if not found.st_size:
            return WriteLog(path, _SECTORS.start, ())
        sector_size, least = _read_head(os.pread(descriptor, HEAD.size, 0), str(path))
        entries = _read_entries(descriptor, found.st_size, sector_size, least, str(path))
    finally:
        os.close(descriptor)
    return WriteLog(path, sector_size, entries)


def _read_head(data: bytes, source: str) -> tuple[int, int]:
    if len(data) < HEAD.size:
        raise ParseError(f"too short for a write log: {len(data)} bytes", source)
    magic, version, entries, sector_size = HEAD.unpack(data)
    if magic != MAGIC:
        raise ParseError("not a write log: it does not begin with the magic number of dm-log-writes", source)
    if version != VERSION:
        raise ParseError(f"a write log of version {version}; only version {VERSION} is known", source)
    if sector_size not in _SECTORS or sector_size & (sector_size - 1):
        raise ParseError(f"{sector_size} bytes is not a valid size of a sector", source)
    return sector_size, entries


def _read_entries(descriptor: int, size: int, sector_size: int, least: int, source: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    at = sector_size
    while at + ENTRY.size <= size:
        sector, sectors, flags, inline = ENTRY.unpack(os.pread(descriptor, ENTRY.size, at))
        if not (sector or sectors or flags or inline):
            break  # never written: where QEMU was killed, or the end
        where = f"entry {len(entries) + 1}, at byte {at}"
        if flags & ~_ALL:
            raise ParseError(f"{where}: unknown flags {flags & ~_ALL:#x}", source)
        offset, length = sector * sector_size, sectors * sector_size
        if offset + length > _MAX_DISK:
            raise ParseError(f"{where}: sectors {sector} to {sector + sectors} are on no disk", source)
        if flags & Flag.MARK and (sectors or inline > sector_size - ENTRY.size):
            raise ParseError(f"{where}: a mark that does not fit into its sector", source)
        data = at + sector_size
        end = data if flags & Flag.DISCARD else data + length
        if end > size:
            break  # cut short
        if len(entries) == MAX_ENTRIES:
            raise ParseError(f"more than the {MAX_ENTRIES} entries that are read of one log", source)
        entries.append(Entry(offset, length, flags, data, end))
        at = end
    if len(entries) < least:
        raise ParseError(f"{least} entries were logged, and only {len(entries)} are whole", source)
    return tuple(entries)
