"""Steady states by SNIA's and by fio's definition, computed plainly beside, and the warm-up that MSER-5 cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.steady import fio_steady, fio_time, mser, snia_steady, snia_time

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


def test_a_series_that_settles_is_steady_in_rounds_of_minutes_where_it_is_long_enough() -> None:
    values = np.concatenate([np.linspace(0, 1000, 60), np.full(540, 1000.0)])  # a sample a second, 24 s a round
    found = snia_time(values, 1.0)
    assert found is not None and 120 <= found <= 216
    assert fio_time(values, 1.0) is not None
    assert snia_time(np.full(3600, 5.0), 1.0) == 300.0
    assert snia_time(np.full(50, 5.0), 0.1) == pytest.approx(1.0)  # 25 rounds of 0.2 s
    values = np.tile([100.0, 200.0], 50)
    assert snia_steady(values) is None
    assert fio_steady(values, 5) is None
    assert snia_steady(np.array([1.0, 1, 1])) is None
    assert snia_steady(np.zeros(9)) is None


@given(st.lists(st.floats(0, 1e9), max_size=200))
def test_a_cut_is_whole_batches_of_the_first_half(values: list[float]) -> None:
    cut = mser(np.array(values))
    assert cut is None or (cut % 5 == 0 and cut < len(values) / 2 + 5)


@given(st.lists(st.floats(0, 1e4), min_size=50, max_size=100))
def test_a_cut_is_the_one_after_which_the_mean_is_surest(values: list[float]) -> None:
    """By the definition, computed plainly."""
    means = np.array(values[: len(values) // 5 * 5]).reshape(-1, 5).mean(axis=1)
    plain = [
        float(((means[d:] - means[d:].mean()) ** 2).sum()) / (len(means) - d) ** 2 for d in range(len(means) // 2 + 1)
    ]
    cut = mser(np.array(values))
    chosen = plain[len(means) // 2 if cut is None else cut // 5]
    assert chosen <= min(plain) + 1e-6 * max(1.0, max(plain))


def test_a_slow_start_is_cut_a_steady_series_kept_whole_and_a_short_one_not_judged() -> None:
    noise = np.random.default_rng(2).standard_normal(400)
    values = 100 + noise
    values[:40] -= 60
    assert mser(values) == 40
    assert mser(np.full(100, 5.0)) == 0
    assert mser(np.arange(49.0)) is None
    assert mser(np.linspace(0, 100, 200)) is None
