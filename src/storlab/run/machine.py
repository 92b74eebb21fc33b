"""One run at a time on a machine: two that run at once measure each other.

Each run holds a lock, see flock(2), which the kernel gives back however the run ends; its file says who runs what, and
since when. Root's is ``/run/storlab/machine``, which nobody else can open, for to open a file is enough to lock it.
Others have a lock each of their own, and look in proc_locks(5) whether root's is held. ``STORLAB_LOCKS`` names another
folder: of containers that share a machine, or of tests that must not wait for each other.

Runs that share the machine, as asked, have the lock together, and keep out those that want it for themselves.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from storlab.base.errors import UserError
from storlab.base.text import one_line

_OF_ROOT = Path("/run/storlab")
_NAME = "machine"
_LONGEST = 4096  # B
_AGAIN = 0.2  # s


class Holder(msgspec.Struct, frozen=True):
    """Who has a machine: a user's name, the run as its user calls it, and local time with the zone."""

    user: str
    run: str
    since: str
    pid: int

    def __str__(self) -> str:
        return f"{one_line(self.run)}, of {one_line(self.user)} since {one_line(self.since)} (process {self.pid})"


@contextmanager
def machine_for(run: str, notify: Callable[[str], None], *, wait: bool = False, shared: bool = False) -> Iterator[None]:
    """Have this machine for ``run``, alone or with others that share it.

    Raises ``UserError`` if another run has it, unless ``wait``: then its end is waited for.
    """
    descriptor = _open()
    try:
        if not _locked(descriptor, shared):
            if not wait:
                raise UserError(
                    f"another run is using this machine: {_holder(descriptor)}. Two at once would measure each other: "
                    "wait for its end, or say --wait, or --shared for both"
                )
            notify(f"Waiting for another run on this machine: {_holder(descriptor)}.")
            while not _locked(descriptor, shared):
                time.sleep(_AGAIN)
        _write(descriptor, run)
        yield
    finally:
        os.close(descriptor)


def _open() -> int:
    """Of its name, no link is followed, and it is a file. Raises ``UserError``."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    chosen = os.environ.get("STORLAB_LOCKS")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(runtime) / "storlab" if runtime else Path.home() / ".local" / "state" / "storlab"
    folder = Path(chosen) if chosen is not None else _OF_ROOT if os.geteuid() == 0 else own
    path = folder / _NAME
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644 if chosen is not None else 0o600)
    except OSError as error:
        raise UserError(f"cannot lock this machine by {path}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or (chosen is None and found.st_uid != os.geteuid()):
        os.close(descriptor)
        raise UserError(f"cannot lock this machine by {path}: it is not a file of your own; remove it")
    if chosen is None and found.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)
    return descriptor


def _locked(descriptor: int, shared: bool) -> bool:
    held = _hold_of_root()
    if held is not None and not (shared and held == "READ"):
        return False
    return try_lock(descriptor, shared=shared)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Whether it could be locked, see flock(2). The kernel gives the lock back once the descriptor is closed."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold_of_root() -> str | None:
    """Of a run of root's, where another user asks: ``READ`` for one that shares the machine, else ``WRITE``."""
    if os.geteuid() == 0 or "STORLAB_LOCKS" in os.environ:
        return None
    try:
        found = (_OF_ROOT / _NAME).stat()
        locks = Path("/proc/locks").read_text("utf-8").splitlines()
    except OSError:
        return None
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = (line.split()[1:6] for line in locks)  # of one that waits, the kind is "->"
    return next((each[2] for each in held if each[0] == "FLOCK" and each[4] == file), None)


def _write(descriptor: int, run: str) -> None:
    """Of a run that shares the machine, the last that began."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"user {os.getuid()}"
    now = datetime.now().astimezone().isoformat(" ", "seconds")
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(Holder(user, run, now, os.getpid())), 0)


def _holder(descriptor: int) -> str:
    if _hold_of_root() is not None:
        return "of root"
    try:
        return str(msgspec.json.decode(os.pread(descriptor, _LONGEST, 0), type=Holder))
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return "of one that could not write down what it is"
