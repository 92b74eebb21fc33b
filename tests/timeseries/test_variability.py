"""Variability in the words of those who coined them, and how much samples say that depend on each other."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.variability import (
    autocorrelation,
    effective_sample_size,
    longest_stall,
    outliers,
    robust_ar1,
    variability,
    variance_factors,
)

from .noise import ar1

samples = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)


@given(samples)
def test_variance_and_sigma_are_those_of_the_population(values: list[float]) -> None:
    found = variability(np.array(values), 1.0)
    assert found.variance == pytest.approx(statistics.pvariance(values), rel=1e-6, abs=1e-3)
    assert found.sigma == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-3)


@given(samples, st.floats(1e-3, 1e3))
def test_the_coefficient_of_variation_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    one, other = (variability(np.array(values) * times, 1.0).cv for times in (1.0, factor))
    assert (one is None) == (other is None) or max(values) < 1e-300
    if one is not None and other is not None:
        assert other == pytest.approx(one, rel=1e-6, abs=1e-9)


@given(samples, st.floats(0, 5), st.floats(0, 5))
def test_longer_whiskers_leave_no_more_outliers(values: list[float], a: float, b: float) -> None:
    assert outliers(np.array(values), max(a, b)).sum() <= outliers(np.array(values), min(a, b)).sum()


def test_outliers_lie_beyond_the_fences_and_a_stall_is_the_longest_time_of_next_to_nothing() -> None:
    values = np.array([1.0, 2, 3, 4, 5, 8.0, 8.01])  # quartiles 2.5 and 6.5
    assert outliers(np.append(values, [12.4])).sum() == 0
    assert outliers(np.append(values, [30.0])).tolist() == [False] * 7 + [True]
    values = np.array([100.0, 0, 0, 101, 99, 0, 0.5, 0, 100, 100, 98, 102, 0])
    assert longest_stall(values, 0.5) == 1.5
    assert longest_stall(np.full(8, 100.0), 0.5) == 0.0
    assert longest_stall(np.zeros(8), 0.5) == 4.0
    assert longest_stall(np.array([]), 0.5) == 0.0


@given(st.lists(st.just(0.0) | st.floats(1e-9, 1e12), min_size=1, max_size=6))
def test_the_variance_factor_is_how_many_times_the_smallest_variance_it_is(variances: list[float]) -> None:
    for variance, factor in zip(variances, variance_factors(variances), strict=True):
        if factor is None:
            assert min(variances) == 0 < variance
        else:
            assert factor >= 1
            assert factor * min(variances) == pytest.approx(variance)


def test_the_variance_factor_of_what_does_not_vary_is_1_and_of_no_samples_nothing_is_said() -> None:
    assert variance_factors([4.0, 1.0]) == [4.0, 1.0]
    assert variance_factors([0.0, 4.0, 0.0]) == [1.0, None, 1.0]
    assert variance_factors([]) == []
    with pytest.raises(ValueError, match="no samples"):
        variability(np.array([]), 1.0)
    assert variability(np.zeros(3), 1.0).cv is None


@given(st.lists(st.floats(-1e6, 1e6), max_size=50))
def test_autocorrelation_is_the_sum_of_products_by_that_of_squares(values: list[float]) -> None:
    x = np.array(values)
    rho = autocorrelation(x)
    assert len(rho) == len(x)
    centred = x - x.mean() if len(x) else x
    if len(x) and np.abs(centred).max() > max(1e-6 * np.abs(x).max(), 1e-100):  # not rounding, nor lost when squared
        for lag in range(len(x)):
            expected = centred[lag:] @ centred[: len(x) - lag] / (centred @ centred)
            assert rho[lag] == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.floats(-1e9, 1e9), max_size=60))
def test_the_effective_sample_size_lies_between_one_and_n(values: list[float]) -> None:
    assert min(len(values), 1) <= effective_sample_size(np.array(values)) <= len(values)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_ar1_noise_is_worth_its_share_of_independent_samples(phi: float) -> None:
    n = 20_000
    found = effective_sample_size(ar1(np.random.default_rng(1), n, phi))
    assert found == pytest.approx(n * (1 - phi) / (1 + phi), rel=0.2)


def test_independent_samples_count_nearly_in_full_and_equal_ones_too() -> None:
    assert effective_sample_size(np.random.default_rng(1).standard_normal(500)) > 350
    assert effective_sample_size(np.full(30, 7.1)) == 30


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.9])
def test_neighbours_dependence_is_seen_through_changes_of_the_level(phi: float) -> None:
    values = ar1(np.random.default_rng(4), 5000, phi)
    values[1000:] += 50
    values[3000:] -= 100
    assert robust_ar1(values) == pytest.approx(phi, abs=0.1)
