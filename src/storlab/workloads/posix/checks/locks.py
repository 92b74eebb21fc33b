"""Locks between two processes: fcntl(2) of records and of open files, flock(2)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable

from .outcome import NOT_THERE, calling, create, expect, refused
from .processes import elsewhere, is_done, meanwhile, result, started

_MOMENT = 0.05  # s
_BUSY = (errno.EAGAIN, errno.EACCES)


def record_locks() -> None:
    """F_SETLK: of ranges, gone with their process. EINVAL: "fildes refers to a file that does not support locking"."""
    create("file", b"x" * 100)

    def lock(start: int) -> Callable[[], None]:
        def take() -> None:
            file = os.open("file", os.O_RDWR)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, start)

        return take

    with calling("fcntl(F_SETLK)", *NOT_THERE, errno.EINVAL), meanwhile(lock(0)):
        with refused("F_SETLK of what another process has locked", *_BUSY):
            elsewhere(lock(5))
        with calling("F_SETLK of another range"):
            elsewhere(lock(10))
    with calling("F_SETLK after the other process has ended"):
        elsewhere(lock(0))


def whole_file_locks() -> None:
    """flock(2): shared ones go together, exclusive ones don't."""
    create("file")

    def lock(how: int) -> Callable[[], None]:
        return lambda: fcntl.flock(os.open("file", os.O_RDWR), how | fcntl.LOCK_NB)

    with calling("flock", *NOT_THERE), meanwhile(lock(fcntl.LOCK_SH)):
        with calling("flock(LOCK_SH) beside another"):
            elsewhere(lock(fcntl.LOCK_SH))
        with refused("flock(LOCK_EX) beside LOCK_SH", *_BUSY):
            elsewhere(lock(fcntl.LOCK_EX))
    with calling("flock after the other process has ended"):
        elsewhere(lock(fcntl.LOCK_EX))


def open_file_locks() -> None:
    """F_OFD_SETLK: of an open file, so they outlast the closing of another. EINVAL: "cmd … not recognized"."""
    create("file", b"x" * 100)
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0)
    one, other = (os.open("file", os.O_RDWR) for _ in range(2))
    with calling("fcntl(F_OFD_SETLK)", *NOT_THERE, errno.EINVAL):
        fcntl.fcntl(one, fcntl.F_OFD_SETLK, wanted)
    os.close(os.open("file", os.O_RDWR))
    with refused("F_OFD_SETLK by another open file", *_BUSY):
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, wanted)
    os.close(one)
    with calling("F_OFD_SETLK after the other was closed"):
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, wanted)


def waiting_for_a_lock() -> None:
    """F_SETLKW waits until the lock is free, and no longer."""
    create("file", b"x")

    def lock() -> None:
        fcntl.lockf(os.open("file", os.O_RDWR), fcntl.LOCK_EX)

    with calling("fcntl(F_SETLKW)", *NOT_THERE, errno.EINVAL), meanwhile(lock):
        child, reader = started(lock)
        expect(not is_done(reader, _MOMENT), "F_SETLKW does not wait for what another process has locked")
    with calling("fcntl(F_SETLKW)"):
        result(child, reader)
