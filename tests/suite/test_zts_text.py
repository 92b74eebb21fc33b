"""What the ZFS Test Suite's runner prints, what is expected of its tests, and which programs these call."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storlab.errors import ParseError
from storlab.suite.calls import by_program, functions_that_call, parse_calls, pattern_of
from storlab.suite.expectations import expected, read_expectations
from storlab.suite.model import Expectation, Group, Outcome, Script, Suite
from storlab.suite.zts_text import console_line, log_line, passed, read_results, report, report_name, summary
from suite.samples import GOLDEN, REPORT, attempt


def test_a_line_is_80_columns_with_its_end_padded_or_longer() -> None:
    line = console_line(attempt("pool/create"), "tester")
    begin = "Test: /usr/share/zfs/zfs-tests/tests/functional/pool/create (run as root) "
    assert line == begin + "[00:01] [PASS]\n"
    short = attempt("x", Outcome.SKIP, user="", identifier="Linux", elapsed=3725.9)
    line = console_line(short, "tester")
    assert line == "Test (Linux): /usr/share/zfs/zfs-tests/tests/functional/x (run as tester) [62:05] [SKIP]\n"
    line = console_line(replace(attempt("x"), path="/t/x"), "tester")
    assert line == "Test: /t/x (run as root)" + " " * 41 + "[00:01] [PASS]\n" and len(line) == 80


def test_outcomes_that_runners_do_not_know_are_shown_as_killed() -> None:
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


def test_tables_of_expectations_are_read_and_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_expectations(REPORT, "report.py")
    assert found.known == {
        "pool/create": Expectation("pool/create", Outcome.FAIL, "https://github.com/openzfs/zfs/issues/17", True),
        "pool/rename": Expectation("pool/rename", Outcome.SKIP, "Some day", True),
        "quota/setup": Expectation("quota/setup", Outcome.SKIP, "Not applicable", True),
    }
    assert set(found.maybe) == {"acl/allow", "disk/write", "quota/one"}
    assert capsys.readouterr().out == ""


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
    results = [
        attempt("pool/create", Outcome.PASS),
        attempt("pool/rename", Outcome.SKIP),
        attempt("pool/destroy", Outcome.FAIL),
        attempt("acl/allow", Outcome.CRASHED),
        attempt("quota/setup", Outcome.SKIP),
        attempt("quota/one", Outcome.SKIP),  # because its set-up is skipped
    ]
    printed = (GOLDEN / "zts-report.printed").read_text()
    assert report(results, read_expectations(REPORT, "report.py")) == printed


def test_only_the_outcome_that_is_expected_is_expected() -> None:
    tables = read_expectations(REPORT, "report.py")
    assert expected(attempt("pool/create", Outcome.FAIL), "pool/create", tables) is not None
    assert expected(attempt("pool/create", Outcome.KILLED), "pool/create", tables) is None
    assert expected(attempt("other/one", Outcome.SKIP), "other/one", tables) is None


def test_a_test_is_called_by_its_path_below_the_suite_s() -> None:
    assert report_name("/usr/share/zfs/zfs-tests/tests/functional/a/b") == "a/b"
    assert report_name("/usr/share/zfs/zfs-tests/tests/perf/regression/a") == "a"
    assert report_name("/home/me/a") == "/home/me/a"


_WORDS = st.text("abc_/-.", min_size=1, max_size=30)


@given(
    _WORDS,
    _WORDS.filter(lambda word: ")" not in word),
    st.sampled_from(Outcome),
    st.floats(0, 1e6),
    st.text("LinuxFreeBSD", max_size=5),
)
def test_what_is_printed_is_read_back(path: str, user: str, outcome: Outcome, elapsed: float, identifier: str) -> None:
    of = attempt(path, outcome, user=user, elapsed=elapsed, identifier=identifier)
    (result,) = read_results(["noise", console_line(of, "tester"), "Test: nonsense [PASS]"])
    assert (result.path, result.user, result.identifier) == (of.path, user, identifier)
    assert (result.outcome, result.elapsed) == (outcome.classic, int(elapsed))
    assert passed([result]) == (outcome in (Outcome.PASS, Outcome.SKIP))


LIBRARY = (GOLDEN / "library.ksh").read_text()


def test_a_function_needs_what_it_calls_and_what_the_functions_that_it_calls_need() -> None:
    assert functions_that_call(LIBRARY, ["xsum", "jq"]) == {
        "sum_of": {"xsum"},
        "same_content": {"xsum"},
        "copy": {"xsum", "jq"},
    }
    assert functions_that_call(LIBRARY, []) == {}
    library = "function a\n{\n\tb\n}\nfunction b\n{\n\ta\n\tjq\n}\n"
    assert functions_that_call(library, ["jq"]) == {"a": {"jq"}, "b": {"jq"}}


@given(st.text(alphabet="ab \t\n(){};|&$\"'#_function", max_size=400), st.sets(st.sampled_from("ab"), min_size=1))
def test_a_library_of_any_text_is_read(text: str, programs: set[str]) -> None:
    assert all(needed <= programs for needed in functions_that_call(text, programs).values())


def test_a_long_chain_of_functions_and_a_long_row_of_quotes_are_followed() -> None:
    chain = "".join(f"function f{number}\n{{\n\tlog_must f{number + 1}\n}}\n" for number in range(5000))
    quotes = f"function q\n{{\n\tuser_run {chr(39) * 200_000}\n}}\n"
    found = functions_that_call(chain + quotes, ["f5000"])
    assert len(found) == 5000 and found["f0"] == {"f5000"}


def test_programs_that_a_script_calls_are_found_by_name() -> None:
    lines = ["/t/a.ksh:3:log_must jq .", "/t/a.ksh:4:zed -f", "/t/b.cfg:1:$(jq", "/t/c:1:jqx"]
    assert parse_calls(lines, ["jq", "zed"]) == {"/t/a.ksh": {"jq", "zed"}, "/t/b.cfg": {"jq"}}


def test_grep_finds_calls_where_a_shell_expects_a_command_only(tmp_path: Path) -> None:
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
