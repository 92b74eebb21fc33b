"""Tests that were asked for and have no result: for programs that only count tests, each must be one that failed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from storlab.suites.model import Absent
from storlab.suites.records import SuiteRecord
from storlab.suites.report.view import View
from storlab.suites.texts.zts import test_name

_NOT_FOUND = "not found"  # the group of tests whose names are not known
_NO_RESULT = "it has no result"


def tests_without_result(view: View) -> dict[str, dict[str, str]]:
    """Group → test → why it has no result. A test is called what it is called where it has one: it is the same test."""
    asked = view.run.asked
    groups: dict[str, dict[str, str]] = {}
    for group, path in view.without_result:
        groups.setdefault(group, {})[test_name(path, asked.testdir)] = _NO_RESULT
    for group, name, why in _absent(asked):
        groups.setdefault(group, {}).setdefault(name, why)
    return groups


def _absent(asked: SuiteRecord) -> Iterator[tuple[str, str, str]]:
    """Group, name and reason of each test that was not found; as many as the exit status and the text count."""
    by_folder = {posixpath.dirname(test.path): group.name for group in asked.groups for test in group.tests}
    for each in asked.absent:
        for path in each.paths:
            folder = posixpath.dirname(path)
            group = by_folder.get(folder) or folder.removeprefix(f"{asked.testdir}/")
            yield group, test_name(path, asked.testdir), str(each)
        for name in _unnamed(each):
            yield _NOT_FOUND, name, str(each)


def _unnamed(absent: Absent) -> Iterator[str]:
    """What to call the tests whose paths are not known: by the place that asks for them."""
    if absent.paths:
        return
    for number in range(1, absent.tests + 1):
        yield f"{absent} ({number} of {absent.tests})" if absent.tests > 1 else str(absent)
