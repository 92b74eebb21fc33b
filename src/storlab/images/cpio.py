"""A cpio archive as the kernel unpacks at boot ("newc"): Documentation/driver-api/early-userspace/buffer-format.rst.

The kernel takes several, one after another, so that a launcher can append its own to one that was built before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_FILE, _FOLDER = 0o100000, 0o040000
_TRAILER = "TRAILER!!!"
_MODE = 0o644
BLOCK = 512


def archive(files: Mapping[str, bytes], executable: frozenset[str] = frozenset(), empty: Iterable[str] = ()) -> bytes:
    """Files by their path without a leading slash; their folders come by themselves. Sorted, owned by root, time 0.

    ``empty``: further folders. Its length is a multiple of ``BLOCK``, so that another archive can follow.
    """
    above = {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
    folders = sorted(above.union(empty))
    parts = [_entry(number, path, _FOLDER | 0o755, b"") for number, path in enumerate(folders, 1)]
    for number, path in enumerate(sorted(files), len(folders) + 1):
        mode = _FILE | (0o755 if path in executable else _MODE)
        parts.append(_entry(number, path, mode, files[path]))
    parts.append(_entry(0, _TRAILER, 0, b""))
    whole = b"".join(parts)
    return whole + b"\0" * (-len(whole) % BLOCK)


def _entry(inode: int, name: str, mode: int, data: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if mode & _FOLDER else 1
    # c_ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    numbers = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
