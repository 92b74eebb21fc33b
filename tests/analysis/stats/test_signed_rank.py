"""Tests of ``storlab.analysis.stats.signed_rank``."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storlab.analysis.stats import signed_rank
from storlab.analysis.stats.signed_rank import (
    fewest_rounds,
    interval,
    log_evidence,
    rounds_for_evidence,
    sequential_signed_ranks,
    typical,
)

SIDES = (1, -1)

ratios = st.lists(st.floats(-5, 5), min_size=1, max_size=30).map(np.array)


def test_ranks_count_only_the_rounds_so_far() -> None:
    ranks = sequential_signed_ranks(np.array([0.3, -0.1, 0.5, 0.3, 0.0]))
    assert ranks.tolist() == pytest.approx([1, -1 / 2, 3 / 3, 2.5 / 4, 0])


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [1, 100, 2, 2, 0.1]])
def test_over_all_signs_the_capital_is_one_on_average(sizes: list[float]) -> None:
    """The martingale property, exactly: with fair signs, no betting wins on average."""
    signs = itertools.product([1, -1], repeat=len(sizes))
    capital = [
        [math.exp(log_evidence(np.array(sizes) * np.array(sign), side=side)) for side in SIDES] for sign in signs
    ]
    assert np.mean(capital, axis=0) == pytest.approx([1, 1])


@given(ratios, st.floats(-1000, 1000))
def test_one_round_at_most_doubles_the_evidence_however_far_out_it_is(values: np.ndarray, outlier: float) -> None:
    assert log_evidence(np.append(values, outlier)) <= log_evidence(values) + math.log(2) + 1e-9


@given(ratios)
def test_the_evidence_does_not_know_which_side_is_which(values: np.ndarray) -> None:
    assert log_evidence(-values, side=-1) == pytest.approx(log_evidence(values))


@given(ratios, st.floats(0.5, 50))
def test_the_evidence_does_not_depend_on_the_scale(values: np.ndarray, scale: float) -> None:
    coarse = np.round(values, 3)
    assert log_evidence(scale * coarse) == pytest.approx(log_evidence(coarse))


def test_evidence_for_one_side_is_none_for_the_other() -> None:
    values = np.where(np.arange(200) % 10 == 9, 1.0, -0.01)
    assert log_evidence(values, side=-1) > math.log(20) > 0 > log_evidence(values)


@given(ratios, st.integers(0, 5))
def test_a_lost_round_counts_as_the_worst_that_a_round_can_be(values: np.ndarray, lost: int) -> None:
    worst = np.append(values, -10.0 - np.arange(lost))
    assert log_evidence(values, lost=lost) == pytest.approx(log_evidence(worst))


def test_rounds_without_a_difference_are_no_evidence() -> None:
    nothing = pytest.approx(0.0)
    assert log_evidence(np.zeros(50)) == nothing
    assert log_evidence(np.full(50, 1e-15)) == nothing, "nor are differences by rounding"
    assert log_evidence(np.array([])) == nothing


@pytest.mark.parametrize(("comparisons", "rounds"), [(1, 6), (10, 10), (100, 13), (1000, 16)])
def test_the_least_rounds_for_a_verdict_grow_with_the_logarithm_of_the_comparisons(
    comparisons: int, rounds: int
) -> None:
    assert fewest_rounds(0.05 / comparisons) == rounds


def test_a_forecast_needs_evidence_that_grows() -> None:
    steady = np.array([0.1, 0.2, 0.15, 0.12])
    assert 4 < rounds_for_evidence(steady, math.log(40)) < 12
    assert rounds_for_evidence(np.array([0.1, -0.1, -0.1, 0.1]), math.log(40)) == math.inf
    assert rounds_for_evidence(np.array([]), math.log(40)) == math.inf
    assert rounds_for_evidence(np.ones(40), math.log(40)) == 40


@example(np.array([0, 0, 0, 0, 0, 0, 2, 3, 23, 44]) / 10, 1.0)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=25).map(lambda x: np.array(x) / 10), st.floats(1.0, 8.0))
def test_the_interval_is_what_the_evidence_does_not_rule_out(values: np.ndarray, needed: float) -> None:
    low, high = interval(values, needed)
    steps = np.unique(np.round(np.add.outer(values, values) / 2, 6))  # 2.3 is one, though it is 0.2 and 4.4, too
    inner = (steps[:-1] + steps[1:]) / 2  # evidence changes at the steps only
    for centre in (steps[0] - 1, *inner, steps[-1] + 1):
        ruled_out = max(log_evidence(values, centre, side) for side in SIDES) >= needed
        assert ruled_out == (not low <= centre <= high)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30).map(lambda x: np.round(x, 6)))
def test_evidence_for_above_falls_with_what_it_is_above(values: np.ndarray) -> None:
    at = np.linspace(-6, 6, 60)
    above, below = ([log_evidence(values, c, side) for c in at] for side in SIDES)
    assert (np.diff(above) <= 1e-9).all() and (np.diff(below) >= -1e-9).all()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30).map(np.array))
def test_the_typical_value_is_the_median_of_all_means_of_two(values: np.ndarray) -> None:
    means = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2)]
    assert typical(values) == pytest.approx(np.median(means), abs=1e-12)


def test_many_rounds_have_what_few_would_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(4).standard_t(2, size=120)
    few, alone = (*interval(values, math.log(40)), *sequential_signed_ranks(values)), typical(values)
    monkeypatch.setattr(signed_rank, "_MATRIX", 10)
    many = (*interval(values, math.log(40)), *sequential_signed_ranks(values))
    assert many == pytest.approx(few, abs=1e-8)
    assert typical(values) == pytest.approx(alone, abs=1e-3), "anywhere between the two in the middle"
