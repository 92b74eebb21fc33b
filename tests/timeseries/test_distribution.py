"""Shapes of distributions: bins, density, bell curve, box, quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import gaussian_kde, norm

from storlab.timeseries.distribution import bell, box, density, near, quantile_differences, shared_edges, shares
from storlab.timeseries.variability import Floats

samples = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, allow_subnormal=False))


@given(st.lists(samples, min_size=1, max_size=4))
def test_shared_bins_hold_all_samples_of_all_groups(groups: list[Floats]) -> None:
    edges = shared_edges(groups)
    assert len(edges) in (2, 30)
    assert (np.diff(edges) > 0).all()
    for group in groups:
        assert shares(group, edges).sum() == pytest.approx(1.0)


def test_thirty_edges_go_from_the_least_to_the_largest_of_all() -> None:
    edges = shared_edges([np.array([3.0, 5.0]), np.array([]), np.array([1.0, 30.0])])
    assert (len(edges), edges[0], edges[-1]) == (30, 1.0, 30.0)


def test_there_are_no_bins_of_nothing() -> None:
    with pytest.raises(ValueError, match="no samples"):
        shared_edges([np.array([])])


@given(samples)
def test_a_density_has_an_area_of_one_but_for_what_is_far_away_or_there_is_none(values: Floats) -> None:
    found = density(values)
    if found is not None:
        at, height = found
        assert (height >= 0).all()
        assert np.trapezoid(height, at) == pytest.approx(near(values).mean(), abs=0.03)


def test_a_density_is_that_of_a_kernel_estimate() -> None:
    values = np.random.default_rng(1).normal(100, 7, 2000)
    at, height = density(values) or pytest.fail("none")
    width = 0.9 * min(values.std(), np.subtract(*np.percentile(values, [75, 25])) / 1.34) * len(values) ** -0.2
    exact = gaussian_kde(values, width / values.std(ddof=1))(at)
    assert np.abs(height - exact).max() < 0.02 * exact.max()


def test_a_density_of_rates_does_not_reach_below_zero() -> None:
    at, height = density(np.random.default_rng(5).exponential(10, 1000)) or pytest.fail("none")
    assert at.min() == 0.0
    assert height[0] > 0.05
    assert np.trapezoid(height, at) == pytest.approx(1.0, abs=0.01)


def test_what_does_not_vary_has_no_density() -> None:
    assert density(np.full(50, 3.0)) is None
    assert density(np.array([1.0])) is None


def test_a_bell_is_the_normal_distribution_over_three_sigmas() -> None:
    at, height = bell(10.0, 2.0)
    assert (len(at), at[0], at[-1]) == (100, 4.0, 16.0)
    assert height == pytest.approx(norm(10, 2).pdf(at))


@given(samples)
def test_a_box_and_its_outliers_are_all_samples(values: Floats) -> None:
    found = box(values)
    assert found.low <= found.first or len(found.outliers)
    assert found.first <= found.median <= found.third
    inside = (values >= found.low) & (values <= found.high)
    assert inside.sum() + len(found.outliers) == len(values)


def test_whiskers_end_at_samples() -> None:
    found = box(np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 50]))
    assert (found.low, found.high, found.outliers.tolist()) == (1.0, 8.0, [50.0])


def test_quantiles_of_twice_as_much_differ_by_all_of_it() -> None:
    values = np.random.default_rng(2).lognormal(0, 1, 500)
    at = np.linspace(0.01, 0.99, 50)
    assert quantile_differences(2 * values, values, at) == pytest.approx(np.ones(50))
    assert np.isnan(quantile_differences(values, np.zeros(5), at)).all()
