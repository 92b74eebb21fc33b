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

from storlab.base.errors import SshError, UnreachableError
from storlab.base.text import one_line

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


# What ssh(1) said when it failed, with a remedy. Its sentences are those of OpenSSH 8.4 to 10.

_REMEDIES: tuple[tuple[str, str], ...] = (
    ("IDENTIFICATION HAS CHANGED|Host key for .* has changed",
     "if it was installed again, run `ssh-keygen -R {host}` and accept its new key once with `ssh {host}`; "
     "if not, another machine answers in its place"),
    ("No .* host key is known|Host key verification failed",
     "compare its key with the machine's own, and accept it once with `ssh {host}`"),
    ("Permission denied|Too many authentication failures|No more authentication methods",
     "`ssh {host}` must log in without a password: run `ssh-copy-id {host}`, or `ssh-add` if your "
     "key has a passphrase"),
    ("Could not resolve hostname",
     "correct the name, or give it a HostName in ~/.ssh/config"),
    ("Connection refused", "start sshd there, or correct the port in ~/.ssh/config"),
    ("No route to host|Network is unreachable|timed out|Timeout, server",
     "check that the machine is on and connected"),
    ("Bad (configuration option|owner or permissions)|terminating|Can't open user config file",
     "correct ssh's configuration: `ssh -G {host}` must succeed"),
    ("Session open refused|MaxSessions", "raise MaxSessions in its sshd_config"),
)  # fmt: skip
_LONGEST = 400  # characters of what another machine may have had a part in
_BEHIND = re.compile(
    r"Host key verification failed|^Connection closed by|kex_exchange_identification|^client_loop:|: terminating, "
)
"""Last lines that only say that something failed, where the line before has the reason."""


def last_sentence(stderr: str) -> str:
    """The last of ssh's own lines that gives a reason; empty if it printed nothing."""
    lines = [line.strip() for line in stderr.replace("\r", "").splitlines() if line.strip(" @\r\n")]
    if not lines:
        return ""
    if len(lines) > 1 and _BEHIND.search(lines[-1]):
        return f"{lines[-2].rstrip('.')}. {lines[-1]}"
    return lines[-1]


def remedy_for(host: str, stderr: str) -> str:
    """What to do about it; of several that fit, the most specific."""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, stderr):
            return remedy.format(host=host)
    return f"`ssh {host} true` must succeed"


def unreachable(host: str, stderr: str, otherwise: str) -> UnreachableError:
    """The error of a machine that can't be reached; ``otherwise`` is said if ssh printed nothing."""
    reason = one_line(last_sentence(stderr))[:_LONGEST] or otherwise
    return UnreachableError(f"cannot reach {host}: {reason.rstrip('.')}: {remedy_for(host, stderr)}")
