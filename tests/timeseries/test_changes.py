"""Changes of the level and drift are found where they are, and not in noise that lingers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from storlab.timeseries.changes import block_size, change_points, changes, refined, self_normalised
from storlab.timeseries.drift import mann_kendall, trend
from storlab.timeseries.drift import self_normalised as line_of
from storlab.timeseries.steady import block_means

from .noise import Floats, ar1, regimes


def found_in(values: Floats) -> list[int]:
    size = block_size(values)
    return refined(values, change_points(block_means(values, size)), size)


@pytest.mark.parametrize(("n", "phi"), [(30, 0.0), (60, 0.6), (100, 0.9), (300, 0.6), (600, 0.9), (3000, 0.97)])
def test_noise_that_lingers_is_no_change_of_the_level(n: int, phi: float) -> None:
    rng = np.random.default_rng(n)
    assert sum(bool(found_in(ar1(rng, n, phi))) for _ in range(100)) <= 5


def test_noise_that_lingers_on_white_noise_and_heavy_tails_are_no_change() -> None:
    rng = np.random.default_rng(3)
    assert sum(bool(found_in(ar1(rng, 600, 0.9) + rng.standard_normal(600))) for _ in range(100)) <= 5
    assert sum(bool(found_in(rng.standard_t(3, 300))) for _ in range(100)) <= 2


@pytest.mark.parametrize(("n", "phi", "step"), [(60, 0.0, 8.0), (300, 0.0, 3.0), (300, 0.5, 8.0), (3000, 0.8, 3.0)])
def test_a_change_is_found_where_it_is(n: int, phi: float, step: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        values = ar1(rng, n, phi)
        values[n // 3 :] += step
        found = found_in(values)
        assert len(found) == 1
        assert abs(found[0] - n // 3) <= max(2 * block_size(values), n // 60)


def test_changes_without_noise_that_come_back_or_are_too_small_are_as_they_should() -> None:
    values = 1000 + np.random.default_rng(6).standard_normal(400)
    values[150:250] -= 20
    found = found_in(values)
    assert len(found) == 2
    assert np.abs(np.array(found) - [150, 250]).max() <= 4
    assert found_in(np.repeat([5.0, 7.0], 100)) == [100]
    assert found_in(np.full(200, 0.1)) == []
    assert found_in(np.arange(5.0)) == []
    values = np.repeat([100.0, 100.2, 110.0], 40) + 0.01 * np.random.default_rng(7).standard_normal(120)
    assert change_points(values) == [40, 80]
    assert change_points(values, least_step=1.0) == [80]
    before, after = changes(np.repeat([1.0, 2.0, 4.0], 10), [10, 20])
    assert (before.at, before.before, before.after) == (10, 1.0, 2.0)
    assert (after.at, after.before, after.after) == (20, 2.0, 4.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=12, max_size=20), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_neither_unit_nor_level_moves_the_statistic(values: list[float], factor: float, offset: float) -> None:
    x = np.round(values, 1)
    if x.std() > 1e-2:
        np.testing.assert_allclose(self_normalised(x * factor + offset), self_normalised(x), rtol=1e-3, atol=1e-3)


def test_the_statistic_is_that_of_its_definition() -> None:
    x = np.random.default_rng(8).standard_normal(12)  # one window: six before, six after

    def wander(part: Floats) -> float:
        sums = np.cumsum(part)
        return float(((sums - np.arange(1, 7) / 6 * sums[-1]) ** 2).sum())

    difference = 36 / 12**1.5 * (x[:6].mean() - x[6:].mean())
    expected = difference**2 / ((wander(x[:6]) + wander(x[6:])) / 144)
    assert self_normalised(x)[6] == pytest.approx(expected)
    assert np.count_nonzero(self_normalised(x)) == 1


@given(st.lists(st.floats(-1e12, 1e12), max_size=120))
def test_whatever_the_values_positions_lie_within_and_ascend(values: list[float]) -> None:
    found = found_in(np.array(values))
    assert found == sorted(set(found))
    assert all(0 < at < len(values) for at in found)


@given(st.lists(st.integers(-20, 20), min_size=4, max_size=40))
def test_the_slope_is_sens(values: list[int]) -> None:
    slope, p = mann_kendall(np.array(values, dtype=np.float64))
    assert slope == pytest.approx(stats.theilslopes(values).slope)
    assert 0 <= p <= 1


def test_p_is_about_kendalls_less_sure_with_dependence_and_a_line_is_drift() -> None:
    values = np.random.default_rng(1).standard_normal(50) + 0.02 * np.arange(50)
    expected = stats.kendalltau(np.arange(50), values, method="asymptotic").pvalue
    assert mann_kendall(values)[1] == pytest.approx(expected, rel=0.2)
    walk = np.cumsum(np.random.default_rng(2).standard_normal(100))
    plain = stats.kendalltau(np.arange(100), walk, method="asymptotic").pvalue
    assert mann_kendall(walk)[1] > 100 * plain
    line, level = trend(np.linspace(10, 20, 50)), trend(np.full(50, 3.3))
    assert line is not None and line.sure
    assert level is not None and not level.sure
    assert trend(np.arange(19.0)) is None


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


def test_the_line_and_the_wander_of_what_it_leaves_are_those_of_their_definition() -> None:
    values = np.random.default_rng(5).standard_normal(40)
    slope, start = np.polyfit(np.arange(40), values, 1)
    line = line_of(values)
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
    assert found is not None and found.low <= found.slope <= found.high
    assert found.likely or not found.sure
