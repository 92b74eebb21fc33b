"""MSER-5 cuts the warm-up, and nothing but it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.steady import mser


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


def test_a_slow_start_is_cut() -> None:
    noise = np.random.default_rng(2).standard_normal(400)
    values = 100 + noise
    values[:40] -= 60
    assert mser(values) == 40


def test_a_steady_series_is_kept_whole_and_a_short_one_is_not_judged() -> None:
    assert mser(np.full(100, 5.0)) == 0
    assert mser(np.arange(49.0)) is None


def test_a_series_that_never_settles_has_no_warm_up() -> None:
    assert mser(np.linspace(0, 100, 200)) is None
