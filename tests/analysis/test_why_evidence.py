"""The error of naming anything, by simulation with a recorded seed; and what evidence is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from storlab.analysis.stats.anytime import log_evidence_of_means, mean_interval
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.why.evidence import (
    Named,
    Paired,
    correlation,
    moves_together,
    named,
    needed_by,
    paired,
    pooled,
    rounds_needed,
    says_the_same,
)

from .simulate import MACHINES, noise

SEED, METRICS, STUDIES = 20_261_123, 30, 200
SHARES = st.lists(st.floats(0, 1e9), min_size=2, max_size=12)


def _pair(kind: str, rounds: int, rng: np.random.Generator, effect: float = 0.0) -> Paired:
    """Metrics of one study: they share the machine's noise and the order of each round. The first may differ."""
    values = np.exp(np.clip(noise(kind, METRICS, 2 * rounds, rng) + noise(kind, 1, 2 * rounds, rng), -300, 300))
    first = rng.random(rounds) < 0.5
    a, b = (np.where(first == side, values[:, ::2], values[:, 1::2]) for side in (True, False))
    a[0] *= math.exp(effect)
    return paired(a, b)


def one_row(a: object, b: object) -> Paired:
    return paired(np.array([a], dtype=np.float64), np.array([b], dtype=np.float64))


def rows(found: list[Named]) -> list[int]:
    return [each.row for each in found]


@pytest.mark.parametrize("kind", MACHINES)
def test_nothing_is_named_in_nineteen_of_twenty_studies_in_which_nothing_differs(kind: str) -> None:
    rng = np.random.default_rng(SEED)
    wrong = sum(bool(named(_pair(kind, 8, rng), [0.0] * METRICS, 0.05)) for _ in range(STUDIES))
    assert wrong <= STUDIES / 20


@pytest.mark.parametrize("kind", ["normal", "drift", "regimes"])
def test_one_that_differs_fourfold_is_named_in_eight_rounds_and_no_other(kind: str) -> None:
    rng = np.random.default_rng(SEED)
    found = [named(_pair(kind, 8, rng, math.log(4)), [0.01] * METRICS, 0.05) for _ in range(20)]
    assert sum(rows(each) == [0] for each in found) >= 19


def test_no_single_round_names_anything_and_what_is_no_amount_or_of_neither_side_is_not_compared() -> None:
    assert named(one_row([1e6, *[1.0] * 9], [1.0] * 10), [0.0], 0.05) == []
    for bad in (math.nan, math.inf, -1.0):
        pair = one_row([1.0, bad], [1.0, 2.0])
        assert not (pair.usable[0] or pair.varies[0] or pair.x.any())
    pair = one_row([0.0, 0.0], [0.0, 0.0])
    assert pair.usable[0] and not pair.varies[0]


@given(SHARES, st.data())
def test_exchanging_the_sides_turns_the_sign_and_nothing_else(values: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(0, 1e9), min_size=len(values), max_size=len(values)))
    one, other = one_row(values, others), one_row(others, values)
    assert one.x == pytest.approx(-other.x)
    assert log_evidence_of_means(one.x) == pytest.approx(log_evidence_of_means(other.x))


def test_the_evidence_against_0_is_what_the_interval_leaves_out_and_equal_values_give_the_most() -> None:
    values = np.array([0.3, 0.5, 0.4, 0.35, 0.6, 0.42, 0.5])
    (evidence,) = log_evidence_of_means(values[None, :])
    assert mean_interval(values, math.exp(-evidence)).low == pytest.approx(0.0, abs=1e-9)
    same, nearly, none = log_evidence_of_means(np.array([[0.7] * 6, [0.7] * 5 + [0.71], [0.0] * 6]))
    assert same > nearly > none
    assert same == pytest.approx(2.5 * math.log(61))
    assert none == 0.0


@given(st.lists(st.floats(-5, 30), min_size=1, max_size=40))
def test_what_is_needed_is_what_closed_testing_asks_of_families_of_one(evidence: list[float]) -> None:
    asked = thresholds([Hypothesis(at, "a", "b", log) for at, log in enumerate(evidence)], 0.05)
    assert needed_by(np.array(evidence), 0.05) == pytest.approx(asked, rel=1e-3)


@pytest.mark.parametrize("metrics", [1, 10, 40])
def test_rounds_needed_are_the_fewest_in_which_equal_log_ratios_are_named(metrics: int) -> None:
    def first_named(rounds: int) -> bool:
        nearly = 1 + 1e-3 * np.random.default_rng(SEED).normal(size=(metrics, rounds))
        nearly[0] = 2.0
        return 0 in rows(named(paired(nearly, np.ones((metrics, rounds))), [0.01] * metrics, 0.05))

    needed = rounds_needed(metrics, 0.05)
    assert first_named(needed) and not first_named(needed - 1)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=20))
def test_the_rank_correlation_is_that_of_scipy(points: list[tuple[int, int]]) -> None:
    x, y = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert correlation(x, y) == pytest.approx(float(spearmanr(x, y).statistic))
    else:
        assert correlation(x, y) == 0.0


def test_values_that_rise_together_move_together_and_an_inverse_says_the_same() -> None:
    x = np.arange(8.0)
    others = [x**3, -x, np.array([3.0, 1, 4, 1, 5, 2, 6, 0])]
    assert [moves_together(x, y) for y in others] == [1, -1, 0]
    assert moves_together(x[:5], x[:5]) == 0, "too few say nothing"
    twice = np.full(6, math.log(2))
    ratios = np.array([twice, -twice, np.full(6, math.log(2.2)), [*twice[:5], 0.0]])
    assert says_the_same(twice, ratios).tolist() == [True, True, False, False]


def test_pooled_is_the_mean_over_combinations_and_infinite_ratios_stay_bounded() -> None:
    one, none = one_row([2.0] * 3, [1.0] * 3), one_row([2.0] * 3, [0.0] * 3)
    assert pooled([one, one]).x == pytest.approx(one.x)
    both = pooled([one, none])
    assert not both.logs[0]
    assert both.x == pytest.approx((1 + 1 / 3) / 2)
