"""Changes of the level, drift, steady states and dips: found where they are, and not in noise that lingers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from storlab.timeseries.changes import block_size, change_points, changes, refined, self_normalised
from storlab.timeseries.drift import Dip, Event, dips, mann_kendall, trend
from storlab.timeseries.drift import self_normalised as line_of
from storlab.timeseries.steady import block_means, fio_steady, fio_time, mser, snia_steady, snia_time

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
