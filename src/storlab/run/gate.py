"""The one gate: what a file of somebody else's wants beyond its own scratch, and whether this command line permits it.

A program, a device, a file of this machine, an address, a setting of its kernel: each is a value of a key whose type
says so (``storlab.reach``). Studies, suites and the folders of runs differ in what they have such values in
(``planning.wants``, ``suite.wants``), and in nothing else.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from storlab.below import opened_below
from storlab.errors import Problem, StudyError
from storlab.permission_words import Word
from storlab.reach import Found, Key
from storlab.run.permissions import Permissions, leads_to
from storlab.units import shown

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
    """Those that this command line does not permit."""
    return [want for want in wants if not permissions.permit(want.word, want.value)]


def refuse(file: str, wants: Sequence[Want], problem: Callable[[Key, str], Problem]) -> None:
    """Raise ``StudyError`` where something is wanted that isn't permitted, with what would permit it.

    ``problem``: what is wrong with a key of the file.
    """
    if wants:
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
