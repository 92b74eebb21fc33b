"""``/proc/PID/mountinfo``, see proc_pid_mountinfo(5)."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mount:
    """One mount. ``device`` is ``major:minor``; ``options`` are the mount's and the file system's together."""

    device: str
    path: str
    filesystem: str
    source: str
    options: str


def parse_mountinfo(text: str) -> list[Mount]:
    """All mounts, in order; lines that are none are skipped."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        options = ",".join(dict.fromkeys([*fields[5].split(","), *rest[2].split(",")]))
        mounts.append(Mount(fields[2], _unescape(fields[4]), rest[0], _unescape(rest[1]), options))
    return mounts


def _unescape(text: str) -> str:
    """Space, tab, newline and backslash stand as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
