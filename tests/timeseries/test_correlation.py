"""How much samples say that depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.variability import autocorrelation, effective_sample_size, robust_ar1

from .noise import ar1


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
