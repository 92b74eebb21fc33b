"""What is said of tests whose outcomes differ between runs, how often that is false, and which commit did it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

from storlab.base.errors import UserError
from storlab.report.document import Table
from storlab.suites.comparing import Change, Comparison, Side, compare_runs
from storlab.suites.culprit import Culprits, Tally, Terms, beliefs, find_culprit
from storlab.suites.history import KINDS, Counts, discoveries, history_of, interval, more_failures
from storlab.suites.model import ObservedRun, SuiteEnvironment
from storlab.suites.report.documents import changes_document, history_document
from storlab.suites.report.formats import render_text

from .suite_runs import run_of, runs_of, simulate


def compared(before: list[ObservedRun], after: list[ObservedRun], history: tuple[ObservedRun, ...] = ()) -> Comparison:
    return compare_runs(Side("A", tuple(before)), history, [Side("B", tuple(after))])[0]


def said(comparison: Comparison) -> dict[str, str]:
    return {each.test: str(each.change) for each in comparison.changes}


def test_chances_are_fishers_and_intervals_exact() -> None:
    counts = [((20, 0), (2, 3)), ((5, 5), (5, 5)), ((1, 0), (0, 1)), ((7, 1), (8, 0))]
    found = more_failures([Counts(*a) for a, _ in counts], [Counts(*b) for _, b in counts])
    for (before, after), chance in zip(counts, found.chance, strict=True):
        table = [[after[1], after[0]], [before[1], before[0]]]
        assert chance == pytest.approx(fisher_exact(table, alternative="greater").pvalue)
    assert interval(0, 10)[0] == 0 and interval(10, 10)[1] == 1
    assert interval(10, 10)[0] == pytest.approx(0.025 ** (1 / 10))  # the rule of three, exactly
    assert interval(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)  # R: binom.test(8, 10)


def test_three_runs_a_side_decide_a_test_or_many_passes_before_and_one_does_not() -> None:
    found = compared([run_of({"a": "P", "b": "P", "c": "F"})], [run_of({"a": "F", "b": "P", "c": "F"}, 1)])
    assert said(found) == {"a": "undecided", "b": "unchanged", "c": "unchanged"}
    [only] = found.of(Change.UNDECIDED)
    assert only.chance == 0.5 and only.more == 2  # three of each: 1 / C(6, 3) = 5 %
    assert found.one_sided == 1.0  # one group changed, and each way is as likely
    assert said(compared(runs_of({"a": "PPP", "b": "PPP"}), runs_of({"a": "FFF", "b": "PPP"}))) == {
        "a": "regressed", "b": "unchanged"
    }  # fmt: skip
    history = tuple(runs_of({"a": "P" * 19, "b": "PF" * 9 + "P"}))
    found = compared([run_of({"a": "P", "b": "P"}, 20)], [run_of({"a": "F", "b": "F"}, 21)], history[1:])
    assert said(found)["b"] == "flaky"
    found = compared([run_of({"a": "P"}, 20)], [run_of({"a": "F"}, 21)], tuple(runs_of({"a": "P" * 19})))
    assert said(found) == {"a": "regressed"} and found.of(Change.REGRESSED)[0].chance == pytest.approx(1 / 21)


def test_the_runs_that_would_decide_a_test_beside_flaky_ones_do_and_fewer_do_not() -> None:
    def beside(runs: int) -> Comparison:
        flaky = {f"flaky {number}": ("PF" * runs)[:runs] for number in range(40)}
        return compared(runs_of({"a": "P" * runs} | flaky), runs_of({"a": "F" * runs} | flaky, start=runs))

    [only] = beside(4).of(Change.UNDECIDED)
    assert only.test == "a" and only.more == 2  # of 1 / C(10, 5) and 1 / C(12, 6), only the latter is below 5 % / 41
    assert said(beside(5))["a"] == "undecided" and said(beside(6))["a"] == "regressed"


def test_tests_without_a_result_are_missing_or_new_and_later_tries_flaky() -> None:
    before = run_of({"gone": "P", "skipped": "P", "same": "P", "never": "S"})
    after = run_of({"skipped": "S", "same": "P", "more": "P", "never": "S"}, 1)
    assert said(compared([before], [after])) == {
        "gone": "left out", "skipped": "missing", "same": "unchanged", "never": "unchanged", "more": "new"
    }  # fmt: skip
    lost = ObservedRun("lost", "lost", after.started, after.environment, after.tests, frozenset({"gone"}))
    assert said(compared([before], [lost]))["gone"] == "missing"
    found = compared([run_of({"a": "P", "b": "P"})], [run_of({"a": "FFP", "b": "FFF"}, 1)])
    assert said(found) == {"a": "flaky", "b": "undecided"}


def test_many_groups_that_fail_at_once_are_no_flakiness_unless_as_many_got_better() -> None:
    def alike(outcomes: list[str], name: str, number: int = 0) -> ObservedRun:
        return run_of({name.format(at): outcome for at, outcome in enumerate(outcomes)}, number)

    groups, one_group = "group{}/test", "group/test{}"
    passing, failing = alike(["P"] * 25, groups), alike(["F"] * 25, groups, 1)
    assert set(said(compared([passing], [failing])).values()) == {"regressed"}
    assert set(said(compared([failing], [passing])).values()) == {"fixed"}
    mixed, other = alike(["F"] * 22 + ["P"] * 3, groups, 1), alike(["P"] * 22 + ["F"] * 3, groups, 1)
    found = compared([other], [mixed])
    assert set(said(found).values()) == {"undecided"} and found.one_sided < 0.001
    assert compared([mixed], [other]).one_sided == pytest.approx(found.one_sided)
    found = compared([alike(["P"] * 40, one_group)], [alike(["F"] * 40, one_group, 1)])
    assert set(said(found).values()) == {"undecided"} and found.worse == 1


def test_several_sides_share_one_bound_over_those_tests_only_that_could_be_false() -> None:
    before = Side("A", tuple(runs_of({"a": "PPPPP", "b": "PPPPP"})))
    bad = Side("B", tuple(runs_of({"a": "FFFFF", "b": "PPPPP"}, 5)))
    same = Side("C", tuple(runs_of({"a": "PPPPP", "b": "PPPPP"}, 10)))
    first, second = compare_runs(before, [], [bad, same])
    assert [each.test for each in first.of(Change.REGRESSED)] == ["a"] and not second.of(Change.REGRESSED)
    never = [(Counts(30, 0), Counts(5, 0))] * 1000
    found = more_failures(*zip(*[*never, (Counts(30, 0), Counts(1, 2))], strict=True))
    assert discoveries(found, 0.05).nonzero()[0].tolist() == [1000]


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


def slowed(ratio: dict[str, float], count: int, generator: np.random.Generator, busy: float = 1.0) -> list[ObservedRun]:
    runs = []
    for number in range(count):
        run = run_of(dict.fromkeys([f"g/t{index}" for index in range(30)], "P"), number)
        noise = {name: busy * ratio.get(name, 1.0) * math.exp(generator.normal(0, 0.05)) for name in run.tests}
        tests = {name: (replace(tries[0], elapsed=noise[name]),) for name, tries in run.tests.items()}
        runs.append(replace(run, tests=tests))
    return runs


def test_a_slower_test_is_found_a_busy_machine_is_not_and_one_run_says_nothing() -> None:
    generator = np.random.default_rng(1)
    before = slowed({}, 8, generator)
    times = compared(before, slowed({"g/t3": 1.5}, 8, generator, busy=2.0)).times
    assert [each.test for each in times.changed] == ["g/t3"] and times.changed[0].ratio == pytest.approx(1.5, rel=0.1)
    assert times.overall == pytest.approx(2.0, rel=0.05)
    assert not compared(before, slowed({}, 8, generator, busy=2.0)).times.changed
    generator = np.random.default_rng(2)
    times = compared(slowed({}, 1, generator), slowed({"g/t3": 10.0}, 1, generator)).times
    assert not times.changed and not times.compared
    assert mannwhitneyu([1.0, 2, 3], [4.0, 5, 6]).pvalue > 0.05  # so three a side can't either


def test_flaky_tests_come_first_then_what_fails_then_what_is_skipped() -> None:
    runs = runs_of({"ok": "PPPP", "bad": "FFKF", "skip": "SSSS", "some": "PFPP", "more": "PFFP"})
    history = history_of(runs)
    assert [each.test for each in history.tests] == ["more", "some", "bad", "skip", "ok"]
    assert [each.rate for each in history.tests] == [0.5, 0.75, 0.0, None, 1.0]
    assert [len(history.of(kind)) for kind in KINDS] == [2, 1, 1, 1]
    assert history.tests[0].last == "run-3"


def test_flaky_is_what_differs_in_one_environment_or_passes_at_a_later_try() -> None:
    other = SuiteEnvironment(kernel="6.18")
    runs = [run_of({"a": "P"}), run_of({"a": "P"}, 1), run_of({"a": "F"}, 2, environment=other)]
    history = history_of(runs)
    assert not history.of("flaky") and [str(each) for each in history.environments] == ["kernel 6.12", "kernel 6.18"]
    assert {(each.environment.kernel, each.rate) for each in history.tests} == {("6.12", 1.0), ("6.18", 0.0)}
    history = history_of([run_of({"a": "FP"}), run_of({"a": "P"}, 1)])
    assert history.of("flaky")[0].counts.passed == 1 and history.of("flaky")[0].rate == 0.5
    one, two = SuiteEnvironment(kernel="6.12", storlab="0.1"), SuiteEnvironment(kernel="6.12", storlab="0.2")
    runs = [run_of({"a": "P"}, environment=one), run_of({"a": "F"}, 1, environment=two)]
    assert len(history_of(runs).of("flaky")) == 1


def searched(
    count: int, culprit: int, after: float, generator: np.random.Generator, terms: Terms, before: float = 0.0,
    dead: frozenset[int] = frozenset(),
) -> tuple[Culprits, list[int]]:  # fmt: skip
    asked = []

    def probe(number: int) -> bool | None:
        asked.append(number)
        return None if number in dead else bool(generator.random() >= (after if number >= culprit else before))

    return find_culprit(count, probe, terms), asked


@pytest.mark.parametrize(("after", "before"), [(1 / 3, 0.0), (1.0, 0.0), (0.4, 0.05)])
def test_the_culprit_is_found_with_the_stated_error(after: float, before: float) -> None:
    generator = np.random.default_rng(20260105)
    terms = Terms(error=0.05, flaky=before > 0)
    repeats, wrong, tests, builds = (100 if not before else 3), 0, [], []
    for _ in range(repeats):
        culprit = int(generator.integers(1, 31))
        found, asked = searched(30, culprit, after, generator, terms, before)
        wrong += culprit not in found.candidates
        tests.append(len(asked))
        builds.append(1 + sum(a != b for a, b in pairwise(asked)))
    assert wrong / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats), wrong
    assert np.mean(tests) < (100 if not before else 300) and np.mean(builds) < 30, (np.mean(tests), np.mean(builds))


def test_a_failure_settles_it_where_the_good_never_fails_and_what_cant_be_tested_is_named() -> None:
    tally = Tally.of(10)
    tally.add(4, False)
    belief, _ = beliefs(tally, Terms())
    assert belief[:4].sum() == pytest.approx(1) and not belief[4:].any()
    found, _ = searched(8, 5, 1.0, np.random.default_rng(1), Terms(), dead=frozenset({4, 5}))
    assert found.candidates == (4, 5, 6) and found.probability >= 0.95


def test_ends_that_do_not_fit_are_refused() -> None:
    for good, bad, flaky, why in (
        (True, True, False, "the bad one passes: 59 of 59 runs"),
        (False, False, False, "the good one fails: run 1"),
        (False, False, True, "the good one fails as often as the bad one"),
        (True, None, False, "the bad one can't be tested"),
        (None, False, False, "the good one can't be tested"),
    ):
        with pytest.raises(UserError, match=why):
            find_culprit(5, [good, *([bad] * 5)].__getitem__, Terms(flaky=flaky))


@pytest.mark.parametrize(("before", "after"), [("PFFFFFFFFF", "FPPPPPPPPP"), ("FPPPPPPPPP", "PFFFFFFFFF")])
def test_groups_that_changed_one_way_are_as_unlikely_as_those_that_changed_the_other(before: str, after: str) -> None:
    a, b = ([run_of({f"group{at}/test": each for at, each in enumerate(text)})] for text in (before, after))
    said = render_text(changes_document([compared(a, b)], []))
    (words,) = [line for line in said.splitlines() if "one-sided" in line]
    assert words.endswith("flakiness alone would be as one-sided, either way, with a probability of 2.1 %.")


def last(*runs: ObservedRun) -> list[str]:
    """The column of what came of the last run."""
    sections = history_document(history_of(runs), everything=True).sections
    (table,) = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    return [row[table.columns.index("last")] for row in table.rows]


def test_a_retry_of_an_earlier_run_is_none_of_the_last() -> None:
    assert last(run_of({"a": "FP"}), run_of({"a": "FF"}, 1)) == ["FAIL"]
    assert last(run_of({"a": "FF"}), run_of({"a": "FP"}, 1)) == ["FAIL, then PASS"]
    assert last(run_of({"a": "FP"}), run_of({"a": "P"}, 1)) == ["PASS"]
