"""What the user of a run lets a study's own words do, which they may not do by themselves.

It is said on the command line of each command, and nowhere else: a manifest is compared with it, and never obeyed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storlab.below import opened_below
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

    def shown(self, words: Iterable[str] = ()) -> tuple[str, ...]:
        """Files that loads see, whoever may read them: those that are allowed, and some of the study's own ``words``.

        These are what the command line gave it by ``--set``, and what lies beside the study for everybody to read: the
        author of a study brings that along, and whether its folder is closed to others is not his to know.
        """
        found = (each.partition("=") for each in sorted(self.allowed))
        paths = [path for word, _, path in found if word in _SHOWN]
        # One that is written from here on is of this machine; others may be another's.
        here = [
            path if path.startswith("/") else leads_to(path)
            for path in paths
            if path[:1] == "/" or Path(path).is_file()
        ]
        own = [
            path for path in paths_among(words) if (path in self.given and Path(path).is_file()) or self._brings(path)
        ]
        return tuple(dict.fromkeys(path for path in (*here, *own) if not Path(path).is_dir()))

    def _brings(self, path: str) -> bool:
        return self.beside is not None and is_brought(self.beside, path)


def is_brought(beside: Path, path: str) -> bool:
    """Whether a file lies below the folder of a study, and anybody who may enter that may read it. No link is on the
    way.
    """
    folder, way = beside.absolute(), Path(path)
    if not way.is_relative_to(folder) or os.path.normpath(path) != path:
        return False
    between = [each for each in way.parents if each != folder and each.is_relative_to(folder)]
    with contextlib.suppress(OSError), opened_below(folder, str(way.relative_to(folder))) as found:
        mode = found.stat().st_mode
        passable = all(each.stat().st_mode & stat.S_IXOTH for each in between)
        return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH) and passable
    return False


def is_closed(folder: Path) -> bool:
    """Whether others can't get into a folder, or to it."""
    return not all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def paths_among(words: Iterable[str]) -> Iterator[str]:
    """The absolute paths among words of a command, also as ``--option=/path``."""
    return (each for word in words for each in (word, word.partition("=")[2]) if each.startswith("/"))


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
