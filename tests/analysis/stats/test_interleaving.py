"""Which orders of trials allow a verdict: those in which neither side mostly went first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from storlab.analysis.runs.across_runs import compare_runs
from storlab.analysis.runs.merged_runs import RunData
from storlab.analysis.stats.interleaving import Order, Span, pairs_in_time, same_order
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary
from storlab.analysis.verdict import Rules, judge

from ..run_data import run, two_factors

LOW = [100.0, 102.0, 98.0, 101.0, 99.0, 100.5, 99.5, 101.5, 98.5, 100.2, 99.8, 100.9]
HIGH = [2 * value for value in LOW]
TURNS = ((1, 2), (2, 1)) * 6
ALWAYS = ((1, 2),) * 12


def summary(given: RunData, order: Order) -> Summary:
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
    assert isinstance(pairs_in_time(a, b), str) == refused


@pytest.mark.parametrize("rounds", range(1, 80))
def test_what_favours_who_goes_second_never_makes_a_verdict_by_itself(rounds: int) -> None:
    """All else being equal: the noiseless worst case of every order that is accepted."""
    for first in range(rounds + 1):
        order = [(1, 2)] * first + [(2, 1)] * (rounds - first)
        if not same_order(order, (1, 2), ("a", "b")):
            ratios = np.array([0.3 if ran == (2, 1) else -0.3 for ran in order])
            found = judge(ratios, "a", "b", Rules(0.05, 0.05, "higher", 5))
            assert found.verdict not in ("better", "worse"), (first, rounds)


def test_it_says_who_went_first_and_how_often() -> None:
    often = same_order([(2, 1)] * 9 + [(1, 2)], (1, 2), ("a", "b"))
    assert often.startswith("b mostly ran before a, in 9 of 10 rounds")
    once = same_order([(3, 1, 2), (2, 3), (1,)], (1, 2), ("a", "b"))
    assert once.startswith("a always ran before b, in 1 of 1 round:")
    assert same_order([(1,), (2,)], (1, 2), ("a", "b")) == ""


def test_a_comparison_in_a_fixed_order_gets_no_verdict_and_counts_in_no_family() -> None:
    given = run("r", {"ext4": LOW, "xfs": HIGH, "zfs": LOW})
    found = summary(given, [(1, 3, 2), (1, 2, 3)] * 6)
    answers = {(c.a, c.b): c for c in found.comparisons}
    assert found.family == 1
    assert answers["xfs", "zfs"].verdict == "better"
    assert (answers["ext4", "xfs"].ratio, answers["ext4", "xfs"].verdict) == (None, "undecided")
    assert answers["ext4", "xfs"].reason.startswith("ext4 always ran before xfs, in 12 of 12 rounds: ")
    assert "that it was drawn at random is not known" in found.method


def test_a_pooled_comparison_leaves_out_combinations_in_a_fixed_order() -> None:
    cells = [("ext4", "4k"), ("ext4", "64k"), ("ext4", "1m"), ("xfs", "4k"), ("xfs", "64k"), ("xfs", "1m")]
    given = two_factors("r", {cell: HIGH if cell[0] == "xfs" else LOW for cell in cells})
    order = [(1, 2, 3, 4, 5, 6), (4, 5, 3, 6, 1, 2)] * 6  # 1m: 3 before 6 in all
    found = summary(given, order)
    (pooled,) = (c for c in found.comparisons if c.pooled)
    assert pooled.verdict == "worse"
    assert any(warning.startswith("Not over bs=1m: ext4 always ran before xfs") for warning in pooled.warnings)


def test_an_imported_run_in_turns_is_judged_by_compare_and_one_in_a_fixed_order_is_not() -> None:
    given = run("r", {"ext4": LOW, "xfs": HIGH})
    turns, always = (replace(given, design=replace(given.design, order=order)) for order in (TURNS, ALWAYS))
    (one,) = compare_runs([turns], by="fs").comparisons
    assert (one.basis, one.comparison.verdict) == ("interleaved", "better")
    (one,) = compare_runs([always], by="fs").comparisons
    assert (one.basis, one.comparison.verdict) == ("not interleaved", "undecided")
    assert "ext4 always ran before xfs, in 12 of 12 rounds" in one.comparison.reason


def test_of_several_runs_those_in_a_fixed_order_are_left_out() -> None:
    given = run("one", {"ext4": LOW, "xfs": HIGH})
    turns = replace(given, design=replace(given.design, order=TURNS))
    always = replace(given, name="two", design=replace(given.design, order=ALWAYS))
    (one,) = compare_runs([turns, always], by="fs").comparisons
    assert one.rounds == (12, 12)
    left = "Left out: 24 trials of runs that have only one of the two, or both in one order."
    assert left in one.comparison.warnings


@pytest.mark.parametrize("drift", [0.0, 0.01, -0.03])
def test_a_machine_that_drifts_gives_no_verdict_on_the_same_thing_measured_in_turns(drift: float) -> None:
    """200 imports of A against A, as ABBA, with a look after each round: 5 % at most ever have a verdict."""
    rng = np.random.default_rng(7)
    rules, wrong = Rules(0.05, 0.05, "higher", 5), 0
    for _ in range(200):
        logs = rng.normal(0, 0.02, 60) + drift * np.arange(60)
        pairs = logs.reshape(30, 2)
        ratios = np.where(np.arange(30) % 2 == 0, pairs[:, 0] - pairs[:, 1], pairs[:, 1] - pairs[:, 0])
        wrong += any(judge(ratios[:n], "a", "b", rules).verdict in ("better", "worse") for n in range(5, 31))
    assert wrong <= 0.05 * 200
