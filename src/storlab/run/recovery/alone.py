"""Of the runs that may change this machine's settings, one at a time: of two, each would take the other's changes for
its own study's, and put back what the other had set.

Those are root's that are ``--unconfined``. The lock is the kernel's and goes with its process, however that ends. Its
file names the last run that had it, whose journal says whether anything is still to be put back. A restart removes it,
and resets the settings.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from storlab.errors import RecordsError, SafetyError
from storlab.nodes.settings import restore
from storlab.run.permissions import Permissions
from storlab.run.recovery.journal import JOURNAL, read_pending

LOCK = Path("/run/storlab/settings")  # only root can put anything into /run
_LONGEST = 8192  # B
_AGAIN = 0.2  # s


@asynccontextmanager
async def alone(run: str, folder: Path, permissions: Permissions, notify: Callable[[str], None]) -> AsyncIterator[None]:
    """Wait until no other run may change settings. Raises ``SafetyError`` where one has left some to be put back."""
    if not permissions.unconfined or os.geteuid() != 0:
        yield
        return
    with suppress(FileExistsError):
        LOCK.parent.mkdir()
        LOCK.parent.chmod(0o755)
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(descriptor):
            last, where = _last(descriptor)
            notify(f"Waiting for the run {last} in {where}: it is --unconfined, too, and may change the same settings.")
            while not _locked(descriptor):  # noqa: ASYNC110 - what is waited for is another process
                await asyncio.sleep(_AGAIN)
        last, where = _last(descriptor)
        if last not in ("", run) and _left(Path(where)):
            raise SafetyError(
                f"the run {last} was --unconfined and has left settings of this machine changed: "
                f"`storlab clean {where}` puts them back"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, os.fsencode(f"{run}\n{folder.resolve()}"), 0)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last(descriptor: int) -> tuple[str, str]:
    """The run that had the lock last, and its folder; empty where there was none."""
    run, _, folder = os.fsdecode(os.pread(descriptor, _LONGEST, 0)).partition("\n")
    return run, folder


def _left(folder: Path) -> bool:
    """Whether a run's journal names settings that are to be put back; of one that is gone, nothing is known."""
    try:
        return any(entry.undo == restore.name for entry in read_pending(folder / JOURNAL))
    except RecordsError:
        return True  # damaged: `storlab clean` says where
