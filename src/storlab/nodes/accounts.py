"""Users of a node that programs run as: who they are, and what is given to them."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from storlab.base.errors import NodeError, SafetyError
from storlab.base.programs import user_by
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.undo import RunPath, own_folders, remove_folder, undo

_IDENTITY = re.compile(r"uid=(\d{1,10})\(([^)]+)\) gid=(\d{1,10})\(([^)]+)\)")  # as id(1) prints it
_REACH = 'for each; do [ -w "$each" ] || { echo "$each"; break; }; done'


@dataclass(frozen=True)
class Account:
    """A user and its own group, by name and by number."""

    name: str
    user: int
    group_name: str
    group: int

    @classmethod
    def of_run(cls, run: str, program: str) -> Account:
        """The user that a program of this run's runs as: nobody else is that, nor has it a name.

        The same whenever it is asked for, by whoever resumes the run or cleans up after it.
        """
        number = user_by(f"{run} {program}")
        return cls(str(number), number, str(number), number)

    def words(self) -> list[str]:
        """Those before a command that runs as this user, without any privilege."""
        groups = "--clear-groups" if self.name.isdecimal() else "--init-groups"
        # With the user, a process sheds the signal that it gets when its parent, the agent, dies.
        return ["setpriv", f"--reuid={self.name}", f"--regid={self.group_name}", groups, "--pdeathsig=KILL", "--"]


async def is_root(node: Node) -> bool:
    if "uid" not in node.known:
        node.known["uid"] = str((await node.facts({}))["uid"])
    return node.known["uid"] == "0"


async def find_user(node: Node, name: str) -> Account | None:
    key = f"user {name}"
    if key not in node.known:
        node.known[key] = (await node.run(["id", "--", name], check=False)).stdout.decode(errors="replace")
    found = _IDENTITY.match(node.known[key])
    return None if found is None else Account(name, int(found[1]), found[4], int(found[3]))


async def hand_over(node: Node, account: Account | None, folders: Sequence[str]) -> None:
    """Give folders to a user, and let everybody pass through those of Storlab's that they lie in."""
    given = [] if account is None else [steps.own(folder, account.user, account.group) for folder in folders]
    above = dict.fromkeys(each for folder in folders for each in own_folders(folder))
    await node.carry_out(*given, *(steps.open_up(each) for each in above))


async def out_of_reach(node: Node, as_user: Sequence[str], folders: Sequence[str]) -> str | None:
    """The first of Storlab's folders that a user can't write to, for what they lie in is closed to it.

    ``as_user``: the words before a command that runs as that user.
    """
    where = sorted({own_folders(folder)[0].rpartition("/")[0] for folder in folders})
    key = f"reached by {shlex.join(as_user)}: {shlex.join(where)}"
    if key not in node.known:
        node.known[key] = (await node.run([*as_user, "sh", "-c", _REACH, "reach", *folders])).stdout.decode().strip()
    return node.known[key] or None


# Folders of a run's own among those of other users: in `/tmp`, in `/var/tmp`, wherever a study says.
#
# Whoever knows the name that a folder is going to have can make it first, as a link to somewhere else. So these names
# have 128 random bits that stand nowhere before, the folder must not exist, and nobody else may enter it. What keeps
# others from replacing it later is the sticky bit of the folder that it lies in, see unlink(2) and chmod(1).

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
