"""What a QEMU may do beyond being a guest's machine: a guest that breaks out of it should find nothing there.

Started by root, QEMU opens what stands on its command line and then becomes a user that nobody else is, another one for
each guest: neither another guest's QEMU nor any program of the machine can look into it, and it owns no file. A filter
of system calls (seccomp) forbids it to start programs. Where QEMU or this machine can't do that, it is tried with less.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from storlab.nodes.node import Node
from storlab.unused_users import unused_user

_SANDBOX = "on,obsolete=deny,spawn=deny,resourcecontrol=deny"
_KEPT = ",elevateprivileges=deny"  # it would also forbid to become another user
_TRY = b'{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'
_PATIENCE = 20.0  # s; it takes a twentieth of one


@dataclass(frozen=True)
class Confinement:
    """``user``: whom QEMU becomes, as number of user and group; ``None``: it stays who started it.

    ``reason``: why it is not confined further, in words.
    """

    user: int | None = None
    sandbox: bool = False
    option: str = "-run-with"  # -runas before QEMU 9.1
    reason: str = ""

    def words(self) -> list[str]:
        sandbox = _SANDBOX if self.user is not None else _SANDBOX + _KEPT
        words = ["-sandbox", sandbox] if self.sandbox else []
        if self.user is None:
            return words
        who = f"{self.user}:{self.user}"
        return [*words, self.option, f"user={who}" if self.option == "-run-with" else who]

    def of_a_guest(self, *, serves_files: bool) -> Confinement:
        """For one guest, with a user of its own. A QEMU that serves files itself (9p) stays who started it."""
        if self.user is None:
            return self
        if serves_files:
            return replace(self, user=None, reason="it serves a folder's files by 9p, and needs root for that")
        return replace(self, user=unused_user())

    def facts(self) -> dict[str, Any]:
        """For the records; the number of a guest's own user is not among them, as it is another one each time."""
        user = "its own" if self.user is not None else "root" if os.geteuid() == 0 else "the run's"
        return {"user": user, "sandbox": self.sandbox, **({"reason": self.reason} if self.reason else {})}


UNCONFINED = Confinement()


async def find_confinement(qemu: str, host: Node) -> Confinement:
    """The most that this machine's QEMU can do, which only a QEMU can tell. It runs for a moment, without a guest."""
    root = os.geteuid() == 0
    users = [(unused_user(), "-run-with"), (unused_user(), "-runas")] if root else []
    tried = [Confinement(user, sandbox, option) for sandbox in (True, False) for user, option in users]
    said = ""
    for confinement in (*tried, Confinement(sandbox=True)):
        argv = [qemu, "-no-user-config", "-nodefaults", "-display", "none", "-machine", "none", "-qmp", "stdio"]
        ended = await host.run([*argv, *confinement.words()], check=False, stdin=_TRY, timeout=_PATIENCE)
        if ended.ok:
            whole = confinement.sandbox and (confinement.user is not None or not root)
            return replace(confinement, reason="" if whole else said)
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        said = said or (lines[-1] if lines else ended.describe())
    return Confinement(reason=said)
