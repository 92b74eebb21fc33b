"""Files of this machine that say what a suite is: runfiles, suite files, checkouts of xfstests and blktests, and lists.

What is wrong with them is known before any guest is started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from storlab.base.errors import Problem, StudyError, UserError
from storlab.base.reach import FOLDER
from storlab.base.reading import read_file
from storlab.model import Model
from storlab.run.permissions import NO_PERMISSIONS, Permissions, Want
from storlab.study.messages import explain
from storlab.study.toml_text import line_of, positions, read_toml
from storlab.suites.adapters.base import Adapter
from storlab.suites.adapters.check import CheckFile, CheckOptions
from storlab.suites.adapters.command import Command
from storlab.suites.adapters.zts import STF_SUITE, Zts, ZtsFile, ZtsOptions
from storlab.suites.check_text import TEST, chosen, groups_in, read_excludes, read_group_list
from storlab.suites.expectations import ExpectationFile, OwnEntry
from storlab.suites.places.kinds import OWN_TESTS
from storlab.suites.records.folder import Here, OwnKernel
from storlab.suites.run.wants import refuse_unpermitted_file, wants_of_file
from storlab.suites.runfile import Runfile, RunfileError, check_runfiles
from storlab.suites.suite_file import CheckTable, SuiteFile

_MOST = 4 * 1024**2  # bytes of a test or list
_LISTS = ("group.list", "group")


def choose(checkout: Path, wanted: CheckTable) -> list[tuple[str, tuple[str, ...]]]:
    if not os.access(checkout / "check", os.X_OK):
        raise UserError(f"{checkout} has no program `check`: name a checkout of xfstests or blktests")
    tests = tests_of(checkout)
    if not tests:
        raise UserError(f"{checkout}/tests has no tests: a checkout of xfstests must be built (`make`) first")
    for name in wanted.tests:
        if name not in tests:
            raise UserError(f"there is no test {name} in {checkout}/tests")
    known = {group for groups in tests.values() for group in groups}
    known |= {part for test in tests for part in (test.partition("/")[0], f"{test.partition('/')[0]}/all")}
    for group in (*wanted.groups, *wanted.exclude_groups):
        if group not in known:
            raise UserError(f"no test of {checkout} is in the group {group!r}; there are {', '.join(sorted(known))}")
    excluded = set(wanted.exclude)
    for path in wanted.exclude_files:
        excluded.update(read_excludes(_text(Path(path))))
    for name in wanted.exclude_lists:
        for folder in sorted((checkout / "tests").iterdir()):
            if (folder / name).is_file():
                excluded.update(
                    f"{folder.name}/{test.rpartition('/')[2]}" for test in read_excludes(_text(folder / name))
                )
    found = [test for test in chosen(tests, wanted.tests, wanted.groups, wanted.exclude_groups) if test not in excluded]
    if not found:
        raise UserError("no test is left to run")
    return [(test, tests[test]) for test in found]


def tests_of(checkout: Path) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for folder in sorted(each for each in (checkout / "tests").glob("*") if each.is_dir()):
        listed: dict[str, tuple[str, ...]] = {}
        for name in _LISTS:
            if (folder / name).is_file():
                listed = read_group_list(_text(folder / name))
                break
        for path in sorted(folder.iterdir()):
            test = f"{folder.name}/{path.name}"
            if not TEST.fullmatch(test) or not path.is_file() or not os.access(path, os.X_OK):
                continue
            if path.name in listed:
                found[test] = listed[path.name]
            elif (own := groups_in(_text(path))) is not None:
                found[test] = own
    return found


def _text(path: Path) -> str:
    try:
        return read_file(path, _MOST).decode(errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def words(written: Sequence[str] | None) -> list[str]:
    """Of an option that may be given more than once, each time with commas."""
    return [word.strip() for each in written or () for word in each.split(",") if word.strip()]


M = TypeVar("M", bound=Model)

MOST_RUNFILE = 4 * 1024**2  # bytes
_SUITE_FILE = ".toml"
IN_IMAGE = "/usr/share/zfs/"
"""What is below it is the image's, also if this machine has the same."""
_CHECK_HERE = "a checkout is run in guests: with --here, its own `check` does all there is to do"


def is_own(name: str) -> bool:
    """Whether a name means a file of this machine, and not one of the image."""
    return not name.startswith(IN_IMAGE) and Path(name).is_file()


def own_runfile(name: str) -> Runfile | None:
    """A runfile or suite file of this machine; ``None`` if there is none. Raises ``UserError`` if it can't be
    read.
    """
    if not is_own(name):
        return None
    path = Path(name)
    try:
        data = read_file(path, MOST_RUNFILE)
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from None
    if path.suffix == _SUITE_FILE:
        return Runfile(name, read_toml(data, name)[0], own=True)
    try:
        return Runfile(name, data.decode(), own=True)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RunfileError(name, line, "this is no UTF-8, so it is no runfile") from None


