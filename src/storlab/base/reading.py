"""Files that somebody else may have laid: read if they are files, and no longer than they may be.

A pipe has nobody who writes, a device reads for ever, or does something when it is opened; so what a name leads to is
looked at before it is opened. All refusals are ``OSError``, with words for ``strerror``, as if the kernel had refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from storlab.base.limits import FILE, LINE, RAW

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


# By openat2(2), which Linux has since 5.6 and the C library has not: the kernel itself refuses what leads out of a
# folder, so nothing can be changed between a look at the path and its use.

_OPENAT2 = 437  # the same number on all architectures
_BENEATH = 0x08  # RESOLVE_BENEATH
_NO_SYMLINKS = 0x04  # RESOLVE_NO_SYMLINKS
_WHY = {
    errno.EXDEV: "it leads out of that file's folder: put it below, and write where it lies from there on",
    errno.ELOOP: "a symbolic link is on the way: put what it leads to in its place",
    errno.ENOSYS: "that needs openat2(2), which Linux has since 5.6",
    errno.EPERM: "that needs openat2(2), which something forbids here, such as an old container runtime",
}


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of <linux/openat2.h>."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def openat2(folder: int, name: str | bytes, flags: int) -> int:
    """A descriptor of what lies below an open folder, by a relative path without links. Raises ``OSError``."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_SYMLINKS)
    path = os.fsencode(name)
    if b"\0" in path:
        raise OSError(errno.EINVAL, "no name has a null character", repr(name))
    libc = ctypes.CDLL(None, use_errno=True)
    call = ctypes.c_long(_OPENAT2), ctypes.c_long(folder), ctypes.c_char_p(path)
    libc.syscall.restype = ctypes.c_long
    found: int = libc.syscall(*call, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, _WHY.get(number, os.strerror(number)), os.fsdecode(path))
    return found


@contextmanager
def opened_below(folder: Path, name: str) -> Iterator[Path]:
    """What the file in ``folder`` names by ``name``, by its descriptor, for as long as the block lasts.

    Raises ``OSError``, whose ``strerror`` says what is wrong.
    """
    top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = openat2(top, name, os.O_PATH)
    finally:
        os.close(top)
    try:
        yield Path(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


@contextmanager
def made_below(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A folder below ``folder``, made as far as it is missing, by its descriptor; its user's alone.

    Raises ``OSError`` where a link or a file is on the way.
    """
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            above, at = at, openat2(at, name, os.O_PATH | os.O_DIRECTORY)
            os.close(above)
        yield Path(f"/proc/self/fd/{at}")
    finally:
        os.close(at)
