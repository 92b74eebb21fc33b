"""Writing files so that a crash leaves either the old contents or the new, never half of either."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from storlab.reading import open_file

_PIECE = 1 << 30  # bytes that are copied at a time, at most
_CANNOT = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)
"""Two file systems before 5.3, files of no kind that it copies, no such call, or one that a container forbids."""


def write_durably(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step, and let it survive a power cut once this returns."""
    write_whole(path, data, durable=True)
    sync_folder(path.parent)


def write_whole(path: Path, data: bytes, durable: bool = False, mode: int | None = None) -> None:
    """Replace ``path`` in one step. For what can be derived again, it need not survive a power cut.

    ``mode``: its permissions, whatever the umask.
    """
    temporary = unfinished(path)
    temporary.unlink(missing_ok=True)  # of a crash; or somebody's link, which must not be followed
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk, half a file is in the way
        raise
    temporary.replace(path)


def copy_durably(source: Path, target: Path) -> None:
    """A copy of a file of any size, in as much memory as a small one, that survives a power cut."""
    with open_file(source) as read, target.open("xb") as written:
        _copy(read, written)
        written.flush()
        os.fsync(written.fileno())
    sync_folder(target.parent)


def _copy(read: BinaryIO, written: BinaryIO) -> None:
    """By the kernel where it can, see copy_file_range(2): some file systems then share the blocks of both files."""
    try:
        while os.copy_file_range(read.fileno(), written.fileno(), _PIECE):
            pass
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    shutil.copyfileobj(read, written)  # what is left: mostly nothing; all of files that say they have no length


def unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
