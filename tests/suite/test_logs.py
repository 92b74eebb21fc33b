"""Logs of suites that other programs wrote; and what the ZFS Test Suite's runner prints, expects and calls."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storlab.base.errors import ParseError
from storlab.suites.expectations import expected, read_expectations
from storlab.suites.model import Expectation, Group, Outcome, Script, Suite, report_name
from storlab.suites.records.sources import LogRun, read_log, zts_lines
from storlab.suites.run.plan import by_program, functions_that_call, parse_calls, pattern_of
from storlab.suites.zts_text import console_line, log_line, read_results, report, summary
from study.program import call
from suite.samples import GOLDEN, REPORT, attempt

LOGS = sorted(each for each in (GOLDEN / "logs").glob("*.log"))
STAMP = re.compile(r"^2026-05-22T16:\S+Z ", re.MULTILINE)


def said(runs: list[LogRun]) -> str:
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
def test_until_june_2018_check_did_not_list_what_was_not_run_among_what_ran(
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


def test_a_line_is_80_columns_with_its_end_padded_or_longer_and_lost_tests_were_killed() -> None:
    line = console_line(attempt("pool/create"), "tester")
    begin = "Test: /usr/share/zfs/zfs-tests/tests/functional/pool/create (run as root) "
    assert line == begin + "[00:01] [PASS]\n"
    short = attempt("x", Outcome.SKIP, user="", identifier="Linux", elapsed=3725.9)
    line = console_line(short, "tester")
    assert line == "Test (Linux): /usr/share/zfs/zfs-tests/tests/functional/x (run as tester) [62:05] [SKIP]\n"
    line = console_line(replace(attempt("x"), path="/t/x"), "tester")
    assert line == "Test: /t/x (run as root)" + " " * 41 + "[00:01] [PASS]\n" and len(line) == 80
    assert "[KILLED]" in console_line(attempt("x", Outcome.CRASHED), "t")
    assert "KILLED\t   2" in summary([attempt("x", Outcome.CRASHED), attempt("y", Outcome.HUNG)], 1, "/l")


def test_the_summary_and_the_times_of_lines_are_the_runner_s() -> None:
    outcomes = [Outcome.PASS] * 12 + [Outcome.FAIL, Outcome.SKIP, Outcome.KILLED]
    assert summary([attempt("x", each) for each in outcomes], 3725.4, "/var/tmp/r") == (
        "\nResults Summary\nPASS\t  12\nFAIL\t   1\nSKIP\t   1\nKILLED\t   1\n"
        "\nRunning Time:\t01:02:05\nPercent passed:\t80.0%\nLog directory:\t/var/tmp/r\n"
    )
    assert summary([], 1, "/x") == ""
    assert log_line(datetime(2026, 1, 2, 3, 4, 5, 678_900), b"a\xff\0b") == b"03:04:05.67 a\xff\0b\n"


def test_tables_of_expectations_are_read_and_not_run_and_expect_one_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_expectations(REPORT, "report.py")
    assert found.known == {
        "pool/create": Expectation("pool/create", Outcome.FAIL, "https://github.com/openzfs/zfs/issues/17", True),
        "pool/rename": Expectation("pool/rename", Outcome.SKIP, "Some day", True),
        "quota/setup": Expectation("quota/setup", Outcome.SKIP, "Not applicable", True),
    }
    assert set(found.maybe) == {"acl/allow", "disk/write", "quota/one"} and capsys.readouterr().out == ""
    assert expected(attempt("pool/create", Outcome.FAIL), "pool/create", found) is not None
    assert expected(attempt("pool/create", Outcome.KILLED), "pool/create", found) is None
    assert expected(attempt("other/one", Outcome.SKIP), "other/one", found) is None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("known = (", "report.py:1: it is not Python"),
        ("known = 3\n", "report.py: it has neither"),
        ("\nknown = {'a': ['FAIL', f()]}\n", "report.py:2: the entry of 'a' can't be understood"),
        ("known = {'a': ['LOST', 1]}\n", "report.py:1: the entry of 'a' can't be understood"),
        ("known = {'a': 'FAIL'}\n", "report.py:1: an entry of `known` is not of the form"),
        ("known = {'a': ['FAIL', True]}\n", "report.py:1: the entry of 'a' can't be understood"),
    ],
)
def test_tables_that_can_not_be_understood_are_refused_with_their_line(source: str, says: str) -> None:
    with pytest.raises(ParseError) as refused:
        read_expectations(source, "report.py")
    assert str(refused.value).startswith(says)


def test_what_was_expected_and_what_was_not_are_listed_apart() -> None:
    came = {"pool/create": Outcome.PASS, "pool/destroy": Outcome.FAIL, "acl/allow": Outcome.CRASHED}
    skipped = ("pool/rename", "quota/setup", "quota/one")  # the last because its set-up is skipped
    results = [attempt(path, outcome) for path, outcome in (came | dict.fromkeys(skipped, Outcome.SKIP)).items()]
    printed = (GOLDEN / "zts-report.printed").read_text()
    assert report(results, read_expectations(REPORT, "report.py")) == printed


def test_a_test_is_called_by_its_path_below_the_suite_s() -> None:
    assert report_name("/usr/share/zfs/zfs-tests/tests/functional/a/b") == "a/b"
    assert report_name("/usr/share/zfs/zfs-tests/tests/perf/regression/a") == "a"
    assert report_name("/home/me/a") == "/home/me/a"


_WORDS = st.text("abc_/-.", min_size=1, max_size=30)


_USERS = _WORDS.filter(lambda word: ")" not in word)


@given(_WORDS, _USERS, st.sampled_from(Outcome), st.floats(0, 1e6), st.text("LinuxFreeBSD", max_size=5))
def test_what_is_printed_is_read_back(path: str, user: str, outcome: Outcome, elapsed: float, identifier: str) -> None:
    of = attempt(path, outcome, user=user, elapsed=elapsed, identifier=identifier)
    (result,) = read_results(["noise", console_line(of, "tester"), "Test: nonsense [PASS]"])
    assert (result.path, result.user, result.identifier) == (of.path, user, identifier)
    assert (result.outcome, result.elapsed) == (outcome.classic, int(elapsed))


LIBRARY = (GOLDEN / "library.ksh").read_text()


def test_functions_need_what_those_that_they_call_need_however_long_the_chain() -> None:
    found = functions_that_call(LIBRARY, ["xsum", "jq"])
    assert found == {"sum_of": {"xsum"}, "same_content": {"xsum"}, "copy": {"xsum", "jq"}}
    assert functions_that_call(LIBRARY, []) == {}
    library = "function a\n{\n\tb\n}\nfunction b\n{\n\ta\n\tjq\n}\n"
    assert functions_that_call(library, ["jq"]) == {"a": {"jq"}, "b": {"jq"}}
    chain = "".join(f"function f{number}\n{{\n\tlog_must f{number + 1}\n}}\n" for number in range(5000))
    quotes = f"function q\n{{\n\tuser_run {chr(39) * 200_000}\n}}\n"
    found = functions_that_call(chain + quotes, ["f5000"])
    assert len(found) == 5000 and found["f0"] == {"f5000"}


@given(st.text(alphabet="ab \t\n(){};|&$\"'#_function", max_size=400), st.sets(st.sampled_from("ab"), min_size=1))
def test_a_library_of_any_text_is_read(text: str, programs: set[str]) -> None:
    assert all(needed <= programs for needed in functions_that_call(text, programs).values())


def test_programs_that_a_script_calls_are_found_by_name_where_a_shell_expects_a_command_only(tmp_path: Path) -> None:
    lines = ["/t/a.ksh:3:log_must jq .", "/t/a.ksh:4:zed -f", "/t/b.cfg:1:$(jq", "/t/c:1:jqx"]
    assert parse_calls(lines, ["jq", "zed"]) == {"/t/a.ksh": {"jq", "zed"}, "/t/b.cfg": {"jq"}}
    script = tmp_path / "a.ksh"
    calls = (
        "user_run tester jq", "jq .", "\tjq", "x | jq -r", "log_must jq", "y=$(jq a)", "log_must eval \"jq 'b'\"",
        "`jq`", "a; jq;",
    )  # fmt: skip
    others = ("echo jq", "# the jq", "jqx", "xjq", "x=jq", "-exec /jq")
    script.write_text("\n".join(calls + others))
    found = subprocess.run(["grep", "-cE", pattern_of(["jq", "c++"]), script], capture_output=True, text=True)
    assert int(found.stdout) == len(calls)


def test_a_test_needs_what_its_folders_set_up_and_settings_call_but_not_what_a_library_beside_it_could() -> None:
    group = Group("/t/g", tuple(Script(f"/t/g/{name}", "", f"/t/g/{name}.ksh") for name in ("one", "two")))
    calls = {"/t/g/one.ksh": {"jq"}, "/t/g/setup.ksh": {"zed"}, "/t/g/lib.kshlib": {"pax"}, "/t/h/g.cfg": {"perf"}}
    assert by_program(Suite("s", (group,)), calls) == {"jq": ["/t/g/one"], "zed": ["/t/g/one", "/t/g/two"]}
