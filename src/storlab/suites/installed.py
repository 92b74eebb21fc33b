"""What a machine has of a suite: its executable files, folders and users, as ``find`` and ``/etc/passwd`` say."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

EXTENSIONS = ("", ".ksh", ".sh")
"""In the order in which test-runner looks for the file of a test."""


@dataclass(frozen=True)
class Installed:
    """Regular files and folders by their absolute path, and names of users."""

    executables: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    """Files that may not be executed, folders, links."""
    users: frozenset[str] = frozenset({"root"})

    def program(self, path: str) -> str | None:
        """The file that is executed for a test; ``None`` where there is none."""
        return next((path + end for end in EXTENSIONS if path + end in self.executables), None)

    def why_not(self, path: str) -> str:
        """Why nothing can be executed for a test."""
        there = next((path + end for end in EXTENSIONS if path + end in self.others), None)
        if there is not None:
            return f"{there} is not an executable file"
        tried = " or ".join(posixpath.basename(path) + end for end in EXTENSIONS)
        return f"there is no {tried} in {posixpath.dirname(path)}"


FIND = ("-printf", r"%y%m %p\0")
"""What ``find`` has to print for ``parse_find``."""


def parse_find(output: bytes, passwd: str) -> Installed:
    """What ``find … -printf`` printed, and ``/etc/passwd``. Lines that make no sense are left out."""
    executables: set[str] = set()
    others: set[str] = set()
    for entry in output.split(b"\0"):
        about, _, name = entry.partition(b" ")
        try:
            path = name.decode()
            kind, mode = chr(about[0]), int(about[1:], 8)
        except (UnicodeDecodeError, ValueError, IndexError):
            continue
        (executables if kind == "f" and mode & 0o111 else others).add(path)
    return Installed(frozenset(executables), frozenset(others), frozenset(_users(passwd.splitlines())))


def _users(lines: Iterable[str]) -> Iterable[str]:
    return (line.partition(":")[0] for line in lines if ":" in line)
