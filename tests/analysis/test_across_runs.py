"""Runs compared with each other: what is judged, what is only described, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_ind

from storlab.analysis.compare import difference
from storlab.analysis.design import CompareSpec
from storlab.analysis.judging import parse_gate
from storlab.analysis.runs.across_runs import RunComparison, compare_runs
from storlab.analysis.runs.merged_runs import RunData
from storlab.analysis.stats.pairing import Order, Span, pairs_in_time, same_order
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary
from storlab.analysis.verdict import Rules
from storlab.base.errors import UserError
from storlab.findings.rounds import NotPaired
from storlab.report.language.methods import method, runs_method
from storlab.report.language.say import said, say

from .run_data import run, two_factors, with_variance
from .simulate import ever

LOW = [100.0, 102.0, 98.0, 101.0, 99.0, 100.5, 99.5, 101.5, 98.5, 100.2, 99.8, 100.9]
HIGH = [2 * value for value in LOW]


def sides(old: Sequence[float] = LOW, new: Sequence[float] = LOW, **of_new: Any) -> list[RunData]:
    """Two runs of one level each."""
    return [run("old", {"x": old}), run("new", {"x": new}, **of_new)]


def by_fs(*runs: RunData) -> RunComparison:
    """The one comparison of the levels of these runs."""
    (found,) = compare_runs(runs, by="fs").comparisons
    return found


BOTH = run("r", {"ext4": LOW, "xfs": HIGH})


def test_runs_one_after_the_other_are_described_beside_the_first_and_never_judged() -> None:
    found = compare_runs(sides(LOW, HIGH, starts=[500 + 10.0 * n for n in range(12)]))
    (one,) = found.comparisons
    assert (one.basis, one.comparison.verdict) == ("not interleaved", "undecided")
    assert one.comparison.ratio == pytest.approx(2)
    assert one.comparison.low is not None and one.comparison.low > 1.9
    assert "described and not judged" in say(one.comparison.reason) and "never judged" in say(found.cautions[0])
    found = compare_runs([run(name, {"x": LOW}) for name in ("one", "two", "three")])
    assert [(c.comparison.a, c.comparison.b) for c in found.comparisons] == [("two", "one"), ("three", "one")]
    assert found.family == 2
    assert found.comparisons[0].comparison.confidence == pytest.approx(0.975)


def test_levels_of_runs_are_paired_by_round_and_judged_unless_they_were_imported() -> None:
    one = by_fs(BOTH)
    assert (one.basis, one.comparison.verdict, one.rounds) == ("interleaved", "better", (12, 12))
    assert compare_runs([BOTH], by="fs").cautions == ()
    assert by_fs(run("r", {"ext4": LOW, "xfs": HIGH}, compared=False)).basis == "not interleaved"
    one = by_fs(run("a", {"ext4": LOW[:6], "xfs": HIGH[:6]}), run("b", {"ext4": LOW[6:], "xfs": HIGH[6:]}))
    assert (one.basis, one.rounds, one.comparison.verdict) == ("interleaved", (12, 12), "better")
    one = by_fs(BOTH, run("b", {"xfs": LOW}))
    assert one.rounds == (12, 12)
    assert "Left out: 12 trials of runs that have only one of the two." in said(one.comparison.warnings)


def alternating(order: list[int], *, machines: tuple[str, str] = ("boot-1", "boot-1")) -> list[RunData]:
    """Two runs; ``order`` says for each pair of trials in time which run goes first."""
    starts: tuple[list[float], list[float]] = ([], [])
    for at, first in enumerate(order):
        starts[first].append(20.0 * at)
        starts[1 - first].append(20.0 * at + 10)
    each = zip(("old", "new"), (LOW, HIGH), starts, machines, strict=True)
    return [run(name, {"x": of[: len(order)]}, starts=times, machine=machine) for name, of, times, machine in each]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (alternating([0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0]), ""),
        (alternating([0] * 12), "always in the same order"),
        (alternating([0, 1] * 6, machines=("boot-1", "boot-2")), "one boot of one machine"),
    ],
    ids=["in turns", "one first", "other boot"],
)
def test_trials_in_turns_are_paired_and_judged_unless_that_proves_nothing(runs: list[RunData], why: str) -> None:
    (one,) = compare_runs(runs).comparisons
    if why:
        assert one.basis == "not interleaved" and why in say(one.comparison.reason)
    else:
        assert (one.basis, one.comparison.verdict) == ("interleaved", "better")
        assert any("Paired by time" in warning for warning in said(one.comparison.warnings))


@given(st.lists(st.integers(0, 1), max_size=30), st.booleans())
def test_pairs_in_time_are_one_of_each_side_and_neighbours(order: list[int], overlap: bool) -> None:
    for unknown, why in (
        (Span(None, None), NotPaired("no starts")),
        (Span(2, 3), NotPaired("no machines")),
        (Span(2, None, "m"), NotPaired("no ends")),
    ):
        assert pairs_in_time([unknown], [Span(0, 1, "m")]) == why
    imported = [Span(at, None) for at in range(4)]
    assert pairs_in_time(imported[:2], imported[2:]) == NotPaired("no turns")
    spans = [Span(10.0 * at, 10.0 * at + (15 if overlap else 5), "m") for at in range(len(order))]
    a, b = ([span for span, side in zip(spans, order, strict=True) if side == want] for want in (0, 1))
    found = pairs_in_time(a, b)
    if isinstance(found, NotPaired):
        return
    assert not overlap or len(order) < 2
    assert found == [(at, at) for at in range(len(found))]
    assert all(abs((a[i].start or 0) - (b[j].start or 0)) == 10 for i, j in found)


def test_a_metric_that_one_side_lacks_is_named_and_one_round_has_no_interval() -> None:
    (one, two) = compare_runs(sides(metric="latency"), metrics=["bandwidth", "latency"]).comparisons
    assert "new has no bandwidth of load, which old has" in say(one.comparison.reason)
    assert "old has no latency of load, which new has" in say(two.comparison.reason)
    (one,) = compare_runs(sides([90.0], [81.0])).comparisons
    assert one.comparison.ratio == pytest.approx(0.9) and one.comparison.low is None
    assert "allow no interval" in say(one.comparison.reason)


@pytest.mark.parametrize(
    ("runs", "more", "message"),
    [
        (sides(unit="s"), {}, r"different units \(B/s; s\)"),
        (sides(better="lower"), {}, "which direction"),
        (sides(primary="latency"), {}, "different primary metrics"),
        (sides(factor="bs"), {}, "different factors"),
        (sides(), {"by": "nope"}, "old has no factor 'nope'; it has: fs"),
        (sides(), {"by": "fs"}, "only the level 'x' of fs"),
        ([run(name, {"x": LOW}, factor="run") for name in "ab"], {}, "factor named 'run' itself"),
        (sides(), {"metrics": ["bandwith"], "gates": [parse_gate("worse")]},
            "--metric 'bandwith': no trial has it; did you mean 'bandwidth'"),
    ],
)  # fmt: skip
def test_runs_that_do_not_fit_together_and_misspelt_metrics_are_refused(
    runs: list[RunData], more: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        compare_runs(runs, **more)


@settings(max_examples=50)
@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=20),
    st.lists(st.floats(-3, 3), min_size=2, max_size=20),
    st.floats(0.001, 0.5),
)
def test_the_unpaired_interval_is_welchs(a: list[float], b: list[float], alpha: float) -> None:
    of_a, of_b = np.array(a), np.array(b)
    if of_a.std() < 1e-3 or of_b.std() < 1e-3:
        return
    mean, half = difference(of_a, of_b, alpha)
    expected = ttest_ind(of_a, of_b, equal_var=False).confidence_interval(1 - alpha)
    assert (mean - half, mean + half) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_unpaired_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        mean, half = difference(rng.normal(0.1, 1, size=6), rng.normal(0, 3, size=9), 0.05)
        hits += abs(mean - 0.1) <= half
    assert 0.935 <= hits / 2000 <= 0.97


FOUR = {
    ("ext4", "4k"): LOW,
    ("ext4", "64k"): LOW[::-1],
    ("xfs", "4k"): HIGH,
    ("xfs", "64k"): [4 * v for v in LOW[::-1]],
}


def test_levels_are_pooled_over_all_combinations_and_judged_only_where_interleaved() -> None:
    found = compare_runs([two_factors("r", FOUR)], by="fs")
    assert [c.comparison.pooled for c in found.comparisons] == [False, False, True]
    pooled = found.comparisons[-1]
    assert (pooled.basis, pooled.rounds, pooled.comparison.verdict) == ("interleaved", (12, 12), "better")
    assert pooled.comparison.ratio == pytest.approx(8**0.5)
    assert found.family == 3
    old, new = two_factors("old", FOUR), two_factors("new", {k: [2 * v for v in each] for k, each in FOUR.items()})
    pooled = compare_runs([old, new]).comparisons[-1]
    assert (pooled.comparison.pooled, pooled.basis, pooled.rounds) == (True, "not interleaved", (12, 12))
    assert pooled.comparison.ratio == pytest.approx(2)
    assert pooled.comparison.verdict == "undecided"


def test_pooling_leaves_out_what_is_not_in_every_combination_and_says_so() -> None:
    def pooled(fs: str, bs: str, values: list[float]) -> RunComparison:
        old = two_factors("old", FOUR | {(fs, bs): values})
        return compare_runs([old, two_factors("new", FOUR)]).comparisons[-1]

    found = pooled("ext4", "64k", LOW[:9])
    assert found.rounds == (12, 9)
    assert "old: left out rounds 10, 11 and 12, not done in every combination." in said(found.comparison.warnings)
    zero = pooled("xfs", "4k", [0.0, *HIGH[1:]])
    assert zero.basis == "none" and say(zero.comparison.reason).startswith("In fs=xfs, bs=4k: old is 0 in round 1")
    fewer = compare_runs([run("old", {"x": LOW, "y": LOW, "z": LOW}), run("new", {"x": LOW, "y": LOW})]).comparisons
    (warned,) = (said(c.comparison.warnings) for c in fewer if c.comparison.pooled)
    assert "Left out: 1 combination that only one side has." in warned


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(0.1, 10), min_size=6, max_size=6), min_size=4, max_size=4))
def test_described_pooled_ratios_are_those_of_the_rounds_geometric_means(rows: list[list[float]]) -> None:
    a, b = ({"x": rows[at], "y": rows[at + 1]} for at in (0, 2))
    pooled = compare_runs([run("b", b), run("a", a)]).comparisons[-1].comparison
    means = [{"x": [(x * y) ** 0.5 for x, y in zip(of["x"], of["y"], strict=True)]} for of in (a, b)]
    (alone,) = compare_runs([run("b", means[1]), run("a", means[0])]).comparisons
    assert pooled.ratio == pytest.approx(alone.comparison.ratio)


def files(**values: float) -> list[RunData]:
    """Imported runs of one file each, under its own name."""
    return [run(name, {f"{name}.txt": [value]}, factor="file", compared=False) for name, value in values.items()]


def test_files_imported_one_by_one_are_compared_by_their_names_and_levels_are_not() -> None:
    found = compare_runs(files(off=100.0, on=101.4))
    (one,) = found.comparisons
    assert (one.basis, one.comparison.within) == ("not interleaved", {})
    assert one.comparison.ratio == pytest.approx(1.014)
    assert "The sides differ in file as well (off: off.txt; on: on.txt)." in said(found.cautions)
    (first, _) = compare_runs([run("a", {"x": LOW}), run("b", {"y": LOW})]).comparisons
    assert first.basis == "none"


def test_variability_is_described_beside_and_the_method_tells_of_what_was_done() -> None:
    found = compare_runs([with_variance("old", 100.0, 4.0), with_variance("new", 90.0, 1.0)])
    assert len(found.comparisons) == 1, "nothing of it is compared"
    (varying,) = found.variability
    assert (varying.factor, varying.larger) == (4.0, "old")
    assert (varying.of_a.sigma, varying.of_b.outliers, varying.of_a.longest_stall) == (1.0, 3.0, None)
    judged = runs_method(compare_runs([BOTH], by="fs").method)
    assert "paired by round" in judged and "Welch" not in judged and "Pooled" not in judged
    described = runs_method(compare_runs(sides(LOW, HIGH)).method)
    assert "Welch" in described and "paired by round" not in described
    single = runs_method(compare_runs(files(off=100.0, on=101.4)).method)
    assert single == "One round of a side has no spread, and so no interval."


@pytest.mark.parametrize(
    ("a", "b", "factor", "larger"), [(0.0, 0.0, 1.0, ""), (0.0, 1.0, None, "b"), (2.0, 2.0, 1.0, "")]
)
def test_a_variance_of_zero_has_no_factor(a: float, b: float, factor: float | None, larger: str) -> None:
    (varying,) = compare_runs([with_variance("a", 1.0, a), with_variance("b", 1.0, b)]).variability
    assert (varying.factor, varying.larger) == (factor, larger)


def with_failures(given: RunData, cell: int, rounds: set[int]) -> RunData:
    """The run in which trials of this cell failed in these rounds."""
    lost = (pl.col("cell") == cell) & pl.col("round").is_in(rounds)
    trials = given.trials.with_columns(status=pl.when(lost).then(pl.lit("failed")).otherwise("status"))
    return replace(given, trials=trials)


def test_trials_that_failed_are_named_and_a_level_that_fails_can_not_win_by_the_others() -> None:
    whole = run("r", {"ext4": HIGH, "xfs": LOW})
    assert [by_fs(each).comparison.verdict for each in (whole, with_failures(whole, 2, {2, 3, 6}))] == ["worse"] * 2
    found = compare_runs([with_failures(whole, 1, {2, 3, 6})], by="fs", gates=[parse_gate("worse")]).comparisons[0]
    assert found.comparison.verdict == "undecided" and found.gates[0].outcome == "undecided"
    assert "3 rounds that failed on one side" in say(found.comparison.reason)
    old, new = sides(LOW, HIGH)
    found = compare_runs([old, with_failures(new, 1, {2, 3})]).comparisons[0]
    assert said(found.comparison.warnings)[0] == "Left out: 2 trials of new that failed."


def test_the_margin_is_that_of_the_factor_that_is_compared() -> None:
    values = {(fs, bs): [2.0 * value for value in LOW] for fs in ("xfs", "ext4") for bs in ("4k", "64k")}
    given = two_factors("r", values)
    asked = (CompareSpec("fs", margin=0.2), CompareSpec("bs", margin=0.01))
    given = replace(given, design=replace(given.design, comparisons=asked))
    margins = {by: compare_runs([given], by=by).comparisons[0].comparison.margin for by in ("fs", "bs")}
    assert margins == {"fs": 0.2, "bs": 0.01}
    strict = replace(given, name="s", design=replace(given.design, comparisons=(CompareSpec("fs", margin=0.02),)))
    assert compare_runs([given, strict], by="fs").comparisons[0].comparison.margin == 0.02


@given(st.permutations(range(3)), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_verdicts_do_not_depend_on_the_order_in_which_runs_are_named(order: list[int], seed: int) -> None:
    noise = np.exp(0.05 * np.random.default_rng(seed).normal(size=(3, 2, 6)) + [[0], [0.04]])
    starts = [[10.0 * n + 1000 * at for n in range(12)] for at in range(3)]
    runs = [run(str(at), {"a": list(a), "b": list(b)}, starts=starts[at]) for at, (a, b) in enumerate(noise)]
    assert compare_runs([runs[at] for at in order], by="fs").comparisons == compare_runs(runs, by="fs").comparisons


TURNS = ((1, 2), (2, 1)) * 6
ALWAYS = ((1, 2),) * 12


def ordered(given: RunData, order: Order) -> Summary:
    design = replace(given.design, order=tuple(map(tuple, order)))
    return summarise(given.trials, given.metrics, design)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_an_order_that_a_coin_would_hardly_give_allows_no_pairs(swapped: list[bool]) -> None:
    order = [(2, 1) if swap else (1, 2) for swap in swapped]
    hardly = binomtest(sum(swapped), len(swapped)).pvalue <= 0.05
    refused = len(set(swapped)) == 1 or hardly
    assert bool(same_order(order, (1, 2), ("a", "b"))) == refused
    spans = [Span(10.0 * at, 10.0 * at + 5, "boot") for at in range(2 * len(order))]
    sides = [side for ran in order for side in ran]
    a, b = ([span for span, side in zip(spans, sides, strict=True) if side == want] for want in (1, 2))
    assert isinstance(pairs_in_time(a, b), NotPaired) == refused


def test_what_favours_who_goes_second_never_makes_a_verdict_and_who_went_first_is_said() -> None:
    """All else being equal: the noiseless worst case of every order that is accepted."""
    for rounds in range(1, 80):
        orders = ([(1, 2)] * first + [(2, 1)] * (rounds - first) for first in range(rounds + 1))
        accepted = [order for order in orders if not same_order(order, (1, 2), ("a", "b"))]
        ratios = np.array([[0.3 if ran == (2, 1) else -0.3 for ran in order] for order in accepted])
        assert not len(ratios) or not ever({"better", "worse"}, ratios, Rules(0.05, 0.05, "higher", rounds)).any()
    often = same_order([(2, 1)] * 9 + [(1, 2)], (1, 2), ("a", "b"))
    assert often is not None and say(often).startswith("b mostly ran before a, in 9 of 10 rounds")
    once = same_order([(3, 1, 2), (2, 3), (1,)], (1, 2), ("a", "b"))
    assert once is not None and say(once).startswith("a always ran before b, in 1 of 1 round:")
    assert same_order([(1,), (2,)], (1, 2), ("a", "b")) is None


def test_a_comparison_in_a_fixed_order_gets_no_verdict_and_counts_in_no_family() -> None:
    given = run("r", {"ext4": LOW, "xfs": HIGH, "zfs": LOW})
    found = ordered(given, [(1, 3, 2), (1, 2, 3)] * 6)
    answers = {(c.a, c.b): c for c in found.comparisons}
    assert found.family == 1
    assert answers["xfs", "zfs"].verdict == "better"
    assert (answers["ext4", "xfs"].ratio, answers["ext4", "xfs"].verdict) == (None, "missing")
    assert say(answers["ext4", "xfs"].reason).startswith("ext4 always ran before xfs, in 12 of 12 rounds: ")
    assert found.method is not None and "that it was drawn at random is not known" in method(found.method)


def test_a_pooled_comparison_leaves_out_combinations_in_a_fixed_order() -> None:
    cells = [(fs, bs) for fs in ("ext4", "xfs") for bs in ("4k", "64k", "1m")]
    given = two_factors("r", {cell: HIGH if cell[0] == "xfs" else LOW for cell in cells})
    found = ordered(given, [(1, 2, 3, 4, 5, 6), (4, 5, 3, 6, 1, 2)] * 6)  # 1m: 3 before 6 in all
    (pooled,) = (c for c in found.comparisons if c.pooled)
    assert pooled.verdict == "worse"
    assert any(warning.startswith("Not over bs=1m: ext4 always ran before xfs") for warning in said(pooled.warnings))


def test_runs_in_turns_are_judged_and_those_in_a_fixed_order_are_not() -> None:
    turns, always = (replace(BOTH, design=replace(BOTH.design, order=order)) for order in (TURNS, ALWAYS))
    one = by_fs(turns)
    assert (one.basis, one.comparison.verdict) == ("interleaved", "better")
    one = by_fs(always)
    assert (one.basis, one.comparison.verdict) == ("not interleaved", "undecided")
    assert "ext4 always ran before xfs, in 12 of 12 rounds" in say(one.comparison.reason)
    one = by_fs(turns, replace(always, name="two"))
    left = "Left out: 24 trials of runs that have only one of the two, or both in one order."
    assert one.rounds == (12, 12) and left in said(one.comparison.warnings)


@pytest.mark.parametrize("drift", [0.0, 0.01, -0.03])
def test_a_machine_that_drifts_gives_no_verdict_on_the_same_thing_measured_in_turns(drift: float) -> None:
    """200 imports of A against A, as ABBA, with a look after each round: 5 % at most ever have a verdict."""
    logs = np.random.default_rng(7).normal(0, 0.02, (200, 60)) + drift * np.arange(60)
    ratios = (logs[:, ::2] - logs[:, 1::2]) * np.where(np.arange(30) % 2 == 0, 1, -1)
    assert ever({"better", "worse"}, ratios, Rules(0.05, 0.05, "higher", 5)).mean() <= 0.05
