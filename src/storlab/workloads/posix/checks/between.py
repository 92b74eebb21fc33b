"""What a node sees of another one's work in the same files. POSIX has one kind of answer: at once, as on one machine.

The first node acts, the others look. See ``Turns`` for how they wait for each other.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable

from .files import map_shared
from .outcome import NOT_THERE, Fails, calling, contents, create, expect, refused
from .processes import Steps

_PAGE = mmap.PAGESIZE
_PATIENCE = 3.0  # s, for what a node sees late; FUSE has attributes for a second
_MOMENT = 0.05
_BUSY = (errno.EAGAIN, errno.EACCES)


def _sees(look: Callable[[], object], expected: object, what: str) -> None:
    """Raises ``Fails`` if it is not there at once, and says whether it comes later."""
    if look() == expected:
        return
    began = time.monotonic()
    while time.monotonic() < began + _PATIENCE:
        time.sleep(_MOMENT)
        if look() == expected:
            raise Fails(f"{what} only after {time.monotonic() - began:.1f} s")
    raise Fails(f"{what} not within {_PATIENCE:g} s")


def created(first: bool) -> Steps:
    """A name that was not there when it was looked up before."""
    expect(not os.path.exists("file"), "the file is there before it is created")
    yield
    if first:
        create("file", b"1")
    yield
    _sees(lambda: os.path.exists("file"), True, "a file that another node creates is there")
    yield
    return None


def removed(first: bool) -> Steps:
    """A name that was there."""
    if first:
        create("file", b"1")
    yield
    contents("file")
    yield
    if first:
        os.unlink("file")
    yield
    _sees(lambda: os.path.exists("file"), False, "a file that another node removes is gone")
    return None


def renamed(first: bool) -> Steps:
    """rename(2) over a file that was read before: the name leads to the new one."""
    if first:
        create("file", b"old")
        create("new", b"new")
    yield
    expect(contents("file") == b"old", "the file has other contents than were written")
    yield
    if first:
        os.rename("new", "file")
    yield
    _sees(lambda: contents("file"), b"new", "the name leads to the file that another node renamed")
    return None


def written_and_closed(first: bool) -> Steps:
    """Close to open: what was written before close(2) is what open(2) and read(2) give afterwards."""
    if first:
        create("file", b"0" * _PAGE)
    yield
    expect(contents("file") == b"0" * _PAGE, "the file has other contents than were written")
    yield
    if first:
        with open("file", "r+b") as file:
            file.write(b"1" * (2 * _PAGE))
    yield
    _sees(lambda: contents("file"), b"1" * (2 * _PAGE), "what another node wrote and closed is read")
    return None


def written_while_open(first: bool) -> Steps:
    """What is written is what read(2) gives, though both have the file open all the time."""
    if first:
        create("file", b"0" * _PAGE)
    yield
    file = os.open("file", os.O_RDWR)
    expect(os.pread(file, 1, 0) == b"0", "the file has other contents than were written")
    yield
    if first:
        os.pwrite(file, b"1", 0)
    yield
    _sees(lambda: os.pread(file, 1, 0), b"1", "what another node writes to an open file is read")
    yield
    return None


def stored_then_read(first: bool) -> Steps:
    """What is stored in a shared mapping and synced by msync(2) is what read(2) gives, of a file that is open."""
    if first:
        create("file", b"0" * (2 * _PAGE))
    yield
    mapped, file = map_shared("file", 2 * _PAGE), os.open("file", os.O_RDONLY)
    expect(os.pread(file, 1, _PAGE) == b"0", "the file has other contents than were written")
    yield
    if first:
        mapped[_PAGE : _PAGE + 1] = b"1"
        mapped.flush()
    yield
    _sees(lambda: os.pread(file, 1, _PAGE), b"1", "what another node stored and synced is read")
    yield
    return None


def stored_then_loaded(first: bool) -> Steps:
    """The same, in the mapping that the other node has."""
    if first:
        create("file", b"0" * (2 * _PAGE))
    yield
    mapped = map_shared("file", 2 * _PAGE)
    expect(mapped[_PAGE : _PAGE + 1] == b"0", "the mapping has other contents than the file")
    yield
    if first:
        mapped[_PAGE : _PAGE + 1] = b"1"
        mapped.flush()
    yield
    _sees(lambda: mapped[_PAGE : _PAGE + 1], b"1", "what another node stored and synced is in the mapping")
    yield
    return None


def _locked(first: bool, take: Callable[[int, int], None], name: str) -> Steps:
    if first:
        create("file", b"x")
    yield
    file = os.open("file", os.O_RDWR)
    if first:
        with calling(name, *NOT_THERE, errno.EINVAL):
            take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
    if not first:
        with refused(f"{name} of what another node has locked", *_BUSY):
            take(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    yield
    if first:
        take(file, fcntl.LOCK_UN)
    yield
    if not first:
        with calling(f"{name} after the other node has let go"):
            take(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return None


def record_locks(first: bool) -> Steps:
    """fcntl(2), F_SETLK."""
    return _locked(first, fcntl.lockf, "fcntl(F_SETLK)")


def whole_file_locks(first: bool) -> Steps:
    """flock(2)."""
    return _locked(first, fcntl.flock, "flock")