def own_adapter(
    names: Sequence[str],
    tests: Path | None = None,
    here: Here | None = None,
    permissions: Permissions = NO_PERMISSIONS,
) -> Adapter:
    """How the suite of these names is run. Raises ``UserError`` for what is wrong with files of this machine, and for
    what these want and may not.

    On this machine tests run where they lie, and in guests where they are copied to.
    """
    own = [found for name in names if (found := own_runfile(name)) is not None]
    check_runfiles([runfile for runfile in own if not runfile.name.endswith(_SUITE_FILE)])
    if here is None:
        adapter = adapter_of(own, tests, permissions=permissions)
    else:
        testdir = str(tests.resolve()) if tests is not None else ""
        options = ZtsOptions(runner=here.user, plain=tests is not None)
        adapter = run_by(adapter_of(own, tests, testdir, options, permissions), here.user)
        if isinstance(adapter, CheckFile):
            raise StudyError(adapter.file, [Problem("adapter", _CHECK_HERE, adapter.lines.get(("adapter",)))])
        if isinstance(adapter, Command) and not testdir:
            folder = folder_of(adapter) or Path(adapter.file).parent
            adapter = replace(adapter, testdir=str(folder.resolve()))
    if len(names) > 1 and isinstance(adapter, Command):
        raise UserError(f"{adapter.file}: a suite file stands alone: leave out the other names")
    return adapter


def adapter_of(
    runfiles: Sequence[Runfile],
    tests: Path | None,
    testdir: str = "",
    options: ZtsOptions | None = None,
    permissions: Permissions = NO_PERMISSIONS,
) -> Adapter:
    """How a suite from these files is run. ``tests``: a folder of this machine that is copied into each guest.

    Raises ``StudyError`` for what is wrong with a suite file.
    """
    suite_file = next((runfile for runfile in runfiles if runfile.name.endswith(_SUITE_FILE)), None)
    if suite_file is None:
        return Zts(testdir or (STF_SUITE if tests is None else OWN_TESTS), options or ZtsOptions())
    return read_suite_file(suite_file.text, suite_file.name, testdir or OWN_TESTS, tests, permissions)


def run_by(adapter: Adapter, user: str) -> Adapter:
    """The same with this user, who is there, in place of the one that guests get."""
    return replace(adapter, options=replace(adapter.options, runner=user)) if isinstance(adapter, ZtsFile) else adapter


def wants_of_files(names: Sequence[str]) -> tuple[Want, ...]:
    """What the suite files among these names want. Raises ``StudyError`` for what is wrong with them."""
    return tuple(want for file, spec, _ in _suite_files(names) for want in wants_of_file(spec, file))


def refuse_unpermitted_files(names: Sequence[str], permissions: Permissions) -> None:
    """Raise ``StudyError`` for what they want and may not, and for what is wrong with them."""
    for file, spec, lines in _suite_files(names):
        refuse_unpermitted_file(spec, file, lines, permissions)


def _suite_files(names: Sequence[str]) -> Iterator[tuple[str, SuiteFile, Mapping[tuple[str | int, ...], int]]]:
    for name in names:
        if name.endswith(_SUITE_FILE) and (found := own_runfile(name)) is not None:
            yield name, *_validated(SuiteFile, found.text, name)


def read_suite_file(
    text: str,
    name: str,
    testdir: str = OWN_TESTS,
    tests: Path | None = None,
    permissions: Permissions = NO_PERMISSIONS,
) -> Command:
    """A suite in TOML. ``tests``: in place of the folder that it names.

    Raises ``StudyError`` with file, line and key of all that is wrong, and of what it wants and may not.
    """
    spec, lines = _validated(SuiteFile, text, name)
    refuse_unpermitted_file(spec, name, lines, permissions)
    if spec.adapter == "check":
        return _of_checkout(CheckFile(spec, testdir, name, lines), tests)
    kind = ZtsFile if spec.adapter == "zts" else Command
    return kind(spec, testdir, name, lines)


def _of_checkout(suite: CheckFile, tests: Path | None) -> CheckFile:
    table, guests = suite.spec.check or CheckTable(), suite.spec.guests
    folder = tests or folder_of(suite)
    assert folder is not None, "the model asks for it"
    try:
        chosen = choose(folder, table)
    except UserError as error:
        line = suite.lines.get(("check",), suite.lines.get(("folder",)))
        raise StudyError(suite.file, [Problem("check", str(error), line)]) from None
    options = CheckOptions(
        tuple(chosen), table.section, table.fstyp, table.timeout or None, guests.disk_size,
        dict(suite.spec.environment), tuple(guests.modules), tuple(guests.programs), guests.space,
    )  # fmt: skip
    return replace(suite, options=options)


def read_own_expectations(path: Path) -> tuple[OwnEntry, ...]:
    """A list of what the user expects. Raises ``StudyError`` with file, line and key of all that is wrong."""
    try:
        text = read_toml(read_file(path, MOST_RUNFILE), str(path))[0]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    return _validated(ExpectationFile, text, str(path))[0].entries()


def _validated(model: type[M], text: str, name: str) -> tuple[M, Mapping[tuple[str | int, ...], int]]:
    raw = read_toml(text.encode(), name)[1]
    lines = positions(text)
    try:
        return model.model_validate(raw, context={FOLDER: Path(name).parent}), lines
    except ValidationError as error:
        problems = []
        for path, message in explain(error, model):
            key = tuple(part for at, part in enumerate(path) if part != "table" or not isinstance(path[at - 1], int))
            problems.append(Problem(".".join(map(str, key)), message, line_of(key, lines)))
        raise StudyError(name, problems) from None


def kernel_of(suite: Command) -> OwnKernel | None:
    guests = suite.spec.guests
    if guests.kernel is None:
        return None
    named = (guests.kernel, guests.kernel_modules, guests.rootfs)
    return OwnKernel(*(None if path is None else str(Path(path).resolve()) for path in named))


def folder_of(suite: Command) -> Path | None:
    if suite.spec.folder is None:
        return None
    folder = Path(suite.spec.folder)
    if not folder.is_dir():
        raise StudyError(suite.file, [Problem("folder", f"{folder} is no folder", suite.lines.get(("folder",)))])
    return folder
