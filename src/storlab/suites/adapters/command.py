"""Suites whose tests are any programs: a suite file in TOML says which, and their exit status what came of them."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storlab.suites.adapters.base import PLACE, Adapter, Launch, Needs, as_user, names_of
from storlab.suites.groups import ROLES, USERS, Builder, Installed, Written, WrittenTest
from storlab.suites.ktap import judge_text
from storlab.suites.model import Outcome, Script, Suite
from storlab.suites.runfile import Runfile
from storlab.suites.suite_file import Around, CommandLine, GroupTable, SuiteFile

_TIMEOUT = 60.0  # s


@dataclass(frozen=True)
class Command(Adapter):
    """A suite file. ``file``: what messages call it; ``lines``: where its keys stand; ``testdir``: in the guest."""

    spec: SuiteFile
    testdir: str
    file: str = "suite.toml"
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.spec.adapter

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        """As written; what is not in the guest is in ``absent``, with file and line."""
        builder = Builder(installed, self.testdir)
        for each, table in self.spec.groups.items():
            self._add(each, table, builder)
        return builder.suite(name, as_written=True)

    def _add(self, name: str, table: GroupTable, builder: Builder) -> None:
        folder = posixpath.join(self.testdir, self.spec.folder_of(name))
        said: dict[str, Any] = self.spec.defaults.model_dump()
        said |= {key: own for key in said if (own := getattr(table, key)) is not None}
        says = {key: str(said[key] or ("root" if key in USERS else "")) for key in (*ROLES, *USERS)}
        tests = []
        for number, test in enumerate(table.tests):
            line = self._line(name, table, "tests", number)
            if isinstance(test, CommandLine):
                tests.append(WrittenTest(test.name, posixpath.join(folder, test.name), self._at(line), line, test.run))
            else:
                path = posixpath.normpath(posixpath.join(folder, test))
                tests.append(WrittenTest(test, path, self._at(line), line))
        limit = _TIMEOUT if said["timeout"] is None else said["timeout"] or None
        written = Written(
            name,
            f"group {name}",
            self._at(self._line(name, table)),
            folder,
            says,
            limit,
            tuple(said["tags"] or ()),
            line=self._line(name, table, "tests"),
            lines=lambda role: self._line(name, table, role),
        )
        builder.add(written, tests)

    def _line(self, name: str, table: GroupTable, *key: str | int) -> int | None:
        where: tuple[str | int, ...] = ("groups", name, *key)
        if key and key[0] in Around.model_fields and getattr(table, str(key[0])) is None:
            where = ("defaults", *key)
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where)

    def _at(self, line: int | None) -> str:
        return self.file if line is None else f"{self.file}:{line}"

    def launch(self, script: Script, variables: Mapping[str, str]) -> Launch:
        user = script.user or self.runner
        env = {**variables, **self.spec.environment, **names_of(user)}
        return Launch((*as_user(user), *self.argv(script)), env, variables.get("TMPDIR", PLACE))

    def argv(self, script: Script) -> tuple[str, ...]:
        if not script.run:
            return (script.file,)
        return ("sh", "-c", f"cd {shlex.quote(posixpath.dirname(script.path))} 2> /dev/null\n{script.run}")

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> tuple[Outcome, str]:
        if self.spec.adapter == "ktap":
            return judge_text(printed(), code)
        if code == 0:
            return Outcome.PASS, ""
        return (Outcome.SKIP if code in self.spec.skip else Outcome.FAIL), ""

    def needs(self) -> Needs:
        guests = self.spec.guests
        programs = ("bash", "mkfs.ext4", "runuser", *guests.programs)
        modules = tuple(guests.modules)
        return Needs(programs, guests.disks, guests.disk_size, "command-set-up.sh", modules, guests.space)
