"""A cgroup for the command that is traced, by which the kernel tells what it and its children issue.

It is made below the one that this process is in, so whatever limits that has hold for the command as well; and it is
gone when the command is. A child that stays behind goes back to where this process is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_NAME = "storlab-trace-"


@dataclass(frozen=True)
class OwnGroup:
    """``identity``: as the kernel has it in ``bpf_get_current_cgroup_id()``."""

    folder: Path
    identity: int

    def join(self) -> None:
        """For a process that was just forked: it, and all that it starts, are in the group."""
        (self.folder / "cgroup.procs").write_text("0")


@contextmanager
def own_group() -> Iterator[OwnGroup | None]:
    """A new group; nothing where this machine has no cgroup v2 in which this process may make one."""
    parent = _group_of_this_process()
    folder = parent / f"{_NAME}{os.getpid()}" if parent else None
    if parent is None or folder is None or not _made(parent, folder):
        yield None
        return
    try:
        yield OwnGroup(folder, folder.stat().st_ino)
    finally:
        _remove(folder, parent)


def _made(parent: Path, folder: Path) -> bool:
    with suppress(OSError):
        for left in parent.glob(f"{_NAME}*"):
            if Path("/proc", left.name.removeprefix(_NAME)).exists():
                continue  # of a trace that may be about to use it
            with suppress(OSError):
                left.rmdir()  # of a trace that was killed
        folder.mkdir()
        return True
    return False


def _remove(folder: Path, parent: Path) -> None:
    with suppress(OSError):
        for process in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (parent / "cgroup.procs").write_text(process)
        folder.rmdir()


def _group_of_this_process() -> Path | None:
    """Its folder in cgroup v2, which may be mounted beside v1."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        own = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return None
    at = next((line.split()[4] for line in mounts if " - cgroup2 " in line), None)
    group = next((line.removeprefix("0::") for line in own if line.startswith("0::")), None)
    return Path(at) / group.lstrip("/") if at and group else None
