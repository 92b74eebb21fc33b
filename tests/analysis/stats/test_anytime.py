"""Tests of ``storlab.analysis.stats.anytime``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.stats import anytime
from storlab.analysis.stats.anytime import (
    EFFECT_VARIANCE,
    mean_interval,
    width_factor,
    width_factors,
)

from ..simulate import MACHINES, log_ratios, running

samples = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40).map(np.array)
alphas = st.sampled_from([0.2, 0.05, 0.005, 0.0001])


def log_e_value(values: np.ndarray, mu: float = 0.0, g: float = EFFECT_VARIANCE) -> float:
    """log B of the module's docstring, as it stands there: the evidence that intervals are inverted from."""
    n, v, a = len(values), len(values) - 1, 1 + len(values) * g
    squared = n * (values.mean() - mu) ** 2 / values.var(ddof=1)
    return float(-math.log(a) / 2 + n / 2 * (math.log1p(squared / v) - math.log1p(squared / (v * a))))


def test_the_e_value_is_the_bayes_factor_by_numerical_integration() -> None:
    from scipy import integrate, stats

    values = np.array([0.3, 1.1, 0.7, -0.2, 0.9])
    n = len(values)
    t = math.sqrt(n) * values.mean() / values.std(ddof=1)
    # Under effect size d, t is noncentral t with noncentrality √n·d; d ~ N(0, 10).
    alternative, _ = integrate.quad(
        lambda d: stats.nct.pdf(t, n - 1, math.sqrt(n) * d) * stats.norm.pdf(d, scale=math.sqrt(10)), -15, 15
    )
    assert log_e_value(values) == pytest.approx(math.log(alternative / stats.t.pdf(t, n - 1)), rel=1e-6)


@given(samples, alphas)
def test_the_ends_of_the_interval_have_an_e_value_of_one_over_alpha(values: np.ndarray, alpha: float) -> None:
    interval = mean_interval(values, alpha)
    if not interval.bounded or interval.sd < 1e-3:
        return
    for end in (interval.low, interval.high):
        assert log_e_value(values, end) == pytest.approx(-math.log(alpha), rel=1e-6)


@given(samples, alphas)
def test_a_mean_inside_the_interval_has_less_evidence_against_it_than_one_outside(
    values: np.ndarray, alpha: float
) -> None:
    interval = mean_interval(values, alpha)
    if not interval.bounded or interval.sd < 1e-3:
        return
    width = interval.high - interval.low
    assert log_e_value(values, interval.low + 0.1 * width) < -math.log(alpha)
    assert log_e_value(values, interval.low - 0.1 * width) > -math.log(alpha)


@pytest.mark.parametrize(
    ("g", "rounds", "factor"),
    [(1, 5, 3.78), (1, 10, 1.22), (1, 30, 0.61), (10, 5, 2.42), (10, 10, 1.32), (10, 30, 0.68)],
)
def test_the_cost_table_of_the_documentation_holds(g: float, rounds: int, factor: float) -> None:
    assert round(float(width_factors(np.array([rounds]), 0.05, g)[0]), 2) == factor
    assert f"{factor:.2f}" in Path(anytime.__file__).read_text()


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.005, 0.0001])
def test_intervals_shrink_with_every_round(alpha: float) -> None:
    factors = width_factors(np.arange(1, 100_000), alpha)
    finite = factors[np.isfinite(factors)]
    assert (np.diff(finite) < 0).all()
    assert np.isinf(factors[: len(factors) - len(finite)]).all(), "once there is an interval, there always is"


def test_one_round_has_no_interval() -> None:
    interval = mean_interval(np.array([3.0]), 0.05)
    assert not interval.bounded
    assert math.isnan(interval.sd)


def test_two_rounds_have_an_interval_only_at_a_low_confidence() -> None:
    assert math.isinf(width_factor(2, 0.05))
    assert math.isfinite(width_factor(4, 0.05))


def test_equal_values_give_a_point_and_equal_but_for_rounding_do_too() -> None:
    for values in (np.full(6, 7.0), 7.0 + np.array([0, 1e-15, -1e-15, 0, 1e-15, 0])):
        interval = mean_interval(values, 0.05)
        assert interval.sd == 0
        assert interval.low == interval.high == pytest.approx(7.0)


def test_equal_values_too_few_for_an_interval_have_none() -> None:
    assert not mean_interval(np.full(2, 7.0), 0.05).bounded


@given(samples, st.floats(0.01, 100), st.floats(-100, 100))
def test_intervals_follow_a_change_of_unit(values: np.ndarray, scale: float, shift: float) -> None:
    interval, other = mean_interval(values, 0.05), mean_interval(scale * values + shift, 0.05)
    if interval.bounded and interval.sd > 1e-3:
        assert other.low == pytest.approx(scale * interval.low + shift, rel=1e-6, abs=1e-6)
        assert other.high == pytest.approx(scale * interval.high + shift, rel=1e-6, abs=1e-6)


@given(samples, st.integers(2, 5))
def test_the_same_data_seen_more_often_never_widen_the_interval(values: np.ndarray, times: int) -> None:
    once, often = mean_interval(values, 0.05), mean_interval(np.tile(values, times), 0.05)
    if once.bounded:
        assert often.high - often.low <= (once.high - once.low) * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_an_alpha_that_is_no_probability_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        width_factors(np.array([5]), alpha)


@pytest.mark.parametrize("g", [0.0, -1.0, math.inf, math.nan])
def test_a_prior_without_a_proper_variance_is_refused(g: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        width_factors(np.array([5]), 0.05, g)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean_interval(np.array([]), 0.05)


@pytest.mark.parametrize("kind", MACHINES)
def test_intervals_hold_after_every_round_at_once(kind: str) -> None:
    """4,000 studies with 100 looks each: the interval may miss the truth at any look in 5 % of them at most."""
    values = log_ratios(kind, 4000, 100, np.random.default_rng(20_240_501), effect=0.1)
    mean, sd = running(values)
    factors = width_factors(np.arange(1, 101), 0.05)
    known = np.isfinite(factors)
    missed = known & (np.abs(mean - 0.1) > np.where(known, factors, 0.0) * sd * (1 - 1e-9))
    assert missed[:, 4:].any(axis=1).mean() <= 0.05
