"""What the user of a run lets a study's own words do, which they may not do by themselves.

It is said on the command line of each command, and nowhere else: a manifest is compared with it, and never obeyed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import UserError
from storlab.permission_words import WORDS


@dataclass(frozen=True)
class Permissions:
    """``unconfined``: loads and commands may touch all that Storlab itself may. ``allowed``: ``code=/opt/qemu``, ….

    ``given``: values that the command line gave the study by ``--set``, or that the user's own lab names.
    ``beside``: the folder of the study, whose files its author brings along; ``None`` where it has none.
    """

    unconfined: bool = False
    allowed: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    beside: Path | None = None

    def permit(self, word: str, value: str) -> bool:
        """Whether a study may have it. A path is what it leads to from here, however it is written."""
        return value in self.given or (word, _meant(word, value)) in {
            (word, _meant(word, value)) for word, _, value in (each.partition("=") for each in self.allowed)
        }

    def shown(self) -> tuple[str, ...]:
        """Files that loads see, whoever may read them."""
        found = (each.partition("=") for each in sorted(self.allowed))
        paths = [path for word, _, path in found if word in _SHOWN]
        # One that is written from here on is of this machine; others may be another's.
        here = [
            path if path.startswith("/") else leads_to(path)
            for path in paths
            if path[:1] == "/" or Path(path).is_file()
        ]
        return tuple(path for path in here if not Path(path).is_dir())


_SHOWN = ("code", "read")
_PATHS = ("code", "device", "write", "read")
NO_PERMISSIONS = Permissions()
UNCONFINED = "Loads and commands of the study were not confined (--unconfined): they could write anywhere."


def parse_allowed(written: Iterable[str]) -> frozenset[str]:
    """What ``--allow WORD=VALUE`` permits. Raises ``UserError``."""
    for each in written:
        word, separator, value = each.partition("=")
        if word not in WORDS or not separator or not value:
            raise UserError(
                f"--allow {each}: write WORD=VALUE, such as --allow code=/opt/qemu; words: {', '.join(WORDS)}"
            )
    return frozenset(written)


def _meant(word: str, value: str) -> str:
    words = word == "code" and value.startswith(("-", "cd "))  # arguments of QEMU, a command of a bisection
    return leads_to(value) if word in _PATHS and not words else value


def leads_to(path: str) -> str:
    """Where a path leads from here, links followed; one that can't be stays as it is."""
    return path if "\0" in path else os.path.realpath(path)
