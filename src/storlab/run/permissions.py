"""What a file of somebody else's wants beyond its own scratch, and whether the command line permits it: the one gate.

A program, a device, a file of this machine, an address, a setting of its kernel: each is a value of a key whose type
says so (``storlab.base.reach``). Studies, suites and the folders of runs differ in what they have such values in
(``planning.wants``, ``suites.run.wants``), and in nothing else. What is permitted is said on the command line of each
command, and nowhere else: a manifest is compared with it, and never obeyed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.base.errors import Problem, StudyError, UserError
from storlab.base.permission_words import WORDS, Word
from storlab.base.reading import opened_below

if TYPE_CHECKING:
    from storlab.base.reach import Found, Key


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
            path
            for path in paths_among(words)
            if (path in self.given and Path(path).is_file())
            or (self.beside is not None and is_brought(self.beside, path))
        ]
        return tuple(dict.fromkeys(path for path in (*here, *own) if not Path(path).is_dir()))


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


_DOES: dict[Word, str] = {
    "code": "is a program or code that runs with more rights than a load has",
    "device": "is a device, whose data may be lost",
    "write": "is outside the run's own scratch, and is written to",
    "read": "is a file of this machine, and gets into the run",
    "listen": "is an address at which others can connect",
    "kernel": "is a setting that all that runs on the machine shares",
    "host": "is a machine that Storlab logs in to, with your keys",
}


@dataclass(frozen=True)
class Want:
    """``on``: the nodes that it is about; empty for this machine. ``key``: where the file names it first."""

    word: Word
    value: str
    key: Key
    on: str = ""

    @property
    def permission(self) -> str:
        """What permits it."""
        return f"{self.word}={self.value}"

    @property
    def option(self) -> str:
        """The same for a command line, ready to paste."""
        return f"--allow {shlex.quote(self.permission)}"

    @property
    def does(self) -> str:
        """What it can do, as the end of a sentence that begins with its value."""
        return _DOES[self.word]


def want_of(found: Found, key: Key, on: str, beside: Path | None) -> Want | None:
    """What a value wants; ``None`` for a file ``beside`` the one that names it, whose author brings it along."""
    value = found.value
    if found.word == "read":
        if beside is not None and _is_below(beside, value):
            return None
        value = leads_to(value)
    return Want(found.word, value, (*key, *found.key), on)


def each_once(wants: Iterable[Want | None]) -> tuple[Want, ...]:
    """By the key that is first."""
    return tuple({(want.word, want.value): want for want in reversed([*filter(None, wants)])}.values())[::-1]


def unpermitted(wants: Iterable[Want], permissions: Permissions) -> list[Want]:
    return [want for want in wants if not permissions.permit(want.word, want.value)]


def refuse(file: str, wants: Sequence[Want], problem: Callable[[Key, str], Problem]) -> None:
    """Raise ``StudyError`` if something is wanted that isn't permitted, with what would permit it.

    ``problem``: what is wrong with a key of the file.
    """
    if wants:
        from storlab.base.units import shown  # which loads pydantic

        problems = [problem(want.key, f"{shown(want.value)} {want.does}") for want in wants]
        options = " ".join(want.option for want in wants)
        raise StudyError(file, [*problems, problem((), f"allow it, if you trust whoever wrote this: {options}")])


def _is_below(folder: Path, path: str) -> bool:
    """Whether a path leads below a folder, on a way without links; or would, if there were anything."""
    folder = folder.absolute()
    if not Path(path).is_relative_to(folder):
        return False
    try:
        with opened_below(folder, str(Path(path).relative_to(folder))):
            return True
    except OSError as error:
        return error.errno == errno.ENOENT
