"""Folders of a run's own among those of other users: in `/tmp`, in `/var/tmp`, wherever a study says.

Whoever knows the name that a folder is going to have can make it first, as a link to somewhere else. So these names
have 128 random bits that stand nowhere before, the folder must not exist, and nobody else may enter it. What keeps
others from replacing it later is the sticky bit of the folder that it lies in, see unlink(2) and chmod(1).
"""

from __future__ import annotations

import secrets
from pathlib import PurePosixPath

from storlab.errors import NodeError, SafetyError
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.undo import RunPath, remove_folder, undo

SOCKETS = "/tmp"
"""Where the folders for sockets lie: their paths have to be short, see unix(7)."""

_BYTES = 16
_REPLACEABLE, _STICKY, _PASSABLE = 0o002, 0o1000, 0o001  # for all others


@undo("sockets.remove", outlives_boot=True)
async def remove_private(node: Node, path: RunPath) -> str | None:
    return await remove_folder(node, path)


def private_name(run: str) -> str:
    """A name for a folder of a run that nobody can foresee; 22 characters longer than one that could be."""
    return f"storlab-{run}-{secrets.token_urlsafe(_BYTES)}"


async def make_private(node: Node, path: str) -> None:
    """Make a folder that is nobody else's. Raises ``NodeError`` where anything has that name, a link too."""
    await node.carry_out(steps.make_directory(path, 0o700))


async def refuse_replaceable(node: Node, path: str) -> None:
    """Raise ``SafetyError`` where any user could replace what is made in a folder, or the folder itself.

    ``path`` is absolute and exists.
    """
    real = PurePosixPath((await node.output("readlink", "--canonicalize-existing", "--", path)).removesuffix("\n"))
    folders = [*reversed(real.parents), real]
    listed = (await node.output("stat", "--format=%a", "--", *map(str, folders))).split()
    if len(listed) != len(folders) or not all(each.isdecimal() for each in listed):
        raise NodeError(f"node {node.name}: cannot read the modes of {real} and of the folders above it")
    for folder, mode in zip(folders, (int(each, 8) for each in listed), strict=True):
        if mode & _REPLACEABLE and not mode & _STICKY:
            raise SafetyError(
                f"node {node.name}: any user may replace what lies in {folder} (its mode is {mode:04o}), so files of "
                f"Storlab's there could become somebody else's: run `chmod +t {folder}`, or name another folder"
            )
        if not mode & _PASSABLE:
            return  # others don't get any further
