"""What killed runs left on this machine, found by its marks: whether or not anybody has their journals.

An agent and its cgroup are there before a run has a journal, and journals get lost. All that Storlab makes bears the
run's id in its name; every process has it in its environment. What is this user's, and of no run that may be alive, is
undone as if a journal had named it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from storlab.base.errors import RecordsError, StorlabError, UserError
from storlab.layers.fs.mount import parse_mountinfo
from storlab.nodes.processes import Agents, Controller, cgroup_name, parse_cgroup_name, started
from storlab.nodes.undo import run_of
from storlab.records.manifest import LOCK
from storlab.run.machine import try_lock
from storlab.run.recovery.temporary import remembered_runs, scratch_roots
from storlab.run.recovery.undoing import undo_table
from storlab.run.session import Session

SOON = 60.0  # s; of what was made or changed within less than that, somebody may still be about to take care
_ALONE = (
    86400.0  # s; the same where there are only folders: a container may have these, whose processes nobody sees here
)
_POOLS_OWN = {"zpool.destroy", "zpool.node"}
_CGROUPS, _NETWORKS, _POOLS = Path("/sys/fs/cgroup"), Path("/run/netns"), Path("/proc/spl/kstat/zfs")
_AGENT = "storlab-agent"
_DELETED = " (deleted)"  # what the kernel appends to the path of a file that is gone, d_path(9)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Orphan:
    """Something that a dead run left, and how it is undone. ``changed``: when it was last, seconds since the epoch.

    Of a process and of an agent's cgroup: when the process began, or the controller that had launched the agent.
    ``elsewhere``: its run may be alive in another container, so that it is only told, and left alone.
    """

    run: str
    undo: str
    arguments: dict[str, Any] = field(hash=False)
    changed: float = 0.0
    elsewhere: bool = False

    def __str__(self) -> str:
        return next(
            str(self.arguments[key]) for key in ("path", "file", "name", "pool", "cgroup") if key in self.arguments
        )


def orphans(soon: float | None = None, gone: Collection[str] = ()) -> list[Orphan]:
    """What is left of runs of this user's that are dead for at least ``soon`` seconds, in the order of undoing.

    By default that is ``$STORLAB_ORPHAN_AGE``, or a minute. ``gone``: runs whose folders were removed by hand. Nobody
    is about to take care of these, however new they look.
    """
    if soon is None:
        soon = parse_age(os.environ.get("STORLAB_ORPHAN_AGE", str(SOON)))
    found = [*_cgroups(), *_processes(), *_folders(), *_networks(), *_pools()]
    alive = living()
    dead: list[Orphan] = []
    for run in {orphan.run for orphan in found} - alive:
        left = _told_apart([each for each in found if each.run == run])
        if _is_dead(left, 0.0 if run in gone else soon):
            dead += left
        elif run in gone:
            dead += [replace(each, elsewhere=True) for each in left]
    return sorted(dead, key=lambda each: undo_table()[each.undo].order)


def left_of(run: str) -> list[Orphan]:
    """Agents' cgroups of a run that nobody works on now but this process, whatever its journal names."""
    found = ((each, parse_cgroup_name(str(each.arguments["cgroup"]))) for each in _cgroups() if each.run == run)
    return [each for each, agents in found if agents is not None and not _is_alive(agents.controller)]


def parse_age(text: str) -> float:
    """Seconds. Raises ``UserError``."""
    try:
        age = float(text)
    except ValueError:
        age = math.nan
    if not age >= 0:
        raise UserError(f"STORLAB_ORPHAN_AGE is {text!r}, which is not a number of seconds: write 60, or unset it")
    return age


def _is_dead(left: list[Orphan], soon: float) -> bool:
    changed = max(orphan.changed for orphan in left)
    if all(orphan.undo == "scratch.remove" for orphan in left):
        return changed < _booted() or time.time() - changed >= max(soon, _ALONE)
    return time.time() - changed >= soon


def _told_apart(left: list[Orphan]) -> list[Orphan]:
    """What is left of one run; of a pool alone it can't be told whether that run is dead.

    Pools are the kernel's, and seen by all containers of a machine; processes, folders and networks are not.
    """
    undoes = {orphan.undo for orphan in left}
    if "zpool.destroy" in undoes and undoes <= _POOLS_OWN:
        return [replace(orphan, elsewhere=True) for orphan in left]
    return left


