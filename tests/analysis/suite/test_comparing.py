"""What is said of tests whose outcomes differ between runs, and how often that is false."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

from analysis.suite.power import simulate
from analysis.suite.simulated import run_of, runs_of
from storlab.analysis.suite.comparing import Change, Comparison, Side, compare_runs
from storlab.analysis.suite.counts import Counts, discoveries, interval, more_failures
from storlab.suite.observed import ObservedRun


def compared(before: list[ObservedRun], after: list[ObservedRun], history: tuple[ObservedRun, ...] = ()) -> Comparison:
    return compare_runs(Side("A", tuple(before)), history, [Side("B", tuple(after))])[0]


def said(comparison: Comparison) -> dict[str, str]:
    return {each.test: str(each.change) for each in comparison.changes}


def test_chances_are_those_of_fishers_exact_test() -> None:
    counts = [((20, 0), (2, 3)), ((5, 5), (5, 5)), ((1, 0), (0, 1)), ((7, 1), (8, 0))]
    found = more_failures([Counts(*a) for a, _ in counts], [Counts(*b) for _, b in counts])
    for (before, after), chance in zip(counts, found.chance, strict=True):
        table = [[after[1], after[0]], [before[1], before[0]]]
        assert chance == pytest.approx(fisher_exact(table, alternative="greater").pvalue)


def test_intervals_are_exact() -> None:
    assert interval(0, 10)[0] == 0 and interval(10, 10)[1] == 1
    assert interval(10, 10)[0] == pytest.approx(0.025 ** (1 / 10))  # the rule of three, exactly
    assert interval(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)  # R: binom.test(8, 10)


def test_one_run_a_side_decides_nothing_about_a_test() -> None:
    found = compared([run_of({"a": "P", "b": "P", "c": "F"})], [run_of({"a": "F", "b": "P", "c": "F"}, 1)])
    assert said(found) == {"a": "undecided", "b": "unchanged", "c": "unchanged"}
    [only] = found.of(Change.UNDECIDED)
    assert only.chance == 0.5 and only.more == 2  # three of each: 1 / C(6, 3) = 5 %
    assert found.one_sided == 1.0  # one group changed, and each way is as likely


def test_the_runs_that_would_decide_a_test_beside_flaky_ones_do_and_fewer_do_not() -> None:
    def beside(runs: int) -> Comparison:
        flaky = {f"flaky {number}": ("PF" * runs)[:runs] for number in range(40)}
        return compared(runs_of({"a": "P" * runs} | flaky), runs_of({"a": "F" * runs} | flaky, start=runs))

    [only] = beside(4).of(Change.UNDECIDED)
    assert only.test == "a" and only.more == 2  # of 1 / C(10, 5) and 1 / C(12, 6), only the latter is below 5 % / 41
    assert said(beside(5))["a"] == "undecided" and said(beside(6))["a"] == "regressed"


def test_three_runs_of_each_side_that_all_differ_decide_it() -> None:
    assert said(compared(runs_of({"a": "PPP", "b": "PPP"}), runs_of({"a": "FFF", "b": "PPP"}))) == {
        "a": "regressed", "b": "unchanged"
    }  # fmt: skip


def test_what_history_has_seen_pass_each_time_is_decided_by_one_failure() -> None:
    history = tuple(runs_of({"a": "P" * 19, "b": "PF" * 9 + "P"}))
    found = compared([run_of({"a": "P", "b": "P"}, 20)], [run_of({"a": "F", "b": "F"}, 21)], history[1:])
    assert said(found)["b"] == "flaky"
    found = compared([run_of({"a": "P"}, 20)], [run_of({"a": "F"}, 21)], tuple(runs_of({"a": "P" * 19})))
    assert said(found) == {"a": "regressed"} and found.of(Change.REGRESSED)[0].chance == pytest.approx(1 / 21)


def test_tests_without_a_result_are_missing_and_others_new() -> None:
    before = run_of({"gone": "P", "skipped": "P", "same": "P", "never": "S"})
    after = run_of({"skipped": "S", "same": "P", "more": "P", "never": "S"}, 1)
    assert said(compared([before], [after])) == {
        "gone": "left out", "skipped": "missing", "same": "unchanged", "never": "unchanged", "more": "new"
    }  # fmt: skip
    lost = ObservedRun("lost", "lost", after.started, after.environment, after.tests, frozenset({"gone"}))
    assert said(compared([before], [lost]))["gone"] == "missing"


def test_a_test_that_passes_at_a_later_try_is_flaky() -> None:
    found = compared([run_of({"a": "P", "b": "P"})], [run_of({"a": "FFP", "b": "FFF"}, 1)])
    assert said(found) == {"a": "flaky", "b": "undecided"}


def test_many_groups_that_fail_at_once_are_no_flakiness_unless_as_many_got_better() -> None:
    names = [f"group{number}/test" for number in range(25)]
    passing, failing = run_of(dict.fromkeys(names, "P")), run_of(dict.fromkeys(names, "F"), 1)
    assert set(said(compared([passing], [failing])).values()) == {"regressed"}
    assert set(said(compared([failing], [passing])).values()) == {"fixed"}
    mixed = run_of({name: "PF"[number < 22] for number, name in enumerate(names)}, 1)
    other = run_of({name: "FP"[number < 22] for number, name in enumerate(names)})
    found = compared([other], [mixed])
    assert set(said(found).values()) == {"undecided"} and found.one_sided < 0.001
    assert compared([mixed], [other]).one_sided == pytest.approx(found.one_sided)
    one_group = [f"group/test{number}" for number in range(40)]
    found = compared([run_of(dict.fromkeys(one_group, "P"))], [run_of(dict.fromkeys(one_group, "F"), 1)])
    assert set(said(found).values()) == {"undecided"} and found.worse == 1


def test_several_sides_share_one_bound_on_false_claims() -> None:
    before = Side("A", tuple(runs_of({"a": "PPPPP", "b": "PPPPP"})))
    bad = Side("B", tuple(runs_of({"a": "FFFFF", "b": "PPPPP"}, 5)))
    same = Side("C", tuple(runs_of({"a": "PPPPP", "b": "PPPPP"}, 10)))
    first, second = compare_runs(before, [], [bad, same])
    assert [each.test for each in first.of(Change.REGRESSED)] == ["a"] and not second.of(Change.REGRESSED)


@pytest.mark.parametrize("design", [(0, 5, 5), (0, 1, 1), (30, 1, 1), (10, 3, 10)])
def test_at_most_one_in_twenty_is_called_regressed_though_nothing_changed(design: tuple[int, int, int]) -> None:
    """Nothing changed, so any claim is false, and the share of comparisons with one is what is bounded by 5 %."""
    wrong, _ = simulate(design, [], 100, 20260102)
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)  # three standard deviations of 100 comparisons


def test_regressions_are_found_and_few_of_those_that_are_reported_are_false() -> None:
    """Three tests of 300 break for good and three fail one time in two, among 40 flaky ones; ten runs of each side."""
    false, found = simulate((0, 10, 10), [1.0, 1.0, 1.0, 0.5, 0.5, 0.5], 60, 20260103)
    assert false <= 0.05 + 3 * 0.1 / math.sqrt(60)
    assert min(found[:3]) > 0.95 and min(found[3:]) > 0.2, found


def test_false_discoveries_are_bounded_over_those_tests_only_that_could_be_any() -> None:
    never = [(Counts(30, 0), Counts(5, 0))] * 1000
    found = more_failures(*zip(*[*never, (Counts(30, 0), Counts(1, 2))], strict=True))
    assert discoveries(found, 0.05).nonzero()[0].tolist() == [1000]


def slowed(ratio: dict[str, float], count: int, generator: np.random.Generator, busy: float = 1.0) -> list[ObservedRun]:
    runs = []
    for number in range(count):
        run = run_of(dict.fromkeys([f"g/t{index}" for index in range(30)], "P"), number)
        noise = {name: busy * ratio.get(name, 1.0) * math.exp(generator.normal(0, 0.05)) for name in run.tests}
        tests = {name: (type(tries[0])(tries[0].outcome, noise[name]),) for name, tries in run.tests.items()}
        runs.append(ObservedRun(run.name, run.identity, run.started, run.environment, tests, run.asked))
    return runs


def test_a_slower_test_is_found_and_a_busy_machine_is_not_taken_for_one() -> None:
    generator = np.random.default_rng(1)
    before = slowed({}, 8, generator)
    times = compared(before, slowed({"g/t3": 1.5}, 8, generator, busy=2.0)).times
    assert [each.test for each in times.changed] == ["g/t3"] and times.changed[0].ratio == pytest.approx(1.5, rel=0.1)
    assert times.overall == pytest.approx(2.0, rel=0.05)
    assert not compared(before, slowed({}, 8, generator, busy=2.0)).times.changed


def test_one_run_a_side_says_nothing_of_times() -> None:
    generator = np.random.default_rng(2)
    times = compared(slowed({}, 1, generator), slowed({"g/t3": 10.0}, 1, generator)).times
    assert not times.changed and not times.compared
    assert mannwhitneyu([1.0, 2, 3], [4.0, 5, 6]).pvalue > 0.05  # so three a side can't either
