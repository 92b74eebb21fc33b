"""A checkout of xfstests or blktests, or any suite in their form: tests that ``check`` runs one at a time."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from storlab.suites.adapters.base import Environment, Judged, Launch, Needs
from storlab.suites.adapters.command import Command
from storlab.suites.installed import Installed
from storlab.suites.model import Expectations, Group, Script, Suite
from storlab.suites.runfile import Runfile
from storlab.suites.texts.check_log import read_check

_PLACE = "/var/tmp"
_KEPT = ("full", "out.bad", "dmesg", "notrun", "core")


@dataclass(frozen=True)
class CheckOptions:
    """Which tests, in order; ``section``: of the checkout's configuration; ``filesystem``: of ``TEST_DEV``.

    ``environment``: of all tests; ``modules``, ``programs``, ``space``: of guests, beyond what each has.
    """

    tests: tuple[tuple[str, tuple[str, ...]], ...]  # test → groups
    section: str = ""
    filesystem: str = "ext4"
    timeout: float | None = 600.0
    disk_size: int = 4 * 1024**3
    environment: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    space: int = 16 * 1024**3


@dataclass(frozen=True)
class Check:
    """One checkout, copied to ``testdir`` in each guest."""

    testdir: str
    options: CheckOptions

    @property
    def name(self) -> str:
        return "check"

    @property
    def runner(self) -> str:
        return "root"

    @property
    def expectations_file(self) -> str | None:
        return None

    def files(self, name: str) -> tuple[str, ...] | None:
        return None

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        """A group for each directory of tests."""
        scripts: dict[str, list[Script]] = {}
        tags: dict[str, set[str]] = {}
        for test, groups in self.options.tests:
            folder = test.partition("/")[0]
            section = f"-s {shlex.quote(self.options.section)} " if self.options.section else ""
            run = f"cd {shlex.quote(self.testdir)} && ./check {section}{shlex.quote(test)}"
            scripts.setdefault(folder, []).append(Script(f"{self.testdir}/tests/{test}", "root", run=run))
            tags.setdefault(folder, set()).update(groups)
        timeout = self.options.timeout
        found = (
            Group(folder, tuple(tests), timeout=timeout, tags=tuple(sorted(tags[folder])), folder=folder)
            for folder, tests in scripts.items()
        )
        return Suite(name, tuple(found))

    def launch(self, script: Script, environment: Environment) -> Launch:
        test = self._test(script)
        # xfstests has a folder for each section, blktests one for each device, and one for tests without.
        within = ("", "nodev", self.options.section, *environment.variables.get("DISKS", "").split())
        folders = dict.fromkeys(posixpath.join(self.testdir, "results", each) for each in within)
        kept = tuple(f"{folder.rstrip('/')}/{test}.{end}" for folder in folders for end in _KEPT)
        variables = {**environment.variables, **self.options.environment}
        return Launch(("bash", "-c", script.run), variables, self.testdir, kept)

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> Judged:
        return Judged(*read_check(printed().splitlines(), self._test(script), code))

    def needs(self) -> Needs:
        return Needs(
            modules=self.options.modules,
            programs=("bash", "mkfs.ext4", "runuser", f"mkfs.{self.options.filesystem}", *self.options.programs),
            disks=3,
            disk_size=self.options.disk_size,
            files=self.options.space,
            place=_PLACE,
            udev=True,
            tree=(),
            set_up=(files("storlab.suites.adapters") / "check-set-up.sh").read_text("utf-8"),
            given={"CHECKOUT": self.testdir, "FSTYP": self.options.filesystem},
        )

    def expectations(self, source: str) -> Expectations:
        return Expectations()

    def _test(self, script: Script) -> str:
        return script.path.removeprefix(f"{self.testdir}/tests/")


@dataclass(frozen=True)
class CheckFile(Command):
    """A checkout that a suite file in TOML names, with what is to be run of it."""

    options: CheckOptions = CheckOptions(())

    @property
    def check(self) -> Check:
        """The same without the file."""
        return Check(self.testdir, self.options)

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        return self.check.groups(name, runfiles, installed)

    def launch(self, script: Script, environment: Environment) -> Launch:
        return self.check.launch(script, environment)

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> Judged:
        return self.check.judge(script, code, printed)

    def needs(self) -> Needs:
        return self.check.needs()
