"""Why a trial failed, in one sentence: an error, with what is known of its cause."""

from __future__ import annotations

import re

from storlab.base.errors import DiskFull, StorlabError, TrialError
from storlab.layers.resources import Dir, Export, Server, Share
from storlab.nodes.node import Node
from storlab.run.build import Built
from storlab.run.session import Session

_READ_ONLY = "Read-only file system"  # EROFS, see strerror(3): what a confined program hears
_REFUSED = "Operation not permitted"  # EPERM
_FORBIDDEN = "Permission denied"  # EACCES
_NO_FILES = "Too many open files"  # EMFILE, and the beginning of ENFILE
_SPARE = 640  # files: virtiofsd 1.13 gives a guest 609 fewer than it may have, and some were closed since
_FULL = 1024 * 1024  # bytes: with less, no file system does anything useful any more


_KERNEL_LOG = "cat /proc/uptime; dmesg | tail -n 200"
_OUT_OF_MEMORY = re.compile(r"^\[ *(\d+\.\d+)\].*Killed process (\d{1,9}),? \(([^)]{1,15})\)", re.M)
_COMM = 15  # bytes of a command's name that the kernel keeps
_JUST = 30.0  # s

# Of a process and its children, as a server in namespaces of its own has one: files that are open, and how many may be.
_OPEN_FILES = """
for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
    echo "$(ls "/proc/$pid/fd" | wc -l) $(awk '/^Max open files/ { print $4 }' "/proc/$pid/limits")"
done
"""


async def reason_of(error: StorlabError, built: Built, session: Session) -> str:
    """The error in one sentence; a full disk is named as such, whoever noticed it and in whatever words."""
    full = await _full_target(built, session)
    if full or isinstance(error, DiskFull):
        return f"{error} ({full})" if full else str(error)
    for name, node in built.nodes.items():
        if await _is_full(session, node):
            return f"{error} (the file system of {await session.scratch_on(node)} on {name} is full)"
        if complaint := node.complaint():
            return f"{error} ({complaint})"
    if memory := await out_of_memory(built):
        return f"{error} ({memory})"
    said = f"{error}\n{error.detail if isinstance(error, TrialError) else ''}"
    if _NO_FILES in said and (server := await _without_files(built)):
        return f"{error} ({server})"
    if _READ_ONLY in said and not session.permissions.unconfined:
        return f"{error} (a load may write only to its target and its own folder, unless run --unconfined)"
    if _REFUSED in said and not session.permissions.unconfined:
        return f"{error} (a load has no privileges and only listed system calls, unless run --unconfined)"
    if _FORBIDDEN in said and not session.permissions.unconfined:
        return f"{error} (a load of root's is another user: --allow read=FILE shows it what isn't for everybody)"
    return str(error)


async def out_of_memory(built: Built) -> str:
    """Which server of the trial, or process of one, the kernel has just killed for want of memory; "" for none."""
    for part in built.parts.values():
        for program in part.programs if part.node is not None and part.node.lost is None else ():
            assert part.node is not None
            try:
                log = (await part.node.run(["sh", "-c", _KERNEL_LOG], check=False)).stdout.decode(errors="replace")
                if killed := _just_killed(log, program.name.rpartition("/")[2][:_COMM], program.pid):
                    return f"the kernel of {part.node.name} was out of memory, and killed {killed}"
            except (StorlabError, ValueError, LookupError):
                continue  # it has no memory for a shell either, is lost meanwhile, or says what makes no sense
    return ""


def _just_killed(log: str, command: str, process: int | None) -> str:
    """The process of this name or number that the kernel's ``log`` says was killed; "" for none."""
    now, *lines = log.splitlines()
    for at, pid, name in _OUT_OF_MEMORY.findall("\n".join(lines)):
        if float(now.split()[0]) - float(at) < _JUST and (name == command or int(pid) == process):
            return f"{name} (process {pid})"
    return ""


def server_logs(built: Built) -> list[str]:
    """The last lines of the log of each server whose clients are loads: they say more than its clients hear."""
    parts = (part for part in built.parts.values() if any(isinstance(each, Server) for each in part.stack.resources))
    return [f"{program.name}, its last lines:\n{program.log()}" for part in parts for program in part.programs]


async def _without_files(built: Built) -> str:
    """Which server has as many files open as it may, where one does: its clients hear of it as if they had."""
    for part in built.parts.values():
        for program in part.programs if part.node is not None and part.node.lost is None else ():
            try:
                assert part.node is not None
                counts = (await part.node.output("sh", "-c", _OPEN_FILES, "sh", str(program.pid))).splitlines()
                for has, most in (line.split() for line in counts):
                    if int(has) >= int(most) - _SPARE:
                        own = ", some of them for itself" if int(has) < int(most) - 1 else ""
                        return f"{program.name} on {part.node.name} has {has} files open of at most {most}{own}"
            except (StorlabError, ValueError):
                continue  # it has ended, or has no limit
    return ""


async def _full_target(built: Built, session: Session) -> str:
    """That what is served to others is full, or stands on a file system that is, where one does.

    Not all protocols tell their clients, and those that do have it sound as if the client's were full.
    """
    for part in built.parts.values():
        node = part.node
        served = next((each for each in part.stack.resources if isinstance(each, Share | Export | Server)), None)
        if node is None or node.lost is not None or served is None:
            continue
        below = [each for one in (part, *part.all_below()) for each in one.stack.resources]
        for path in {each.path for each in below if isinstance(each, Dir) and each.node == node.name}:
            if await _is_full(session, node, path):
                if isinstance(served, Server):  # whose clients hear that a table is full, or of a server that is gone
                    return f"No space left on device, where the {served.dialect} server on {node.name} has its data"
                return f"what {node.name} serves is full"
    return ""


async def _is_full(session: Session, node: Node, path: str = "") -> bool:
    try:
        path = path or await session.scratch_on(node)
        listing = await node.output("df", "--output=avail", "-B1", path)
        return int(listing.split()[-1]) < _FULL
    except (StorlabError, ValueError, IndexError):
        return False  # such as of a guest that was ended at the trial's time-out
