"""Users of a node that programs run as: who they are, and what is given to them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.undo import own_folders
from storlab.unused_users import user_by

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
