"""Folders that are there only while a process works in them: of an import that isn't whole yet, of noise, of a shell.

So are runs remembered whose journal may name something that still stands: by symbolic links in
``$XDG_STATE_HOME/storlab``, in ``runs`` until the run has ended and all is down, and in ``temporary``. Where the files
of a run are is in ``scratch``, for one whose folder is removed by hand.

Their process holds the run's lock in them, which the kernel takes back however it ends. So what is not locked is dead,
and is removed by the next import into the same place, or by ``storlab clean``, which follows the links. What proves
that a folder is one of these is a mark that nobody can foresee: the folder's name ends with it, the lock holds it, and
the link that leads there bears it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from storlab.base.errors import RecordsError
from storlab.records.manifest import LOCK
from storlab.records.run_folder import RunFolder
from storlab.run.machine import try_lock
from storlab.run.recovery.journal import read_pending
from storlab.run.recovery.state import make_state, read_state, state_folder


def remember_run(run: str, folder: Path) -> None:
    """Remember where a run lies. Without a writable home, ``clean`` must be given the run's folder."""
    _link("runs", run, str(folder.resolve()))


def forget_run(run: str) -> None:
    """It has ended, and nothing of it stands."""
    for name in ("runs", "scratch"):
        forget(state_folder() / name / run)


def remember_scratch(run: str, root: str) -> None:
    """Remember in which folder of this machine a run has its scratch folder."""
    _link("scratch", run, root)


def scratch_roots() -> set[Path]:
    return {link.readlink() for link in _links_in("scratch")}


def remembered_runs() -> dict[str, Path]:
    """Run → folder. A folder that was removed or moved is still listed: its journal is lost."""
    return {link.name: link.readlink() for link in _links_in("runs")}


def _link(folder: str, name: str, target: str) -> Path | None:
    with contextlib.suppress(OSError, RecordsError):
        link = make_state(folder) / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        return link
    return None


def _links_in(folder: str) -> list[Path]:
    """Those of this user; none of a folder into which others may have put some."""
    with contextlib.suppress(RecordsError):
        return [path for path in read_state(folder) if path.is_symlink()]
    return []


Found = Literal["removed", "alive", "standing", "foreign"]
"""Of a folder: it was dead and is gone; a process works in it; its journals name what may still stand; it is none of
ours, or not any more."""

_SOON = 60.0  # s; within less than that, whoever made a folder has its lock


_LONGEST = 128  # bytes of a lock that are read
_MARK = re.compile(r"[0-9a-f]{16}")


def new_mark() -> str:
    """What a temporary folder is known by; its name ends with it."""
    return os.urandom(8).hex()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder among the system's temporary ones, locked and remembered. Whoever works in it removes it."""
    mark = new_mark()
    folder = Path(tempfile.gettempdir()) / f"{prefix}{mark}"
    folder.mkdir(0o700)
    with RunFolder(folder).lock(mark), remembered(folder, mark):
        yield folder


@contextmanager
def remembered(folder: Path, mark: str) -> Iterator[None]:
    """Let ``storlab clean`` find a folder, which this process has locked, unless it is gone when the block ends.

    Without a writable home, it isn't found.
    """
    link = _link("temporary", mark, str(folder.absolute()))
    try:
        yield
    finally:
        if link is not None and not os.path.lexists(folder):
            forget(link)


def links() -> list[Path]:
    """The links to all folders that are remembered; each is named by the folder's mark."""
    return _links_in("temporary")


def forget(link: Path) -> None:
    with contextlib.suppress(OSError):
        link.unlink(missing_ok=True)


def stands_in(folder: Path) -> bool:
    """Whether a journal of the runs in it names something that may still stand, or can't be read."""
    try:
        return any(read_pending(journal) for journal in folder.glob("*/journal.jsonl"))
    except RecordsError:
        return True


def remove_dead(folder: Path, mark: str) -> Found:
    """Remove a folder of this mark that no process works in any more, with all that is in it.

    Foreign is what another user owns, a symbolic link, and what does not bear the mark in its name and in its lock;
    alive is also what may just have been made, and has no mark yet. Raises ``OSError`` where it isn't there, or can't
    be removed; the latter can be tried again.
    """
    found = folder.lstat()
    named = _MARK.fullmatch(mark) is not None and mark in folder.name
    if not named or not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return "foreign"
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _remove_empty(folder, time.time() - found.st_mtime)
    try:
        if not try_lock(lock):
            return "alive"
        _, _, held = os.pread(lock, _LONGEST, 0).decode(errors="replace").strip().partition("\n")
        if not held:
            return _remove_empty(folder, time.time() - found.st_mtime)
        if held != mark:
            return "foreign"
        if stands_in(folder):
            return "standing"
        _remove(folder)
    finally:
        os.close(lock)
    return "removed"


def _remove_empty(folder: Path, age: float) -> Found:
    """What was killed before it could write its mark into the lock."""
    if {path.name for path in folder.iterdir()} - {LOCK}:
        return "foreign"
    if age < _SOON:
        return "alive"
    _remove(folder)
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
    (folder / LOCK).unlink(missing_ok=True)
    folder.rmdir()
