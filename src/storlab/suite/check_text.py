"""What ``check`` of xfstests and of blktests prints, and how their checkouts say which tests are in which groups.

Sources: ``check`` and ``common/rc`` of xfstests, ``check`` of blktests, as of 2024.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from storlab.suite.model import Outcome

TEST = re.compile(r"[A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_.-]{1,64}")
_LINE = re.compile(r"(?P<test>[A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_.-]{1,64})(?: =>| \(|\s|\Z)")
_STATUS = re.compile(r"\[(?P<status>passed|failed|not run|expunged)(?P<more>[^\]]*)\](?P<why>.*)")
_BEGIN = re.compile(r"^_begin_fstest +(?P<groups>[^#\n]+)", re.MULTILINE)
_ENDED = re.compile(r"(?:Ran|Not run|Failures|Failed \d|Passed all)\b")
_SEE = re.compile(r"\(see \S*/(?P<name>[^/\s)]+)\)")  # in the guest, which is gone: the file is kept beside the output
_LONGEST = 4096  # characters of a line that is looked at


def read_check(lines: Iterable[str], test: str, code: int | None) -> tuple[Outcome, str]:
    """What came of one test, by all that ``check`` printed of it and its exit status, and why."""
    skipped: str | None = None
    failed: str | None = None
    passed = False
    last = ""  # the status on the line before, whose reason may stand on this one
    for written in lines:
        line = written[:_LONGEST].rstrip()
        if last and line.startswith("    ") and not line.lstrip().startswith("runtime"):
            if last == "not run" and not skipped:
                skipped = line.strip()
            elif last == "failed" and failed == "":
                failed = "output mismatch" if line.lstrip().startswith("--- ") else line.strip()
        found = _LINE.match(line)
        if found is None or found["test"] != test:
            if line.startswith("Failures:") and test in line.split():
                failed = failed or ""
            elif line.startswith("Ran:") and test in line.split():
                passed = True
            continue
        status = _STATUS.search(line)
        last = status["status"] if status is not None else ""
        if status is None:
            mark = next((each for each in ("output mismatch", "_check_") if each in line), None)
            if mark is not None:
                failed = failed or line[line.index(mark) :]
        elif last in ("not run", "expunged"):
            skipped = status["why"].strip(" -:") or ("it is expunged" if last == "expunged" else "")
        elif last == "failed":
            failed = failed or f"{status['more'].strip(', ')} {status['why'].strip(' -')}".strip()
        else:
            passed = True
    if failed is not None:
        return Outcome.FAIL, _SEE.sub(r"(see \g<name>)", failed)
    if code != 0:
        return Outcome.FAIL, f"check ended with status {code}" if code is not None else ""
    if skipped is not None:
        return Outcome.SKIP, skipped
    return (Outcome.PASS, "") if passed else (Outcome.FAIL, "check printed no result of it")


def read_group_list(text: str) -> dict[str, tuple[str, ...]]:
    """Test → its groups, by a ``group.list`` or ``group`` file of xfstests."""
    found = {}
    for line in text.splitlines():
        name, *groups = line.partition("#")[0].split() or [""]
        if name and TEST.fullmatch(f"x/{name}"):
            found[name] = tuple(groups)
    return found


def groups_in(text: str) -> tuple[str, ...] | None:
    """The groups that a test itself names; ``None`` where it names none. blktests knows ``quick`` only."""
    if (found := _BEGIN.search(text)) is not None:
        return tuple(found["groups"].split())
    if re.search(r"^(?:DESCRIPTION|QUICK|TIMED|CAN_BE_ZONED)=", text, re.MULTILINE):
        return ("quick",) if re.search(r"^QUICK=1", text, re.MULTILINE) else ()
    return None


def read_excludes(text: str) -> list[str]:
    """Tests that a file of excluded ones names, one a line."""
    return [line.split()[0] for line in (each.partition("#")[0] for each in text.splitlines()) if line.strip()]


def chosen(
    tests: Mapping[str, Collection[str]], named: Collection[str], groups: Collection[str], without: Collection[str]
) -> list[str]:
    """Tests by name, or in one of these groups, and in none of those ``without``; all where nothing is named.

    A directory is a group of its own, as for blktests.
    """

    def kinds(test: str) -> set[str]:
        return {*tests[test], test.partition("/")[0], f"{test.partition('/')[0]}/all"}

    def wanted(test: str) -> bool:
        return (not named and not groups) or test in named or bool(kinds(test) & set(groups))

    return [test for test in sorted(tests) if wanted(test) and not kinds(test) & set(without)]
