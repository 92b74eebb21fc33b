"""Words for another machine, whatever its login shell is.

sshd(8) hands a command to the user's login shell as one string. So the string has only letters, digits, ``.``, ``/``,
``-``, ``+``, spaces, and characters with a backslash in front, which bash, dash, fish, ksh, tcsh and zsh all read in
the same way. The words themselves travel as base64, and are put together again by sh(1).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence

from storlab.errors import SshError

MARK = "storlab-ssh/1"
"""The line after which the output of a marked command begins; what the login shell's files print comes before it."""

_DECODE = 'eval "$(echo $0|base64 -d)"'
_PLAIN = re.compile(r"[^A-Za-z0-9./-]")
_MOST = 96 * 1024  # bytes; the kernel takes 128 KiB for one word, see execve(2)


def remote_command(words: Sequence[str], *, marked: bool = False) -> str:
    """The string for ssh(1) that runs ``words`` on the other machine. Raises ``SshError`` if it would be too long."""
    return _encoded((f"echo {MARK};" if marked else "") + "exec " + shlex.join(words))


def remote_script(script: str, *arguments: str) -> str:
    """The same for a script of sh(1), with ``$1`` and so on; its output is marked."""
    return remote_command(["sh", "-c", script, "storlab", *arguments], marked=True)


def _encoded(command: str) -> str:
    content = command.encode("utf-8", "surrogateescape")
    if b"\0" in content:
        raise SshError("a word for another machine may not contain a NUL character")
    payload = base64.b64encode(content + b" " * (-len(content) % 3)).decode()  # spaces, so that there is no "="
    if len(payload) > _MOST:
        raise SshError(f"a command of {len(content)} bytes is too long for another machine: put it into a file")
    return f"exec sh -c {_PLAIN.sub(lambda found: chr(92) + found[0], _DECODE)} {payload}"
