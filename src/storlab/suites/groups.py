"""What a machine has of a suite, and the groups that are made of it: by runfiles, suite files and command lines alike.

Each of these says what a group is called, which tests it has and what is around them; what is not there leaves a test
or the whole group out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from storlab.suites.model import Absent, Group, Script, Suite

EXTENSIONS = ("", ".ksh", ".sh")
"""In the order in which test-runner looks for the file of a test."""
ROLES = ("pre", "post", "failsafe")
USERS = ("pre_user", "user", "post_user", "failsafe_user")
FIND = ("-printf", r"%y%m %p\0")
"""What ``find`` has to print for ``parse_find``."""


@dataclass(frozen=True)
class Installed:
    """Regular files and folders by their absolute path, and names of users. ``others``: files that may not be executed,
    folders, links.
    """

    executables: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset({"root"})

    def program(self, path: str) -> str | None:
        """The file that is executed for a test; ``None`` if there is none."""
        return next((path + end for end in EXTENSIONS if path + end in self.executables), None)

    def why_not(self, path: str) -> str:
        there = next((path + end for end in EXTENSIONS if path + end in self.others), None)
        if there is not None:
            return f"{there} is not an executable file"
        tried = " or ".join(posixpath.basename(path) + end for end in EXTENSIONS)
        return f"there is no {tried} in {posixpath.dirname(path)}"


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
    users = frozenset(line.partition(":")[0] for line in passwd.splitlines() if ":" in line)
    return Installed(frozenset(executables), frozenset(others), users)


@dataclass(frozen=True)
class Written:
    """A group as it is written, without its tests.

    ``says``: what is said of ``pre``, ``post``, ``failsafe`` (paths below ``folder``, or the suite's), ``user``,
    ``pre_user`` …; ``where``: its file, with the line; ``called``: in messages; ``lines``: of the scripts around it;
    ``single``: it is one test that stands alone.
    """

    name: str
    called: str
    where: str
    folder: str
    says: Mapping[str, str]
    timeout: float | None
    tags: tuple[str, ...] = ()
    identifier: str = ""
    line: int | None = None
    lines: Callable[[str], int | None] = lambda role: None
    single: bool = False


@dataclass(frozen=True)
class WrittenTest:
    """A test of a group. ``run``: a shell's line, which needs no file."""

    name: str
    path: str
    where: str
    line: int | None = None
    run: str = ""


class Builder:
    """Keeps groups of what is written and is there, and what of it is not. ``by_path``: what is absent is known by its
    path, so that a selection may leave it out.
    """

    def __init__(self, installed: Installed, testdir: str, *, by_path: bool = False) -> None:
        self._installed, self._testdir, self._by_path = installed, testdir, by_path
        self._groups: list[Group] = []
        self._singles: list[Group] = []
        self._absent: list[Absent] = []

    def add(self, group: Written, tests: Sequence[WrittenTest], problem: str = "") -> None:
        """``problem``: why the group can't be run, unless something else is found first."""
        scripts: dict[str, Script | None] = dict.fromkeys(ROLES)
        problems = []
        for role in ROLES:
            if written := group.says.get(role):
                below = self._testdir if role == "failsafe" else group.folder
                path = posixpath.normpath(posixpath.join(below, written))
                program = self._installed.program(path)
                problems += [f"{role}: {self._installed.why_not(path)}"] if program is None else []
                scripts[role] = Script(path, group.says.get(f"{role}_user", ""), program or "", group.lines(role))
        users = ((key, group.says.get(key, "")) for key in USERS)
        problems += [f"{key}: unknown user {user!r}" for key, user in users if user not in ("", *self._installed.users)]
        if problems := [*problems, *filter(None, [problem])]:
            self._leave_out(group, tests, group.where, f"{group.called} is left out: {problems[0]}")
            return
        kept = []
        for test in tests:
            program = "" if test.run else self._installed.program(test.path)
            if program is None:
                called = group.called if group.single else f"test {test.name}"
                self._leave_out(
                    group, [test], test.where, f"{called} is left out: {self._installed.why_not(test.path)}"
                )
            else:
                kept.append(Script(test.path, group.says.get("user", ""), program, test.line, test.run))
        if kept:
            around = (scripts["pre"], scripts["post"], scripts["failsafe"], group.timeout, group.tags, group.identifier)
            found = Group(group.name, tuple(kept), *around, line=group.line)
            (self._singles if group.single else self._groups).append(found)

    def _leave_out(self, group: Written, tests: Sequence[WrittenTest], where: str, what: str) -> None:
        known = (tuple(test.path for test in tests), group.tags) if self._by_path else ((), ())
        self._absent.append(Absent(where, what, len(tests), *known))

    def suite(self, name: str, *, as_written: bool = False) -> Suite:
        """All of it, each group with a folder for its output; by name as test-runner has it, or ``as_written``."""
        ordered = self._groups
        if not as_written:
            ordered = [group for kept in (self._singles, self._groups) for group in sorted(kept, key=lambda g: g.name)]
        folders = unique_folders([group.name for group in ordered])
        placed = tuple(replace(group, folder=folders[group.name]) for group in ordered)
        return Suite(name, placed, tuple(self._absent))


def unique_folders(names: Sequence[str]) -> dict[str, str]:
    """The shortest ends of paths that are different for all of them, of as many components each."""
    components = 0
    while True:
        components += 1
        ends = {name: "/".join(name.split("/")[-components:]).lstrip("/") for name in names}
        if len(set(ends.values())) == len(ends) or components > max((name.count("/") for name in names), default=0):
            return {name: inside(end) for name, end in ends.items()}


def inside(path: str) -> str:
    """As a path that leads nowhere else."""
    return "/".join(part for part in path.split("/") if part not in ("", ".", "..")) or "_"
