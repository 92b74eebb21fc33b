"""Files that somebody else may have laid: read if they are files, and no longer than they may be.

A pipe has nobody who writes, a device reads for ever, or does something when it is opened; so what a name leads to is
looked at before it is opened. All refusals are ``OSError``, with words for ``strerror``, as if the kernel had refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from storlab.limits import FILE, LINE, RAW

_KINDS = {
    stat.S_IFIFO: "it is a pipe, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
    stat.S_IFCHR: "it is a device, not a file",
    stat.S_IFBLK: "it is a device, not a file",
    stat.S_IFDIR: "Is a directory",
}


def open_file(path: str | Path, pipes: bool = False) -> BufferedReader:
    """A regular file, open for reading in bytes. Raises ``OSError`` where it is none.

    ``pipes``: one that the user's own shell wrote into the command line (``<(…)``, a name below ``/dev``) will do.
    """
    seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        kind = stat.S_IFMT(os.fstat(seen).st_mode)
        piped = pipes and kind == stat.S_IFIFO and Path(path).is_relative_to("/dev")
        if kind != stat.S_IFREG and not piped:
            raise OSError(errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL, _KINDS[kind], str(path))
        # What is open is opened once more, so it is the same file. Some below /proc wait for news unless told not to.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | (0 if piped else os.O_NONBLOCK)
        try:
            return os.fdopen(os.open(f"/proc/self/fd/{seen}", flags), "rb")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(seen)


def read_file(path: str | Path, limit: int = RAW, pipes: bool = False) -> bytes:
    """All of a file of at most ``limit`` bytes. Raises ``OSError`` where it is longer, or as ``open_file`` does."""
    with open_file(path, pipes) as file:
        if os.fstat(file.fileno()).st_size <= limit:  # or whoever says so is believed
            data: bytes | None = file.read(limit + 1)
            if data is None:
                raise OSError(errno.EAGAIN, "it has nothing to read", str(path))
            if len(data) <= limit:
                return data
    raise OSError(errno.EFBIG, f"it is longer than {limit / 1024**2:g} MiB", str(path))


def is_elf(path: Path) -> bool:
    """Whether it is a file that can be read and begins as programs, modules and kernels of ELF do."""
    try:
        with open_file(path) as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def lines_of(path: str | Path) -> Iterator[bytes]:
    """The lines of a file of any length that a trial may leave, one at a time, each with its end.

    Raises ``OSError`` where one is longer than any may be, such as of a sparse file, or as ``open_file`` does.
    """
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > FILE:
            raise OSError(errno.EFBIG, f"it is longer than {FILE / 1024**2:g} MiB", str(path))
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                raise OSError(errno.EFBIG, f"it has a line of more than {LINE / 1024**2:g} MiB", str(path))
            yield line


def data_in(descriptor: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each piece of an open file that is no hole, see lseek(2)."""
    end = 0
    while True:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is only a hole until its end
                return
            raise
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end
