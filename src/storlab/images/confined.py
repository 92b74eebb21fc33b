"""Running programs on what a stranger may have made: images of file systems, trees to pack, modules.

Each has parsers in C for all of that, so a hole in one must be worth nothing. It runs confined by the agent, in no
network, and writes to its output alone. Where Storlab is root, one that only reads is a user that nobody else is, who
may open any file and has no other privilege; one that has to keep the owners of files stays root, with what that takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from storlab.agent_binary import agent_path
from storlab.images import commands
from storlab.unused_users import unused_user

CANNOT_CONFINE = "can't confine"
"""What the agent says where it can't."""
_READS = ("CAP_DAC_READ_SEARCH",)
_BECOMES = ("CAP_SETGID", "CAP_SETUID")
_KEEPS_OWNERS = (*_READS, "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID")


def run_on_strangers(argv: Sequence[str], log: Path, output: Path | None = None, stdin: bytes | None = None) -> bytes:
    """As ``commands.run``. ``output``: the only folder or file that it may write to; what it prints is returned."""
    return commands.run(argv, log, stdin, within=_words(output))


def unzstd(packed: bytes, log: Path) -> bytes:
    return run_on_strangers(["zstd", "--decompress", "--stdout", "--quiet"], log, stdin=packed)


def _words(output: Path | None) -> list[str]:
    root = os.geteuid() == 0
    kept = () if not root else _KEEPS_OWNERS if output is not None else (*_READS, *_BECOMES)
    confinement = {"writable": [] if output is None else [str(output)], "capabilities": kept}
    confined = [str(agent_path()), "confine", orjson.dumps(confinement).decode()]
    return [*confined, *(_as_a_user() if root and output is None else [])]


def _as_a_user() -> list[str]:
    user = unused_user()
    reads = "-all,+dac_read_search"
    who = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return ["setpriv", *who, f"--inh-caps={reads}", f"--ambient-caps={reads}", "--"]