async def remove(found: Iterable[Orphan], session: Session) -> tuple[list[str], list[str]]:
    """Undo these. Returns what was done or left alone, and what failed, in words."""
    did, failed = [], []
    for orphan in found:
        if orphan.elsewhere:
            did += _left_alone(orphan)
            continue
        undo = undo_table()[orphan.undo]
        try:
            undo.check(orphan.arguments, orphan.run)
            async with asyncio.timeout(undo.patience):
                done = await undo.function(session.host, **orphan.arguments)
        except (StorlabError, TimeoutError) as error:
            failed.append(f"{orphan.undo} {orphan}: {error or 'it took too long'}")
        else:
            did += [done] if done is not None else []
    return did, failed


def _left_alone(orphan: Orphan) -> list[str]:
    if (command := by_hand(orphan)) is None:
        return []  # a device node of the pool
    what = "pool" if orphan.undo == "zpool.destroy" else "folder"
    return [
        f"{what} {orphan} left alone: nothing else of its run is here, so it may belong to another container. "
        f"If not: `{command}`"
    ]


def by_hand(orphan: Orphan) -> str | None:
    """The command that removes what is only reported, if it takes one of its own."""
    commands = {"zpool.destroy": "zpool destroy", "scratch.remove": "rm -r"}
    command = commands.get(orphan.undo)
    return None if command is None else f"{command} {shlex.quote(str(orphan))}"


def living() -> set[str]:
    """The runs that are alive on this machine, or may be: whoever runs them, and wherever their folders are."""
    by_controller = {agents.run for agents in _agents() if _is_alive(agents.controller)}
    by_agent = {run for run, agent in _marked_agents() if _parent(agent) != 1}
    return by_controller | by_agent | _locked() | _of_other_containers()


def _of_other_containers() -> set[str]:
    """Runs with processes that can't be seen from here, though their cgroups can: those read as 0, see cgroups(7)."""
    runs = set()
    for folder in _walk():
        for below, _, _ in os.walk(folder):  # passes over what goes meanwhile
            with contextlib.suppress(OSError):
                processes = Path(below, "cgroup.procs").read_text("ascii").split()
                if "0" in processes and (agents := parse_cgroup_name(folder.name)) is not None:
                    runs.add(agents.run)
    return runs


def refuse_living(run: str, folder: Path) -> None:
    """Raise ``RecordsError`` if a run is alive, though nobody works in ``folder``, which says that it is its own."""
    for agents in _agents():
        pid = agents.controller.pid
        if agents.run == run and pid != os.getpid() and _is_alive(agents.controller) and _works(pid):
            raise RecordsError(f"the run {run} is still running (process {pid}), and {folder} is not its folder")


def _works(controller: int) -> bool:
    """Whether a process holds the lock of some run's folder, see proc_pid_fdinfo(5)."""
    for path in _below(Path(f"/proc/{controller}/fd")):
        with contextlib.suppress(OSError):
            if path.readlink().name == LOCK and "FLOCK" in Path(f"/proc/{controller}/fdinfo/{path.name}").read_text(
                "utf-8"
            ):
                return True
    return False


def _is_alive(controller: Controller) -> bool:
    return started(controller.pid) == controller.started


def _agents() -> Iterator[Agents]:
    """What the names of agents' cgroups say; also of those that could not be made."""
    names = [folder.name for folder in _walk()]
    for _, pid in _marked_agents():
        words = _words(pid, "cmdline")
        if "--cgroup" in words[:-1]:
            names.append(words[words.index("--cgroup") + 1])
    yield from filter(None, map(parse_cgroup_name, names))


def _walk() -> Iterator[Path]:
    for folder, below, _ in os.walk(_CGROUPS):
        ours = [name for name in below if name.startswith("storlab-") and parse_cgroup_name(name) is not None]
        yield from (Path(folder, name) for name in ours)
        below[:] = [name for name in below if name not in ours]


def _cgroups() -> Iterator[Orphan]:
    for folder in _walk():
        agents = parse_cgroup_name(folder.name)
        if agents is not None and _is_ours(folder):
            arguments = {"run": agents.run, "node": agents.node, "cgroup": folder.name}
            yield Orphan(agents.run, "processes.end", arguments, _since_epoch(agents.controller.started))


