"""Drift is seen where a series rises or falls, and not in noise that lingers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from storlab.timeseries.drift import mann_kendall, self_normalised, trend

from .noise import ar1, regimes


@given(st.lists(st.integers(-20, 20), min_size=4, max_size=40))
def test_the_slope_is_sens(values: list[int]) -> None:
    slope, p = mann_kendall(np.array(values, dtype=np.float64))
    assert slope == pytest.approx(stats.theilslopes(values).slope)
    assert 0 <= p <= 1


def test_without_autocorrelation_p_is_about_that_of_kendalls_tau() -> None:
    values = np.random.default_rng(1).standard_normal(50) + 0.02 * np.arange(50)
    expected = stats.kendalltau(np.arange(50), values, method="asymptotic").pvalue
    assert mann_kendall(values)[1] == pytest.approx(expected, rel=0.2)


def test_dependence_makes_a_trend_less_sure() -> None:
    walk = np.cumsum(np.random.default_rng(2).standard_normal(100))
    plain = stats.kendalltau(np.arange(100), walk, method="asymptotic").pvalue
    assert mann_kendall(walk)[1] > 100 * plain


@pytest.mark.parametrize(("n", "phi"), [(30, 0.0), (60, 0.3), (100, 0.6), (250, 0.9)])
def test_noise_that_lingers_is_no_drift(n: int, phi: float) -> None:
    rng = np.random.default_rng(n)
    found = [trend(ar1(rng, n, phi)) for _ in range(100)]
    assert sum(each is not None and each.sure for each in found) <= 5


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_clear_rise_is_drift(phi: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        found = trend(ar1(rng, 200, phi) - np.linspace(0, 8, 200))
        assert found is not None and found.sure
        assert found.slope == pytest.approx(-8 / 200, rel=0.3)


def test_a_line_without_noise_is_drift_and_a_level_is_none() -> None:
    line, level = trend(np.linspace(10, 20, 50)), trend(np.full(50, 3.3))
    assert line is not None and line.sure
    assert level is not None and not level.sure
    assert trend(np.arange(19.0)) is None


def test_the_line_and_the_wander_of_what_it_leaves_are_those_of_their_definition() -> None:
    values = np.random.default_rng(5).standard_normal(40)
    slope, start = np.polyfit(np.arange(40), values, 1)
    line = self_normalised(values)
    assert line.slope == pytest.approx(slope)
    np.testing.assert_allclose(line.left, values - start - slope * np.arange(40), atol=1e-12)
    assert line.wander == pytest.approx(np.sqrt((np.cumsum(line.left) ** 2).sum()) / 40**2.5)


@pytest.mark.parametrize(("n", "phi"), [(30, 0.0), (100, 0.0), (100, 0.6), (300, 0.9), (300, 0.95)])
def test_the_interval_of_the_slope_has_the_truth_in_about_19_of_20_series(n: int, phi: float) -> None:
    rng = np.random.default_rng(n)
    rise = 0.02 * np.arange(n)
    found = [trend(ar1(rng, n, phi) + rise) for _ in range(200)]
    assert sum(each is not None and not each.low <= 0.02 <= each.high for each in found) <= 16


@pytest.mark.parametrize("switches", [5, 20, 60])
def test_the_interval_of_a_level_that_switches_to_and_fro_hardly_ever_leaves_out_0(switches: int) -> None:
    rng = np.random.default_rng(switches)
    found = [trend(regimes(rng, 200, switches)) for _ in range(200)]
    assert sum(each is not None and each.likely for each in found) <= 16


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=120))
def test_sens_slope_lies_within_its_interval_and_what_is_sure_is_likely(values: list[float]) -> None:
    found = trend(np.array(values))
    assert found is not None
    assert found.low <= found.slope <= found.high
    assert found.likely or not found.sure
