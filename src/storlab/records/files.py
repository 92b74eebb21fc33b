"""Writing files so that a crash leaves either the old contents or the new, never half of either."""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from storlab.base.errors import UserError
from storlab.base.limits import IMPORTED
from storlab.base.reading import open_file, read_file

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


# What a file had when it was imported, which is what is kept of it, although the file may change meanwhile.


def without_bom(text: bytes) -> bytes:
    return text.removeprefix(codecs.BOM_UTF8)


_Seen = tuple[int, int, int, int]


def _look(path: Path) -> _Seen:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class Text:
    """One file. ``known``: the SHA-256 of what was read; ``None`` where it is read piece by piece, being long.

    ``held``: all of what was read, where it can be read only once, as from a pipe. ``seen``: which file one that is
    read piece by piece was, and how large and when changed, before that.
    """

    path: Path
    known: bytes | None = None
    held: bytes | None = None
    seen: _Seen | None = None

    @classmethod
    def of_read(cls, path: Path, text: bytes) -> Text:
        """A file that was read at once as ``text``, without a byte order mark."""
        return cls(path, hashlib.sha256(text).digest(), None if path.is_file() else text)

    @classmethod
    def of_stream(cls, path: Path) -> Text:
        """A file that is read piece by piece, from now on. Raises ``OSError``."""
        return cls(path, seen=_look(path))

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of its contents. Raises ``OSError``."""
        if self.known is not None:
            return self.known
        with open_file(self.path) as file:
            return hashlib.file_digest(file, "sha256").digest()

    def keep(self, place: Path) -> None:
        """Write it to ``place``, durably. Raises ``OSError``, or ``UserError`` where it is not any more what it was."""
        if self.known is None:
            copy_durably(self.path, place)
            if _look(self.path) != self.seen:
                raise UserError(self._changed)
            return
        try:
            text = self.held if self.held is not None else without_bom(read_file(self.path, IMPORTED))
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}; nothing was imported") from None
        if hashlib.sha256(text).digest() != self.known:
            raise UserError(self._changed)
        write_durably(place, text)

    @property
    def _changed(self) -> str:
        return f"{self.path} changed while it was imported; nothing was imported"
