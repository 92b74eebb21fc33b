"""Writing what was logged onto the image of a disk. Data never pass through memory as a whole.

All of it blocks; callers with other work to do use a thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import eq
from pathlib import Path

from storlab.crash.cut import Piece
from storlab.errors import ParseError
from storlab.reading import data_in
from storlab.tools.log_writes import Entry, Flag, WriteLog

_CHUNK = 1024 * 1024
_FICLONE = 0x40049409  # ioctl_ficlone(2)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # fallocate(2)
_NOT_HERE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS}


@dataclass(frozen=True)
class Replay:
    """A log and an image, both open."""

    log: WriteLog
    source: int
    image: int
    size: int

    def write(self, pieces: Iterable[Piece]) -> None:
        """Put these onto the image, in order. Raises ``ParseError`` for what lies beyond its end, ``OSError``."""
        for piece in pieces:
            if piece.offset + piece.length > self.size:
                raise ParseError(
                    f"a write at byte {piece.offset} lies beyond the end of the disk ({self.size} bytes)",
                    str(self.log.path),
                )
            if piece.entry.flags & Flag.DISCARD:
                punch(self.image, piece.offset, piece.length)
            else:
                at = piece.entry.data + piece.offset - piece.entry.offset
                copy_range(self.source, at, self.image, piece.offset, piece.length)

    def write_all(self, entries: Iterable[Entry]) -> None:
        self.write(Piece(entry, entry.offset, entry.length) for entry in entries if entry.length)


@contextmanager
def replaying(log: WriteLog, image: Path) -> Iterator[Replay]:
    with ExitStack() as stack:
        source = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, source)
        target = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, target)
        yield Replay(log, source, target, os.fstat(target).st_size)


def copy_range(source: int, at: int, target: int, to: int, length: int) -> None:
    """Copy bytes between two files, in the kernel where it can. Raises ``OSError``."""
    while length:
        try:
            done = os.copy_file_range(source, target, length, at, to)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            done = os.pwrite(target, os.pread(source, min(length, _CHUNK), at), to)
        if not done:
            raise OSError(errno.EIO, "the file is shorter than it was")
        at, to, length = at + done, to + done, length - done


def punch(descriptor: int, offset: int, length: int) -> None:
    """Discard: what is there reads as zeros afterwards. Raises ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length) == 0:
        return
    if ctypes.get_errno() not in _NOT_HERE:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    while length:
        done = os.pwrite(descriptor, bytes(min(length, _CHUNK)), offset)
        offset, length = offset + done, length - done


def copy_image(source: Path, target: Path) -> None:
    """A new file with the same contents: a clone where it can be, else without what is a hole. Raises ``OSError``."""
    with ExitStack() as stack:
        old = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, old)
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, new)
        try:
            fcntl.ioctl(new, _FICLONE, old)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            os.ftruncate(new, os.fstat(old).st_size)
            for begin, end in data_in(old):
                copy_range(old, begin, new, begin, end - begin)


def first_difference(one: Path, other: Path) -> int | None:
    """The first byte in which two files differ; ``None`` where they are equal. Raises ``OSError``."""
    with one.open("rb") as left, other.open("rb") as right:
        if os.fstat(left.fileno()).st_size != os.fstat(right.fileno()).st_size:
            return min(os.fstat(left.fileno()).st_size, os.fstat(right.fileno()).st_size)
        at = 0
        while True:
            mine, theirs = left.read(_CHUNK), right.read(_CHUNK)
            if mine != theirs:
                return at + next(number for number, same in enumerate(map(eq, mine, theirs)) if not same)
            if not mine:
                return None
            at += len(mine)
