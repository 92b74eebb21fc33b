"""Folders that are there only while a process works in them: of an import that isn't whole yet, of noise, of a shell.

So are runs remembered whose journal may name something that still stands: by symbolic links in
``$XDG_STATE_HOME/storlab``, in ``runs`` until the run has ended and all is down, and in ``temporary``. Where the files
of a run are is in ``scratch``, for one whose folder is removed by hand.

Their process holds the run's lock in them, which the kernel takes back however it ends. So what is not locked is dead,
and is removed by the next import into the same place, or by ``storlab clean``, which follows the links.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from storlab.errors import RecordsError
from storlab.records.manifest import LOCK
from storlab.records.run_folder import RunFolder
from storlab.run.recovery.journal import read_pending


def state_folder() -> Path:
    """What should outlast a restart and is this user's own: ``$XDG_STATE_HOME/storlab``."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "storlab"


def _folder() -> Path:
    return state_folder() / "runs"


def remember_run(run: str, folder: Path) -> None:
    """Remember where a run lies. Without a writable home, ``clean`` must be given the run's folder."""
    with contextlib.suppress(OSError):
        _folder().mkdir(parents=True, exist_ok=True)
        link = _folder() / run
        link.unlink(missing_ok=True)
        link.symlink_to(folder.resolve())


def forget_run(run: str) -> None:
    """It has ended, and nothing of it stands."""
    for folder in (_folder(), _scratch()):
        with contextlib.suppress(OSError):
            (folder / run).unlink(missing_ok=True)


def remember_scratch(run: str, root: str) -> None:
    """Remember in which folder of this machine a run has its scratch folder."""
    with contextlib.suppress(OSError):
        _scratch().mkdir(parents=True, exist_ok=True)
        (_scratch() / run).symlink_to(root)


def scratch_roots() -> set[Path]:
    """The folders in which runs that are remembered have their scratch folders."""
    try:
        return {link.readlink() for link in _scratch().iterdir() if link.is_symlink()}
    except OSError:
        return set()


def _scratch() -> Path:
    return state_folder() / "scratch"


def remembered_runs() -> dict[str, Path]:
    """Run → folder. A folder that was removed or moved is still listed: its journal is lost."""
    try:
        return {link.name: link.readlink() for link in sorted(_folder().iterdir()) if link.is_symlink()}
    except OSError:
        return {}


Found = Literal["removed", "alive", "standing", "foreign"]
"""Of a folder: it was dead and is gone; a process works in it; its journals name what may still stand; it is none of
ours, or not any more."""

_SOON = 60.0  # s; within less than that, whoever made a folder has its lock


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder among the system's temporary ones, locked and remembered. Whoever works in it removes it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    with RunFolder(folder).lock(), remembered(folder):
        yield folder


@contextmanager
def remembered(folder: Path) -> Iterator[None]:
    """Let ``storlab clean`` find a folder, which this process has locked, unless it is gone when the block ends.

    Without a writable home, it isn't found.
    """
    link = _links() / f"{os.getpid()}-{os.urandom(4).hex()}"
    with contextlib.suppress(OSError):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder.absolute())
    try:
        yield
    finally:
        if not os.path.lexists(folder):
            forget(link)


def links() -> list[Path]:
    """The links to all folders that are remembered."""
    try:
        return sorted(link for link in _links().iterdir() if link.is_symlink())
    except OSError:
        return []


def forget(link: Path) -> None:
    """Its folder is gone."""
    with contextlib.suppress(OSError):
        link.unlink(missing_ok=True)


def _links() -> Path:
    return state_folder() / "temporary"


def stands_in(folder: Path) -> bool:
    """Whether a journal of the runs in it names something that may still stand, or can't be read."""
    try:
        return any(read_pending(journal) for journal in folder.glob("*/journal.jsonl"))
    except RecordsError:
        return True


def remove_dead(folder: Path) -> Found:
    """Remove a folder that no process works in any more, with all that is in it.

    Foreign is what another user owns, a symbolic link, and what has no lock; alive is also what is empty and may just
    have been made. Raises ``OSError`` where it isn't there, or can't be removed; the latter can be tried again.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return "foreign"
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _remove_empty(folder, time.time() - found.st_mtime)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "alive"
        if stands_in(folder):
            return "standing"
        _remove(folder)
    finally:
        os.close(lock)
    return "removed"


def _remove_empty(folder: Path, age: float) -> Found:
    if any(folder.iterdir()):
        return "foreign"
    if age < _SOON:
        return "alive"
    folder.rmdir()
    return "removed"


def _remove(folder: Path) -> None:
    """The lock last: whoever is killed meanwhile leaves a folder that can be told for what it is."""
    for path in list(folder.iterdir()):
        if path.name == LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (folder / LOCK).unlink()
    folder.rmdir()
