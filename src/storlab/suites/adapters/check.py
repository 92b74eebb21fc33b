"""A checkout of xfstests or blktests, or any suite in their form: tests that ``check`` runs one at a time."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from storlab.suites.adapters.base import Adapter, Launch, Needs
from storlab.suites.adapters.command import Command
from storlab.suites.check_text import read_check
from storlab.suites.groups import Installed
from storlab.suites.model import Group, Outcome, Script, Suite
from storlab.suites.runfile import Runfile

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
class Check(Adapter):
    """One checkout, copied to ``testdir`` in each guest."""

    testdir: str
    options: CheckOptions = CheckOptions(())

    @property
    def name(self) -> str:
        return "check"

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

    def launch(self, script: Script, variables: Mapping[str, str]) -> Launch:
        # xfstests has a folder for each section, blktests one for each device, and one for tests without.
        within = ("", "nodev", self.options.section, *variables.get("DISKS", "").split())
        folders = dict.fromkeys(posixpath.join(self.testdir, "results", each) for each in within)
        kept = tuple(f"{folder.rstrip('/')}/{self._test(script)}.{end}" for folder in folders for end in _KEPT)
        return Launch(("bash", "-c", script.run), {**variables, **self.options.environment}, self.testdir, kept)

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> tuple[Outcome, str]:
        return read_check(printed().splitlines(), self._test(script), code)

    def needs(self) -> Needs:
        options = self.options
        programs = ("bash", "mkfs.ext4", "runuser", f"mkfs.{options.filesystem}", *options.programs)
        given = {"CHECKOUT": self.testdir, "FSTYP": options.filesystem}
        return Needs(programs, 3, options.disk_size, "check-set-up.sh", options.modules, options.space, given=given)

    def _test(self, script: Script) -> str:
        return script.path.removeprefix(f"{self.testdir}/tests/")


@dataclass(frozen=True)
class CheckFile(Check, Command):
    """A checkout that a suite file in TOML names, with what is to be run of it."""