def _processes() -> Iterator[Orphan]:
    """Those that are in no cgroup of an agent's, as where there is none."""
    for pid in _pids():
        marks = dict(word.partition("=")[::2] for word in _words(pid, "environ") if word.startswith("STORLAB_"))
        run, node = marks.get("STORLAB_RUN"), marks.get("STORLAB_NODE")
        if run and node and run_of(f"storlab-{run}") == run and _is_ours(Path(f"/proc/{pid}")):
            arguments = {"run": run, "node": node, "cgroup": cgroup_name(Agents(run, Controller(0, 0), node), 0)}
            yield Orphan(run, "processes.end", arguments, _since_epoch(started(pid) or 0))


def _folders() -> Iterator[Orphan]:
    """Scratch folders and those of sockets, with what is mounted in them and the loop devices over what they hold."""
    mounts = [
        mount.path for mount in parse_mountinfo(Path("/proc/self/mountinfo").read_text("utf-8", errors="replace"))
    ]
    backs = [(path, back) for path in Path("/sys/block").glob("loop*/loop/backing_file") if (back := _text(path))]
    roots = {Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), *scratch_roots()}
    found = {path for root in roots if root.is_dir() for path in _below(root) if run_of(path.name)}
    found |= {top for path in [*mounts, *(back for _, back in backs)] if (top := _outermost(path)) is not None}
    for folder in sorted(found):
        run = run_of(folder.name)
        if run is None:
            continue
        if not os.path.lexists(folder):
            # The folder was removed by hand, and loop devices keep its files. A file that the kernel does not call
            # deleted may be in another container, where its folder still is.
            for _, back in backs:
                if back.startswith(f"{folder}/") and back.endswith(_DELETED) and os.geteuid() == 0:
                    yield Orphan(run, "loop.detach", {"file": back.removesuffix(_DELETED)})
            continue
        if not _is_ours(folder) or not stat.S_ISDIR(folder.lstat().st_mode):
            continue
        changed = _changed(folder)
        inside = [path for path in mounts if path.startswith(f"{folder}/")]
        yield from (Orphan(run, "mount.unmount", {"path": path}, changed) for path in reversed(inside))
        for _, back in backs:
            if back.startswith(f"{folder}/"):
                yield Orphan(run, "loop.detach", {"file": back.removesuffix(_DELETED)}, changed)
        yield Orphan(run, "scratch.remove", {"path": str(folder)}, changed)


def _networks() -> Iterator[Orphan]:
    for path in _below(_NETWORKS):
        if (run := run_of(path.name)) is not None and _is_ours(path):
            yield Orphan(run, "network.remove", {"name": path.name}, _changed(path))


def _pools() -> Iterator[Orphan]:
    for path in _below(_POOLS):
        if (run := run_of(path.name)) is not None and os.geteuid() == 0:
            yield Orphan(run, "zpool.destroy", {"pool": path.name})
    for folder in _below(Path("/dev")):
        if (run := run_of(folder.name)) is not None and _is_ours(folder):
            yield from (Orphan(run, "zpool.node", {"path": str(path)}, _changed(folder)) for path in _below(folder))


def _outermost(path: str) -> Path | None:
    """Of the folders that a path leads through, the first that is Storlab's."""
    parents = [*reversed(Path(path).parents)]
    return next((parent for parent in parents if run_of(parent.name)), None)


def _locked() -> set[str]:
    """The remembered runs in whose folders a process works."""
    found = set()
    for run, folder in remembered_runs().items():
        with contextlib.suppress(OSError):
            lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not try_lock(lock, shared=True):
                    found.add(run)
            finally:
                os.close(lock)
    return found


def _marked_agents() -> Iterator[tuple[str, int]]:
    """Each agent's run and process."""
    for pid in _pids():
        words = _words(pid, "cmdline")
        if words and words[0].rpartition("/")[2] == _AGENT and "serve" in words:
            for word in _words(pid, "environ"):
                if word.startswith("STORLAB_RUN="):
                    yield word.partition("=")[2], pid


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isascii() and path.name.isdigit()]


def _words(pid: int, name: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _since_epoch(ticks: int) -> float:
    """Clock ticks since boot, in seconds since the epoch."""
    return _booted() + ticks / _TICKS


def _booted() -> int:
    """When this machine was, in seconds since the epoch."""
    lines = Path("/proc/stat").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("btime ")).split()[1])


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(") ")[2].split()[1])
    except (OSError, IndexError):
        return 1


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="surrogateescape").rstrip("\n")
    except OSError:
        return ""


def _below(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
