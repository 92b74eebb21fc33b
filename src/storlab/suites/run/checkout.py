"""A checkout of xfstests or blktests on this machine: its tests and their groups, and what options choose of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from storlab.errors import UserError
from storlab.reading import read_file
from storlab.suites.suite_file import CheckTable
from storlab.suites.texts.check_text import TEST, chosen, groups_in, read_excludes, read_group_list

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
