"""What the server of a directory has of the file that ``hold`` in ``processes.py`` keeps open, as a line of JSON.

A file system that allocates late (ext4, XFS, Btrfs) has no place yet for what was written and not synced, and says so
by FIEMAP: Documentation/filesystems/fiemap.rst.
"""

import fcntl
import json
import os
import struct
import sys

_FIEMAP, _HEADER, _EXTENT = 0xC020660B, struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
_NO_PLACE_YET = 0x2 | 0x4  # FIEMAP_EXTENT_UNKNOWN, FIEMAP_EXTENT_DELALLOC
_MOST = 32


def seen(path: str) -> "dict[str, object]":
    """Its size, whether its contents are what was written, whether all of it has its place on the disk, if known."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return {"size": 0, "same": False, "placed": None}
    with os.fdopen(file, "rb") as opened:
        found = opened.read(64 * 1024 + 1)
        same = found == bytes(range(256)) * 256
        return {"size": len(found), "same": same, "placed": placed(opened.fileno())}


def placed(file: int) -> "bool | None":
    """Whether every extent has a place; ``None`` where the file system does not say."""
    asked = bytearray(_HEADER.pack(0, 2**64 - 1, 0, 0, _MOST, 0) + bytes(_MOST * _EXTENT.size))
    try:
        fcntl.ioctl(file, _FIEMAP, asked)
    except OSError:
        return None
    extents = _HEADER.unpack_from(asked)[3]
    flags = [_EXTENT.unpack_from(asked, _HEADER.size + number * _EXTENT.size)[5] for number in range(extents)]
    return bool(flags) and not any(flag & _NO_PLACE_YET for flag in flags)


if __name__ == "__main__":
    print(json.dumps(seen(os.path.join(sys.argv[1], "synced"))))
