"""Steady states by SNIA's and by fio's definition, computed plainly beside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.steady import fio_steady, fio_time, snia_steady, snia_time

rates = st.lists(st.floats(1, 1e6), max_size=40)


@given(rates)
def test_snias_rule_is_range_and_slope_of_five_rounds(values: list[float]) -> None:
    plain = None
    for end in range(5, len(values) + 1):
        window = np.array(values[end - 5 : end])
        slope = np.polyfit(np.arange(5), window, 1)[0]
        spread, rise, mean = window.max() - window.min(), abs(slope) * 4, window.mean()
        if abs(spread - 0.2 * mean) < 1e-6 * mean or abs(rise - 0.1 * mean) < 1e-6 * mean:
            return  # on the edge, where rounding decides
        if spread <= 0.2 * mean and rise <= 0.1 * mean:
            plain = end
            break
    assert snia_steady(np.array(values)) == plain


@given(rates, st.integers(1, 8), st.floats(0.01, 0.5))
def test_fios_rule_is_the_largest_distance_from_the_windows_mean(
    values: list[float], window: int, limit: float
) -> None:
    plain = None
    for end in range(window, len(values) + 1):
        part = np.array(values[end - window : end])
        distance = np.abs(part - part.mean()).max()
        if abs(distance - limit * part.mean()) < 1e-6 * part.mean():
            return
        if distance < limit * part.mean():
            plain = end
            break
    assert fio_steady(np.array(values), window, limit) == plain


def test_a_series_that_settles_is_steady_from_then_on() -> None:
    values = np.concatenate([np.linspace(0, 1000, 60), np.full(540, 1000.0)])  # a sample a second, 24 s a round
    found = snia_time(values, 1.0)
    assert found is not None and 120 <= found <= 216
    assert fio_time(values, 1.0) is not None


def test_rounds_are_minutes_where_the_series_is_long_enough() -> None:
    assert snia_time(np.full(3600, 5.0), 1.0) == 300.0
    assert snia_time(np.full(50, 5.0), 0.1) == pytest.approx(1.0)  # 25 rounds of 0.2 s


def test_a_series_that_jumps_is_never_steady() -> None:
    values = np.tile([100.0, 200.0], 50)
    assert snia_steady(values) is None
    assert fio_steady(values, 5) is None
    assert snia_steady(np.array([1.0, 1, 1])) is None
    assert snia_steady(np.zeros(9)) is None
