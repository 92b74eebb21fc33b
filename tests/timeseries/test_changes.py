"""Changes of the level are found where they are, and noise that lingers is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.changes import block_size, change_points, changes, refined, self_normalised
from storlab.timeseries.steady import block_means

from .noise import Floats, ar1


def found_in(values: Floats) -> list[int]:
    size = block_size(values)
    return refined(values, change_points(block_means(values, size)), size)


@pytest.mark.parametrize(("n", "phi"), [(30, 0.0), (60, 0.6), (100, 0.9), (300, 0.6), (600, 0.9), (3000, 0.97)])
def test_noise_that_lingers_is_no_change_of_the_level(n: int, phi: float) -> None:
    rng = np.random.default_rng(n)
    assert sum(bool(found_in(ar1(rng, n, phi))) for _ in range(100)) <= 5


def test_noise_that_lingers_below_white_noise_is_no_change_either() -> None:
    rng = np.random.default_rng(3)
    assert sum(bool(found_in(ar1(rng, 600, 0.9) + rng.standard_normal(600))) for _ in range(100)) <= 5


def test_heavy_tails_are_no_change() -> None:
    rng = np.random.default_rng(4)
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


def test_a_level_that_comes_back_is_two_changes() -> None:
    values = 1000 + np.random.default_rng(6).standard_normal(400)
    values[150:250] -= 20
    found = found_in(values)
    assert len(found) == 2
    assert np.abs(np.array(found) - [150, 250]).max() <= 4


def test_a_change_without_any_noise_is_found_and_no_change_is_none() -> None:
    assert found_in(np.repeat([5.0, 7.0], 100)) == [100]
    assert found_in(np.full(200, 0.1)) == []
    assert found_in(np.arange(5.0)) == []


def test_steps_that_are_too_small_to_matter_are_left_out() -> None:
    values = np.repeat([100.0, 100.2, 110.0], 40) + 0.01 * np.random.default_rng(7).standard_normal(120)
    assert change_points(values) == [40, 80]
    assert change_points(values, least_step=1.0) == [80]


def test_levels_are_the_means_between_changes() -> None:
    before, after = changes(np.repeat([1.0, 2.0, 4.0], 10), [10, 20])
    assert (before.at, before.before, before.after) == (10, 1.0, 2.0)
    assert (after.at, after.before, after.after) == (20, 2.0, 4.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=12, max_size=20), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_the_statistic_depends_neither_on_the_unit_nor_on_the_level(
    values: list[float], factor: float, offset: float
) -> None:
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
