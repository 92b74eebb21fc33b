"""What a check says: nothing, or a remark, where all is as it should be; else ``Fails`` or ``Unsupported``."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

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
    """Raises ``Fails`` where it isn't so."""
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
