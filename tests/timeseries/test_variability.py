"""Variability in the words of those who coined them, what samples say that depend on each other, and shapes."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import gaussian_kde, norm

from storlab.timeseries.variability import (
    Floats,
    autocorrelation,
    bell,
    box,
    course,
    density,
    effective_sample_size,
    even_step,
    longest_stall,
    near,
    outliers,
    quantile_differences,
    robust_ar1,
    shared_edges,
    shares,
    times_least,
    variability,
)

from .noise import ar1

samples = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)


@given(samples)
def test_variance_and_sigma_are_those_of_the_population(values: list[float]) -> None:
    found = variability(np.array(values), 1.0)
    assert found.variance == pytest.approx(statistics.pvariance(values), rel=1e-6, abs=1e-3)
    assert found.sigma == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-3)


@given(samples, st.floats(0, 5), st.floats(0, 5))
def test_longer_whiskers_leave_no_more_outliers(values: list[float], a: float, b: float) -> None:
    assert outliers(np.array(values), max(a, b)).sum() <= outliers(np.array(values), min(a, b)).sum()


def test_outliers_stalls_and_the_effective_size_of_independent_samples_are_as_they_should() -> None:
    values = np.array([1.0, 2, 3, 4, 5, 8.0, 8.01])  # quartiles 2.5 and 6.5
    assert outliers(np.append(values, [12.4])).sum() == 0
    assert outliers(np.append(values, [30.0])).tolist() == [False] * 7 + [True]
    values = np.array([100.0, 0, 0, 101, 99, 0, 0.5, 0, 100, 100, 98, 102, 0])
    assert longest_stall(values, 0.5) == 1.5
    assert longest_stall(np.full(8, 100.0), 0.5) == 0.0
    assert longest_stall(np.zeros(8), 0.5) == 4.0
    assert longest_stall(np.array([]), 0.5) == 0.0
    assert effective_sample_size(np.random.default_rng(1).standard_normal(500)) > 350
    assert effective_sample_size(np.full(30, 7.1)) == 30


def test_the_variance_factor_of_what_does_not_vary_is_1_and_of_no_samples_nothing_is_said() -> None:
    assert times_least([4.0, 1.0, 2.0]) == [4.0, 1.0, 2.0]
    assert times_least([0.0, 4.0, 0.0]) == [1.0, None, 1.0]
    assert times_least([]) == []
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


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_ar1_noise_is_worth_its_share_of_independent_samples(phi: float) -> None:
    n = 20_000
    found = effective_sample_size(ar1(np.random.default_rng(1), n, phi))
    assert found == pytest.approx(n * (1 - phi) / (1 + phi), rel=0.2)


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.9])
def test_neighbours_dependence_is_seen_through_changes_of_the_level(phi: float) -> None:
    values = ar1(np.random.default_rng(4), 5000, phi)
    values[1000:] += 50
    values[3000:] -= 100
    assert robust_ar1(values) == pytest.approx(phi, abs=0.1)


drawn = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, allow_subnormal=False))


def test_edges_go_from_the_least_to_the_largest_and_there_are_no_bins_of_nothing() -> None:
    edges = shared_edges([np.array([3.0, 5.0]), np.array([]), np.array([1.0, 30.0])])
    assert (len(edges), edges[0], edges[-1]) == (30, 1.0, 30.0)
    assert shares(np.array([1.0, 30.0, 31.0]), edges).sum() == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no samples"):
        shared_edges([np.array([])])


@given(drawn)
def test_a_density_has_an_area_of_one_but_for_what_is_far_away_or_there_is_none(values: Floats) -> None:
    found = density(values)
    if found is not None:
        at, height = found
        assert (height >= 0).all()
        assert np.trapezoid(height, at) == pytest.approx(near(values).mean(), abs=0.03)


def test_a_density_is_a_kernel_estimate_of_what_varies_not_below_zero() -> None:
    values = np.random.default_rng(1).normal(100, 7, 2000)
    at, height = density(values) or pytest.fail("none")
    width = 0.9 * min(values.std(), np.subtract(*np.percentile(values, [75, 25])) / 1.34) * len(values) ** -0.2
    exact = gaussian_kde(values, width / values.std(ddof=1))(at)
    assert np.abs(height - exact).max() < 0.02 * exact.max()
    at, height = density(np.random.default_rng(5).exponential(10, 1000)) or pytest.fail("none")
    assert at.min() == 0.0
    assert height[0] > 0.05
    assert np.trapezoid(height, at) == pytest.approx(1.0, abs=0.01)
    assert density(np.full(50, 3.0)) is None
    assert density(np.array([1.0])) is None


def test_bells_whiskers_and_quantiles_are_those_of_their_definition() -> None:
    at, height = bell(10.0, 2.0)
    assert (len(at), at[0], at[-1]) == (100, 4.0, 16.0)
    assert height == pytest.approx(norm(10, 2).pdf(at))
    found = box(np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 50]))
    assert (found.low, found.high, found.outliers.tolist()) == (1.0, 8.0, [50.0])
    values = np.random.default_rng(2).lognormal(0, 1, 500)
    at = np.linspace(0.01, 0.99, 50)
    assert quantile_differences(2 * values, values, at) == pytest.approx(np.ones(50))
    assert np.isnan(quantile_differences(values, np.zeros(5), at)).all()


@given(arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e6, 1e6)), st.floats(0.5, 20.0))
def test_steps_lose_no_sample_and_no_extreme(values: Floats, step: float) -> None:
    t = np.arange(1, len(values) + 1, dtype=np.float64)
    found = course(t, values, step)
    assert found.count.sum() == len(values)
    assert (found.low.min(), found.high.max()) == (values.min(), values.max())
    assert (found.mean * found.count).sum() == pytest.approx(values.sum(), abs=1e-6)
    assert (np.diff(found.t) > 0).all()


def test_samples_at_the_end_of_an_interval_belong_to_it_and_gaps_stay() -> None:
    found = course(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 5.0, 5.0]), 2.0)
    assert found.t.tolist() == [1.0, 3.0]
    assert found.mean.tolist() == [2.0, 5.0]
    assert found.variance.tolist() == [1.0, 0.0]
    found = course(np.array([1.0, 9.0]), np.array([1.0, 2.0]), 2.0)
    assert found.t.tolist() == [1.0, 9.0]
    assert len(course(np.zeros(0), np.zeros(0), 1.0).t) == 0


@pytest.mark.parametrize(("duration", "step"), [(30, 5), (43200, 3600), (100, 10), (600, 60), (200000, 18000)])
def test_parts_have_round_lengths(duration: float, step: float) -> None:
    assert even_step(duration, 12) == step
