"""Mapped files, mmap(2), beside read(2) and write(2), in this process and another."""

from __future__ import annotations

import errno
import mmap
import os

from .outcome import Fails, Unsupported, calling, contents, create, expect, name_of
from .processes import elsewhere

_PAGE = mmap.PAGESIZE
# mmap(2): ENODEV, "does not support memory mapping". For an aligned offset and a length above 0, EINVAL can only be the
# file system's: Linux has it for those that map files to read alone (generic_file_readonly_mmap).
_NOT_MAPPED = (errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def _mapped(flags: int, protection: int) -> mmap.mmap:
    create("file", b"0" * (2 * _PAGE))
    return _map("file", 2 * _PAGE, flags, protection)


def map_shared(name: str, length: int) -> mmap.mmap:
    """A file that is there, to read and write. Raises ``Unsupported`` where it can't be mapped so."""
    return _map(name, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def _map(name: str, length: int, flags: int, protection: int) -> mmap.mmap:
    with open(name, "r+b") as file:
        try:
            return mmap.mmap(file.fileno(), length, flags, protection)
        except OSError as error:
            kind = Unsupported if error.errno in _NOT_MAPPED else Fails
            raise kind(f"mmap: {name_of(error)}") from None


def _shared() -> mmap.mmap:
    return _mapped(mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def _pread(at: int) -> str:
    """As text, for it comes from another process."""
    file = os.open("file", os.O_RDONLY)
    return os.pread(file, 1, at).decode(errors="replace")


def private() -> None:
    """MAP_PRIVATE: to read; what is stored stays with the process."""
    mapped = _mapped(mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    expect(mapped[_PAGE : _PAGE + 1] == b"0", "the mapping has other contents than the file")
    mapped[:1] = b"1"
    expect(contents("file")[:1] == b"0", "what is stored in a private mapping is in the file")


def shared_writing() -> None:
    """MAP_SHARED to write: what is stored is in the file after msync(2) and munmap(2)."""
    mapped = _shared()
    mapped[_PAGE : _PAGE + 1] = b"1"
    with calling("msync"):
        mapped.flush()
    mapped.close()
    found = contents("file")
    expect(found == b"0" * _PAGE + b"1" + b"0" * (_PAGE - 1), "the file has other contents than were stored")


def stored_then_read() -> None:
    """What is stored in a shared mapping is at once what another process reads."""
    mapped = _shared()
    expect(elsewhere(lambda: _pread(1)) == "0", "read gives other contents than the file had")
    mapped[1:2] = b"1"
    expect(elsewhere(lambda: _pread(1)) == "1", "read in another process does not give what was stored")


def written_then_loaded() -> None:
    """What another process writes is at once in a shared mapping."""
    mapped = _shared()
    expect(mapped[1:2] == b"0", "the mapping has other contents than the file")

    def write() -> None:
        file = os.open("file", os.O_WRONLY)
        os.pwrite(file, b"1", 1)

    elsewhere(write)
    expect(mapped[1:2] == b"1", "the mapping does not have what another process wrote")
