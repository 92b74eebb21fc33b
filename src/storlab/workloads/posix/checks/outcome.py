"""What a check says: nothing, or a remark, if all is as it should be; else ``Fails`` or ``Unsupported``."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

NOT_THERE = (errno.ENOSYS, errno.EOPNOTSUPP)  # which is ENOTSUP on Linux
"""What every call may give that this file system, or this kernel, doesn't have."""


class Fails(Exception):
    """The file system has it, and does something else than it should."""


class Unsupported(Exception):
    """The file system says that it doesn't have it."""


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")


@contextmanager
def calling(what: str, *missing: int) -> Iterator[None]:
    """Names the call that an error comes from. One of ``missing`` means that the file system doesn't have the call."""
    try:
        yield
    except OSError as error:
        said = f"{what}: {name_of(error)}"
        raise (Unsupported(said) if error.errno in missing else Fails(said)) from None


@contextmanager
def refused(what: str, *expected: int) -> Iterator[None]:
    """The block must end with one of these errors."""
    names = " or ".join(errno.errorcode[number] for number in expected)
    try:
        yield
    except OSError as error:
        if error.errno not in expected:
            raise Fails(f"{what}: {name_of(error)}, not {names}") from None
    else:
        raise Fails(f"{what} succeeds, but should fail with {names}")


def expect(true: bool, otherwise: str) -> None:
    """Raises ``Fails`` if it isn't so."""
    if not true:
        raise Fails(otherwise)


def create(name: str | bytes, data: bytes = b"") -> None:
    with open(name, "xb") as file:
        file.write(data)


def contents(name: str | bytes) -> bytes:
    with open(name, "rb") as file:
        return file.read()


def names_in(folder: str | bytes = ".") -> set[str | bytes]:
    return set(os.listdir(folder))


# System calls that Python's ``os`` doesn't have, or not with all their flags, by the C library.

AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE = 1, 2, 16
_STATX_BTIME, _BTIME_AT = 0x800, 80  # bytes into struct statx


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    """Raises ``OSError``; ENOSYS where the C library lacks it."""
    function = getattr(_libc(), name, None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def rename_with(old: str, new: str, flags: int) -> None:
    """renameat2(2)."""
    _call("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), ctypes.c_uint(flags))


def link_open(file: int, name: str) -> None:
    """Give an open file a name, as open(2) has it for O_TMPFILE."""
    _call("linkat", AT_FDCWD, f"/proc/self/fd/{file}".encode(), AT_FDCWD, os.fsencode(name), AT_SYMLINK_FOLLOW)


def allocate(file: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2); ``os.posix_fallocate`` writes where the file system can't, so it always can."""
    _call("fallocate", file, mode, ctypes.c_int64(offset), ctypes.c_int64(length))


def birth_of(name: str) -> tuple[int, int] | None:
    """When a file was created, in s and ns; ``None`` where the file system doesn't say."""
    status = ctypes.create_string_buffer(256)
    _call("statx", AT_FDCWD, os.fsencode(name), 0, ctypes.c_uint(_STATX_BTIME), status)
    (mask,) = struct.unpack_from("=I", status)
    seconds, nanoseconds = struct.unpack_from("=qI", status, _BTIME_AT)
    return (seconds, nanoseconds) if mask & _STATX_BTIME else None
