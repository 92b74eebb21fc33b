"""Files that somebody else's file names: they lie below its folder, and no link is on the way.

By openat2(2), which Linux has since 5.6 and the C library has not: the kernel itself refuses what leads out, so nothing
can be changed between a look at the path and its use.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

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
