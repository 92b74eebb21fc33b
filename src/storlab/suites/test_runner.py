"""What ``test-runner.py`` makes of its options: a suite from paths, a list of what would run, a runfile to edit.

Source: ``test-runner.py`` of OpenZFS 2.3.2, as it behaves. Where its behaviour is a slip, docs/reference/suites.md says
what is different here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from storlab.errors import UserError
from storlab.suites.installed import EXTENSIONS, Installed
from storlab.suites.model import Absent, Group, Outcome, Script, Suite
from storlab.suites.order import iteration_name
from storlab.suites.runfile import unique_folders
from storlab.suites.selection import Failures
from storlab.suites.texts.zts import read_results, report_name

BASEDIR = "/var/tmp/test_results"
TESTDIR = "/usr/share/zfs"
COMMAND_LINE = "command line"
"""Where a test that is named by its path stands."""


@dataclass(frozen=True)
class Around:
    """The options that say how tests are run that are named by their paths. Empty: none."""

    pre: str = ""
    pre_user: str = ""
    post: str = ""
    post_user: str = ""
    failsafe: str = ""
    failsafe_user: str = ""
    user: str = ""
    timeout: int = 60
    tags: tuple[str, ...] = ()


def suite_of_paths(
    name: str, paths: Sequence[str], around: Around, installed: Installed, testdir: str, *, grouped: bool
) -> Suite:
    """Tests by their absolute paths: files each by itself; folders with all in them, ``grouped`` as a group each."""
    reader = _Reader(around, installed, testdir)
    for path in sorted(paths):
        below = f"{path.rstrip('/')}/"
        files = sorted(file for file in installed.executables if file.startswith(below))
        if not files:
            reader.single(path)
        elif grouped:
            for folder in sorted({posixpath.dirname(file) for file in files}):
                reader.group(folder, [file for file in files if posixpath.dirname(file) == folder])
        else:
            for file in files:
                reader.single(file)
    ordered = sorted(reader.singles, key=lambda each: each.name) + sorted(reader.groups, key=lambda each: each.name)
    folders = unique_folders([group.name for group in ordered])
    return Suite(name, tuple(replace(group, folder=folders[group.name]) for group in ordered), tuple(reader.absent))


class _Reader:
    """Takes in paths; keeps groups and what is absent."""

    def __init__(self, around: Around, installed: Installed, testdir: str) -> None:
        self._around, self._installed, self._testdir = around, installed, testdir
        self.singles: list[Group] = []
        self.groups: list[Group] = []
        self.absent: list[Absent] = []

    def single(self, path: str) -> None:
        self._add(path, posixpath.dirname(path), [path], self.singles)

    def group(self, folder: str, files: Sequence[str]) -> None:
        scripts = {posixpath.join(folder, each) for each in (self._around.pre, self._around.post) if each}
        around = {script + end for script in scripts for end in EXTENSIONS}
        self._add(folder, folder, [file for file in files if file not in around], self.groups)

    def _add(self, name: str, folder: str, files: Sequence[str], kept: list[Group]) -> None:
        around, scripts = self._around, {}
        for role, written, below in (
            ("pre", around.pre, folder),
            ("post", around.post, folder),
            ("failsafe", around.failsafe, self._testdir),
        ):
            path = posixpath.normpath(posixpath.join(below, written))
            program = self._installed.program(path)
            if written and program is None:
                return self._leave_out(name, f"{role}: {self._installed.why_not(path)}", len(files))
            user = getattr(around, f"{role}_user")
            scripts[role] = Script(path, user, program or "") if written else None
        for key in ("pre_user", "user", "post_user", "failsafe_user"):
            if (user := getattr(around, key)) and user not in self._installed.users:
                return self._leave_out(name, f"{key}: unknown user {user!r}", len(files))
        tests = []
        for file in files:
            program = self._installed.program(file)
            if program is None:
                self._leave_out(file, self._installed.why_not(file), 1)
            else:
                tests.append(Script(file, around.user, program))
        if tests:
            limit = float(around.timeout) or None
            kept.append(
                Group(
                    name, tuple(tests), scripts["pre"], scripts["post"], scripts["failsafe"], limit, tuple(around.tags)
                )
            )
        return None

    def _leave_out(self, name: str, problem: str, tests: int) -> None:
        self.absent.append(Absent(COMMAND_LINE, f"{name} is left out: {problem}", tests))


def failed_only(suite: Suite, log: str, source: str) -> Suite:
    """The tests that a ``log`` or console says failed or were killed; all of a group whose set-up did.

    The log may be of tests that lay elsewhere, such as in a source tree: of the ZFS Test Suite's, the path below the
    suite's tests counts. Raises ``UserError`` where it says so of none.
    """
    results = [each for each in read_results(log.splitlines()) if _failed(each.outcome)]
    if not results:
        raise UserError(f"{source}: it has no line of a test that failed")
    bad = Failures(frozenset((each.identifier, report_name(each.path)) for each in results), by_identifier=True)
    groups = []
    for group in suite.groups:
        whole = bad.has(group, group.pre)
        tests = tuple(test for test in group.tests if whole or bad.has(group, test))
        if tests:
            groups.append(replace(group, tests=tests))
    if not groups:
        raise UserError(f"{source}: none of the tests that failed there is in {suite.name}")
    return replace(suite, groups=tuple(groups), absent=())


def _failed(outcome: Outcome) -> bool:
    return outcome.classic in (Outcome.FAIL, Outcome.KILLED)


def dry_run(suite: Suite, outputdir: str) -> str:
    """Every script that would run, in order, as the runner's option ``-d`` describes it."""
    return "\n".join(_described(suite.groups, outputdir))


def _described(groups: Iterable[Group], outputdir: str) -> Iterator[str]:
    for group in groups:
        for script in (group.pre, *group.tests, group.post):
            if script is not None:
                folder = output_folder(group, script)
                about = {
                    "Pathname": script.path,
                    "Identifier": group.identifier or None,
                    "Outputdir": f"{outputdir}/{folder}",
                    "Timeout": int(group.timeout or 0),
                    "User": script.user,
                }
                yield "".join(f"{key}: {value}\n" for key, value in about.items())


def output_folder(group: Group, script: Script) -> str:
    """Where the runner puts what a script prints, below its output directory."""
    folder = group.folder.partition("/")[2] if group.iteration > 1 else group.folder
    single = script in group.tests and group.name.removesuffix(iteration_name(group.iteration)) == script.path
    return folder if single else f"{folder}/{posixpath.basename(script.path)}"


def template(suite: Suite) -> str:
    """A runfile that is this suite, to edit and to use later."""
    return "\n".join(_template(suite))


def _template(suite: Suite) -> Iterator[str]:
    yield from ("[DEFAULT]", "outputdir = " + BASEDIR, "quiet = False", "timeout = 60", "")
    for group in suite.groups:
        yield f"[{group.name}]"
        if group.name != group.tests[0].path:
            yield f"tests = {[posixpath.basename(test.path) for test in group.tests]}"
        for role, script in (("pre", group.pre), ("post", group.post), ("failsafe", group.failsafe)):
            if script is not None:
                path = posixpath.basename(script.path) if role != "failsafe" else script.path
                if role != "failsafe" and group.name == group.tests[0].path:
                    path = script.path
                yield f"{role} = {path}"
                yield f"{role}_user = {script.user}"
        yield f"timeout = {int(group.timeout or 0)}"
        yield f"user = {group.tests[0].user}"
        if group.tags:
            yield f"tags = {list(group.tags)}"
        yield ""
