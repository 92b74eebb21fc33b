"""What ssh(1) said when it failed, with a remedy. Its sentences are those of OpenSSH 8.4 to 10."""

from __future__ import annotations

import re

from storlab.errors import UnreachableError
from storlab.text import one_line

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
