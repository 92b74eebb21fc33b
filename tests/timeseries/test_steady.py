"""Steady states by SNIA's and by fio's definition, computed plainly; the warm-up that MSER-5 cuts; and dips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.dips import Dip, Event, dips
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
def test_fios_rule_is_the_largest_distance_from_a_mean(values: list[float], window: int, limit: float) -> None:
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


USUAL = st.lists(st.floats(95, 105), min_size=10, max_size=10)


def at_each_second(values: list[float], *events: Event) -> list[Dip | None]:
    return dips(np.arange(1.0, len(values) + 1), np.array(values), list(events))


@given(USUAL, st.floats(0.4, 1.0), st.integers(1, 8))
def test_a_planted_dip_is_as_deep_and_as_long_as_it_was_planted(usual: list[float], depth: float, length: int) -> None:
    middle = float(np.median(usual))
    planted = [*usual, 100.0, *[middle * (1 - depth)] * length, 100.0, 100.0]
    (found,) = at_each_second(planted, Event(10, 11))
    assert found is not None
    assert found.depth == pytest.approx(depth) and found.length == length


@given(USUAL, st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_what_is_never_lower_than_before_has_no_dip(usual: list[float], above: list[float]) -> None:
    lowest, highest = min(usual), max(usual)
    rest = [lowest + share * (highest - lowest) for share in above]
    assert at_each_second([*usual, *rest], Event(10, 12)) == [Dip(0, 0)]


@pytest.mark.parametrize("cv", [0.05, 0.2, 0.46])
def test_noise_alone_makes_one_in_2_of_100_series_whatever_its_cv(cv: float) -> None:
    noise = np.random.default_rng(1).normal(100, 100 * cv, (1000, 20))
    found = [at_each_second(list(each), Event(10, 10.5)) for each in noise]
    assert 10 < sum(each is not None and each.depth > 0 for (each,) in found) < 30


def test_one_after_the_other_has_a_dip_of_its_own_and_where_too_little_is_known_none_is_told() -> None:
    values = [*[100.0] * 10, 60, 50, *[100.0] * 8, 20, *[100.0] * 9]
    assert at_each_second(values, Event(10, 12), Event(20, 21)) == [Dip(0.5, 2.0), Dip(0.8, 1.0)]
    assert at_each_second([100.0, 100, 10], Event(2, 3)) == [None], "two seconds before"
    assert at_each_second([100.0] * 10, Event(10, 11)) == [None], "none after"
    assert at_each_second([0.0] * 20, Event(10, 11)) == [None], "nothing was done before"
    assert at_each_second([], Event(0, 1)) == at_each_second([100.0], Event(0, 1)) == [None]


@given(st.lists(st.floats(0, 1e9), max_size=40), st.lists(st.floats(-5, 50), max_size=6))
def test_of_any_series_a_dip_is_a_share_and_no_longer_than_it(values: list[float], times: list[float]) -> None:
    found = at_each_second(values, *(Event(each, each + 1) for each in sorted(times)))
    assert len(found) == len(times)
    for each in found:
        if each is not None:
            assert 0 <= each.depth <= 1 and 0 <= each.length <= len(values) and (each.depth > 0) == (each.length > 0)
