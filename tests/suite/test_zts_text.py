"""What the ZFS Test Suite's runner and its report print, and what is expected of tests."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.suite.expectations import expected, read_expectations
from storlab.suite.model import Expectation, Outcome
from storlab.suite.zts_text import console_line, log_line, passed, read_results, report, report_name, summary
from suite.samples import REPORT, attempt


def test_a_line_is_80_columns_with_its_end_or_longer() -> None:
    line = console_line(attempt("pool/create"), "tester")
    begin = "Test: /usr/share/zfs/zfs-tests/tests/functional/pool/create (run as root) "
    assert line == begin + "[00:01] [PASS]\n"
    short = attempt("x", Outcome.SKIP, user="", identifier="Linux", elapsed=3725.9)
    line = console_line(short, "tester")
    assert line == "Test (Linux): /usr/share/zfs/zfs-tests/tests/functional/x (run as tester) [62:05] [SKIP]\n"


def test_a_short_line_is_padded() -> None:
    from msgspec.structs import replace

    line = console_line(replace(attempt("x"), path="/t/x"), "tester")
    assert line == "Test: /t/x (run as root)" + " " * 41 + "[00:01] [PASS]\n" and len(line) == 80


def test_outcomes_that_runners_do_not_know_are_shown_as_killed() -> None:
    assert "[KILLED]" in console_line(attempt("x", Outcome.CRASHED), "t")
    assert "KILLED\t   2" in summary([attempt("x", Outcome.CRASHED), attempt("y", Outcome.HUNG)], 1, "/l")


def test_the_summary_is_the_runner_s() -> None:
    outcomes = [Outcome.PASS] * 12 + [Outcome.FAIL, Outcome.SKIP, Outcome.KILLED]
    assert summary([attempt("x", each) for each in outcomes], 3725.4, "/var/tmp/r") == (
        "\nResults Summary\nPASS\t  12\nFAIL\t   1\nSKIP\t   1\nKILLED\t   1\n"
        "\nRunning Time:\t01:02:05\nPercent passed:\t80.0%\nLog directory:\t/var/tmp/r\n"
    )
    assert summary([], 1, "/x") == ""


def test_a_line_of_output_bears_its_time_in_hundredths() -> None:
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
    assert report(results, read_expectations(REPORT, "report.py")) == (
        "\nTests with results other than PASS that are expected:\n"
        "    SKIP pool/rename (Some day)\n"
        "\nTests with result of PASS that are unexpected:\n"
        "    PASS pool/create (expected FAIL)\n"
        "\nTests with results other than PASS that are unexpected:\n"
        "    KILLED acl/allow (expected PASS)\n"
        "    FAIL pool/destroy (expected PASS)\n"
    )


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
