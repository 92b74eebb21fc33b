"""A job: one command of Storlab's that another machine asked for, with all that it left.

Its folder, below the user's state, holds ``job.json`` (what was asked for), ``work`` (where the command runs, with the
files that came with it), ``events`` (a line of JSON each), ``status`` once it has ended, and ``fetched`` once the other
machine has everything. A job lives as long as somebody holds the lock on ``lock``: its supervisor, or the command.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,79}")


class Refused(Exception):
    """What can't be done here, in a sentence for the user there."""


def jobs_folder() -> Path:
    """Where this user's jobs lie. Raises ``Refused`` where others may have put some: their commands are run."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(state) / "storlab" / "jobs"
    for each in (folder.parent, folder):
        with contextlib.suppress(FileNotFoundError):
            found = each.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise Refused(f"{each} on this machine is no folder that this user alone can write to: remove it, or "
                              "set XDG_STATE_HOME there")  # fmt: skip
    return folder


class Job:
    """One by its name. Raises ``Refused`` for what can't be the name of one."""

    def __init__(self, name: str) -> None:
        if not _ID.fullmatch(name):
            raise Refused(f"{name!r} is not the name of a job")
        self.name = name
        self.folder = jobs_folder() / name

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def events(self) -> Path:
        return self.folder / "events"

    def asked(self) -> dict[str, Any]:
        """What it was asked for. Raises ``Refused`` where there is no such job."""
        try:
            asked = json.loads(self.path("job.json").read_bytes())
        except (OSError, ValueError):
            raise Refused(f"there is no job {self.name} on this machine") from None
        assert isinstance(asked, dict)
        return asked

    @property
    def work(self) -> Path:
        """Where its command runs: its own folder, or that of the job which it continues."""
        return Job(str(self.asked().get("work") or self.name)).path("work")

    def lock(self) -> int | None:
        """The descriptor that keeps it alive; ``None`` if somebody else has it."""
        descriptor = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if lock_at_once(descriptor, fcntl.LOCK_EX):
            return descriptor
        os.close(descriptor)
        return None

    @property
    def alive(self) -> bool:
        if not self.path("lock").exists():
            return False
        descriptor = self.lock()
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    @property
    def status(self) -> int | None:
        """The exit status; ``None`` while it runs, and if its supervisor was killed."""
        with contextlib.suppress(OSError, ValueError):
            return int(self.path("status").read_text())
        return None

    def describe(self) -> dict[str, Any]:
        asked = self.asked()
        known = {key: asked.get(key) for key in ("command", "words", "results", "here", "since", "work")}
        state = {"alive": self.alive, "status": self.status, "fetched": self.path("fetched").exists()}
        return {"job": self.name, **known, **state}

    def remove(self) -> None:
        """With all that it left. Raises ``Refused`` while it runs, or while another job continues it."""
        if self.alive:
            raise Refused(f"job {self.name} is still running")
        shutil.rmtree(self.folder)


def jobs() -> Iterator[Job]:
    folder = jobs_folder()
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _ID.fullmatch(entry.name) and (entry / "job.json").exists():
            yield Job(entry.name)


def lock_at_once(descriptor: int, how: int) -> bool:
    """Whether it could be locked, see flock(2)."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
