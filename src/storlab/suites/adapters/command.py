"""Suites whose tests are any programs: a suite file in TOML says which, and their exit status what came of them."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files

from storlab.suites.adapters.base import Environment, Judged, Launch, Needs
from storlab.suites.installed import Installed
from storlab.suites.model import Absent, Expectations, Group, Outcome, Script, Suite
from storlab.suites.runfile import Runfile, unique_folders
from storlab.suites.suite_file import Around, CommandLine, GroupTable, SuiteFile
from storlab.suites.texts.ktap import judge_text

_PLACE = "/var/tmp"
_TIMEOUT = 60.0  # s
_USER = "root"
_ROLES = ("pre", "post", "failsafe")


@dataclass(frozen=True)
class Command:
    """A suite file. ``file``: what messages call it; ``lines``: where its keys stand; ``testdir``: in the guest."""

    spec: SuiteFile
    testdir: str
    file: str = "suite.toml"
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.spec.adapter

    @property
    def runner(self) -> str:
        return _USER

    @property
    def expectations_file(self) -> str | None:
        return None

    def files(self, name: str) -> tuple[str, ...] | None:
        return None

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        return groups_of(name, self, installed)

    def launch(self, script: Script, environment: Environment) -> Launch:
        user = script.user or self.runner
        variables = {**environment.variables, **self.spec.environment, "USER": user, "LOGNAME": user}
        as_user = () if user == "root" else ("runuser", "-u", user, "--")
        return Launch((*as_user, *self.argv(script)), variables, environment.variables.get("TMPDIR", _PLACE))

    def argv(self, script: Script) -> tuple[str, ...]:
        """The words of the command that a script is, without who runs it."""
        if not script.run:
            return (script.file,)
        return ("sh", "-c", f"cd {shlex.quote(posixpath.dirname(script.path))} 2> /dev/null\n{script.run}")

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> Judged:
        if self.spec.adapter == "ktap":
            return Judged(*judge_text(printed(), code))
        if code == 0:
            return Judged(Outcome.PASS)
        return Judged(Outcome.SKIP if code in self.spec.skip else Outcome.FAIL)

    def needs(self) -> Needs:
        guests = self.spec.guests
        programs = ("bash", "mkfs.ext4", "runuser", *guests.programs)
        needs = plain_needs(programs, guests.disks, guests.disk_size, {})
        return replace(needs, modules=tuple(guests.modules), files=guests.space)

    def expectations(self, source: str) -> Expectations:
        return Expectations()


def plain_needs(programs: tuple[str, ...], disks: int, disk_size: int, given: Mapping[str, str]) -> Needs:
    """What programs need that know nothing of where they are run."""
    return Needs(
        modules=(),
        programs=programs,
        disks=disks,
        disk_size=disk_size,
        files=16 * 1024**3,
        place=_PLACE,
        udev=True,
        tree=(),
        set_up=(files("storlab.suites.adapters") / "command-set-up.sh").read_text("utf-8"),
        given=given,
    )


def groups_of(name: str, suite: Command, installed: Installed) -> Suite:
    """The groups of a suite file, as written; what is not in the guest is in ``absent``, with file and line."""
    spec = suite.spec
    folders = unique_folders(list(spec.groups))
    groups: list[Group] = []
    absent: list[Absent] = []
    for each, table in spec.groups.items():
        group, missing = _Reader(suite, installed, each, table).read()
        absent += missing
        if group is not None:
            groups.append(replace(group, folder=folders[each]))
    return Suite(name, tuple(groups), tuple(absent))


@dataclass(frozen=True)
class _Reader:
    """Reads one group."""

    suite: Command
    installed: Installed
    name: str
    table: GroupTable

    def read(self) -> tuple[Group | None, list[Absent]]:
        folder = posixpath.join(self.suite.testdir, self.suite.spec.folder_of(self.name))
        scripts: dict[str, Script | None] = {}
        problem = None
        for role in _ROLES:
            written = self._value(role)
            path = posixpath.normpath(posixpath.join(self.suite.testdir if role == "failsafe" else folder, written))
            scripts[role] = self._script(path, f"{role}_user", role) if written else None
            if written and not self.installed.program(path):
                problem = problem or f"{role}: {self.installed.why_not(path)}"
        for key in ("user", *(f"{role}_user" for role in _ROLES)):
            if (user := self._value(key)) and user not in self.installed.users:
                problem = problem or f"{key}: unknown user {user!r}"
        if problem is not None:
            what = f"group {self.name} is left out: {problem}"
            return None, [Absent(self._at(), what, len(self.table.tests))]
        tests, absent = self._tests(folder)
        if not tests:
            return None, absent
        timeout = self._inherited("timeout")
        limit = _TIMEOUT if timeout is None else float(str(timeout)) or None
        tags = tuple(self.table.tags if self.table.tags is not None else self.suite.spec.defaults.tags or ())
        line = self._line("tests")
        return Group(self.name, tests, scripts["pre"], scripts["post"], scripts["failsafe"], limit, tags, line=line), (
            absent
        )

    def _tests(self, folder: str) -> tuple[tuple[Script, ...], list[Absent]]:
        tests: list[Script] = []
        absent: list[Absent] = []
        for number, test in enumerate(self.table.tests):
            line = self._line("tests", number)
            if isinstance(test, CommandLine):
                path = posixpath.join(folder, test.name)
                tests.append(Script(path, self._user("user"), line=line, run=test.run))
                continue
            path = posixpath.normpath(posixpath.join(folder, test))
            if self.installed.program(path) is None:
                what = f"test {test} is left out: {self.installed.why_not(path)}"
                absent.append(Absent(self._at("tests", number), what))
            else:
                tests.append(self._script(path, "user", "tests", number))
        return tuple(tests), absent

    def _script(self, path: str, user: str, *key: str | int) -> Script:
        return Script(path, self._user(user), self.installed.program(path) or "", self._line(*key))

    def _inherited(self, key: str) -> object:
        own = getattr(self.table, key)
        return getattr(self.suite.spec.defaults, key) if own is None else own

    def _value(self, key: str) -> str:
        return str(self._inherited(key) or "")

    def _user(self, key: str) -> str:
        return self._value(key) or _USER

    def _line(self, *key: str | int) -> int | None:
        where: tuple[str | int, ...] = ("groups", self.name, *key)
        if key and key[0] in Around.model_fields and getattr(self.table, str(key[0])) is None:
            where = ("defaults", *key)
        while where and where not in self.suite.lines:
            where = where[:-1]
        return self.suite.lines.get(where)

    def _at(self, *key: str | int) -> str:
        line = self._line(*key)
        return self.suite.file if line is None else f"{self.suite.file}:{line}"
