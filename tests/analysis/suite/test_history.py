"""Pass rates by environment, flaky tests first."""

from __future__ import annotations

from analysis.suite.simulated import run_of, runs_of
from storlab.analysis.suite.history import history_of
from storlab.suite.environment import SuiteEnvironment


def test_flaky_tests_come_first_then_what_fails_then_what_is_skipped() -> None:
    runs = runs_of({"ok": "PPPP", "bad": "FFKF", "skip": "SSSS", "some": "PFPP", "more": "PFFP"})
    history = history_of(runs)
    assert [each.test for each in history.tests] == ["more", "some", "bad", "skip", "ok"]
    assert [each.rate for each in history.tests] == [0.5, 0.75, 0.0, None, 1.0]
    assert [len(part) for part in (history.flaky, history.failing, history.skipped, history.passing)] == [2, 1, 1, 1]
    assert history.tests[0].last == "run-3"


def test_what_differs_between_environments_only_is_not_flaky() -> None:
    other = SuiteEnvironment(kernel="6.18")
    runs = [run_of({"a": "P"}), run_of({"a": "P"}, 1), run_of({"a": "F"}, 2, environment=other)]
    history = history_of(runs)
    assert not history.flaky and [str(each) for each in history.environments] == ["kernel 6.12", "kernel 6.18"]
    assert {(each.environment.kernel, each.rate) for each in history.tests} == {("6.12", 1.0), ("6.18", 0.0)}


def test_a_later_try_shows_flakiness_and_does_not_count_as_a_pass() -> None:
    history = history_of([run_of({"a": "FP"}), run_of({"a": "P"}, 1)])
    assert history.flaky[0].counts.passed == 1 and history.flaky[0].rate == 0.5


def test_memory_and_the_version_of_storlab_are_no_environment_of_their_own() -> None:
    one, two = SuiteEnvironment(kernel="6.12", storlab="0.1"), SuiteEnvironment(kernel="6.12", storlab="0.2")
    runs = [run_of({"a": "P"}, environment=one), run_of({"a": "F"}, 1, environment=two)]
    assert len(history_of(runs).flaky) == 1
