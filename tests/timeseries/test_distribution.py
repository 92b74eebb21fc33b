"""Shapes of distributions: bins, density, bell curve, box, quantiles; and a series in few steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import gaussian_kde, norm

from storlab.timeseries.distribution import (
    bell,
    box,
    course,
    density,
    even_step,
    near,
    quantile_differences,
    shared_edges,
    shares,
)
from storlab.timeseries.variability import Floats

samples = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6, allow_subnormal=False))


@given(st.lists(samples, min_size=1, max_size=4))
def test_shared_bins_hold_all_samples_of_all_groups(groups: list[Floats]) -> None:
    edges = shared_edges(groups)
    assert len(edges) in (2, 30)
    assert (np.diff(edges) > 0).all()
    for group in groups:
        assert shares(group, edges).sum() == pytest.approx(1.0)


def test_edges_go_from_the_least_to_the_largest_and_there_are_no_bins_of_nothing() -> None:
    edges = shared_edges([np.array([3.0, 5.0]), np.array([]), np.array([1.0, 30.0])])
    assert (len(edges), edges[0], edges[-1]) == (30, 1.0, 30.0)
    with pytest.raises(ValueError, match="no samples"):
        shared_edges([np.array([])])


@given(samples)
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


@given(samples)
def test_a_box_and_its_outliers_are_all_samples(values: Floats) -> None:
    found = box(values)
    assert found.low <= found.first or len(found.outliers)
    assert found.first <= found.median <= found.third
    inside = (values >= found.low) & (values <= found.high)
    assert inside.sum() + len(found.outliers) == len(values)


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
