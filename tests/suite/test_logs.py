"""Logs of suites that other programs wrote: each of ``golden/logs`` with what it says; and what says too little."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from storlab.errors import ParseError
from storlab.records.suite.logs import LogRun, read_log, zts_lines
from storlab.suite.zts_text import read_results
from study.program import call

GOLDEN = Path(__file__).parent / "golden"
LOGS = sorted(each for each in (GOLDEN / "logs").glob("*.log"))
STAMP = re.compile(r"^2026-05-22T16:\S+Z ", re.MULTILINE)


def said(runs: list[LogRun]) -> str:
    """All that is read, a line each."""
    lines = []
    for number, run in enumerate(runs, 1):
        for name, tries in sorted(run.tests.items()):
            came = (f"{each.outcome}{'' if each.elapsed is None else f' {each.elapsed:g} s'}" for each in tries)
            lines.append(f"{number}: {name}: {', '.join(came)}\n")
        lines += [f"{number}: {each.kind}: {each.count} {' '.join(each.names)}".rstrip() + "\n" for each in run.gaps]
    return "".join(lines)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_log_is_read_as_what_it_says(log: Path) -> None:
    assert said(read_log(log.read_bytes(), log.name)) == log.with_suffix(".results").read_text()


BEFORE: dict[str, Callable[[int], str]] = {
    "GitHub, downloaded": lambda at: f"2026-05-22T16:09:{at % 60:02}.1234567Z ",
    "gh run view": lambda at: f"zts\tRun tests\t2026-05-22T16:09:{at % 60:02}.1234567Z ",
    "GitLab": lambda at: f"2026-05-22T16:09:{at % 60:02}.123456Z 00O ",
    "Jenkins": lambda at: f"[2026-05-22T16:09:{at % 60:02}.123Z] ",
    "syslog": lambda at: f"May 22 16:09:{at % 60:02} lab1 runner[812]: ",
    "Jenkins, without a date": lambda at: f"16:09:{at % 60:02}  ",
    "dmesg -T": lambda at: f"[Fri May 22 16:09:{at % 60:02} 2026] ",
    "the kernel, by journalctl": lambda at: f"May 22 16:09:{at % 60:02} lab1 kernel: ",
    "colours": lambda at: "\x1b[32m" if at % 2 else "\x1b[0;1m",
    "mail": lambda at: "> ",
}


@pytest.mark.parametrize("name", ["zts-github-before.log", "xfstests-before.log", "kselftest.log"])
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_what_ci_puts_before_lines_changes_nothing(name: str, before: Callable[[int], str]) -> None:
    plain = STAMP.sub("", (GOLDEN / "logs" / name).read_text())
    text = "".join(f"{before(at)}{line}\n" for at, line in enumerate(plain.splitlines()))
    assert said(read_log(text.encode(), name)) == (GOLDEN / "logs" / name).with_suffix(".results").read_text()
    if name.startswith("xfstests"):  # whose list of all tests may be long
        many = " ".join(f"generic/{number}" for number in range(900))
        assert len(read_log(f"{text}{before(1)}Ran: {many}\n".encode(), name)[-1].tests) == 900
    if name.startswith("zts"):
        assert len(list(read_results(zts_lines(text.encode())))) == 6  # as --failed-of and -l read it


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("zts-results.txt", "counts 1246 results, and it names 0, so which tests passed is not in it: give the whole "
         "console, not a quiet one, or `log` of /var/tmp/test_results/20260522T160938"),
        ("zts-quiet.log", "counts 5 results, and it names 1"),
        ("zts-readme-2018.txt", "its summary counts 1181 results, and it names 2, so which tests passed is not in it"),
        ("zts-around.txt", "names (2), all are set-ups and clean-ups, and none is a test: give the whole console"),
        ("zts-behind.log", ":1: a result stands behind something unknown"),
        ("xfstests-lost-lines.log", ":4: 'Failed 1 of 2 tests', but 0 are named: lines are missing"),
        ("two-programs.log", ":1: a result stands behind something unknown: lines of several programs (vm-1, vm-2)"),
        ("prose.txt", "no result of a test in a form that is read: the console or log of the ZFS Test Suite's runner"),
    ],
)  # fmt: skip
def test_a_log_that_says_too_little_is_refused_with_what_to_give_instead(name: str, says: str) -> None:
    with pytest.raises(ParseError) as refused:
        read_log((GOLDEN / "no-logs" / name).read_bytes(), name)
    assert says in str(refused.value) and str(refused.value).startswith(name)


@pytest.mark.parametrize(
    ("name", "lists", "refused"),
    [
        ("2024", "Ran: a/1 a/2\nNot run: a/2\nPassed all 2 tests\n", False),
        ("2016", "Ran: a/1\nNot run: a/2\nPassed all 1 tests\n", False),
        ("2024", "Ran: a/1\nNot run: a/2\nPassed all 1 tests\n", True),
        ("2016", "Ran: a/1 a/2\nNot run: a/2 a/3\nPassed all 2 tests\n", True),
        ("2016", "Ran: a/1\nNot run: a/2\nFailures: a/3\nFailed 1 of 1 tests\n", True),
    ],
)
def test_until_june_2018_check_did_not_list_among_those_that_ran_what_was_not_run(
    name: str, lists: str, refused: bool
) -> None:
    text = f"Mon Apr  4 10:40:00 UTC {name}\n{lists}".encode()
    if refused:
        with pytest.raises(ParseError, match="lines are of another run"):
            read_log(text, "check.log")
    else:
        assert said(read_log(text, "check.log")) == "1: a/1: PASS\n1: a/2: SKIP\n"


def test_logs_are_compared_and_one_that_is_cut_off_or_compares_nothing_is_no_success() -> None:
    def compared(before: str, after: str) -> tuple[int | str | None, str]:
        ran = call("suite", "compare", str(GOLDEN / "logs" / before), str(GOLDEN / "logs" / after))
        return ran.status, " ".join(ran.output.split())

    status, text = compared("xfstests-before.log", "xfstests-after.log")
    assert status in (0, None) and "1 undecided, 6 unchanged." in text and "generic/003 FAIL PASS" in text
    status, text = compared("zts-github-before.log", "zts-github-after.log")
    assert status == 4 and "zfs_destroy_001_pos PASS no result" in text and "no result of 1 test that it names" in text
    status, text = compared("xfstests-cut.log", "xfstests-after.log")
    assert status == 4 and "ends before the summary of check, so tests may be missing." in text
    status, text = compared("kunit.log", "blktests.log")
    assert status == 4 and "No test passed or failed on both sides, so nothing was compared." in text
    history = call("suite", "history", str(GOLDEN / "logs" / "xfstests-check.log"))
    assert "generic/475 1 of 2" in " ".join(history.output.split())  # both runs that the file has


def test_a_line_that_only_begins_like_one_of_tap_is_none() -> None:
    with pytest.raises(ParseError, match="no result of a test"):
        read_log(b"TAP version 1A\n", "console.log")
