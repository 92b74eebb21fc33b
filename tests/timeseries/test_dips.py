"""Dips: planted ones are found as deep and as long as they are, and where there is none, none is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.dips import Dip, Event, dips

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


@given(USUAL, st.floats(1e-3, 1e3), st.floats(0, 94))
def test_a_dip_does_not_depend_on_the_unit(usual: list[float], factor: float, low: float) -> None:
    values = [*usual, low, 100.0]
    (one,), (other,) = (at_each_second([each * times for each in values], Event(10, 11)) for times in (1.0, factor))
    assert one is not None and other is not None
    assert (other.depth, other.length) == pytest.approx((one.depth, one.length), abs=1e-6)


def test_one_checkpoint_after_the_other_has_a_dip_of_its_own() -> None:
    values = [*[100.0] * 10, 50, 50, *[100.0] * 8, 20, *[100.0] * 9]
    assert at_each_second(values, Event(10, 12), Event(20, 21)) == [Dip(0.5, 2.0), Dip(0.8, 1.0)]


@pytest.mark.parametrize(
    ("values", "event"),
    [
        ([100.0, 100, 10], Event(2, 3)),  # two seconds before
        ([100.0] * 10, Event(10, 11)),  # none after
        ([0.0] * 20, Event(10, 11)),  # nothing was done before
        ([], Event(0, 1)),
        ([100.0], Event(0, 1)),
    ],
)
def test_where_too_little_is_known_none_is_told(values: list[float], event: Event) -> None:
    assert at_each_second(values, event) == [None]


@given(st.lists(st.floats(0, 1e9), max_size=40), st.lists(st.floats(-5, 50), max_size=6))
def test_of_any_series_a_dip_is_a_share_and_no_longer_than_it(values: list[float], times: list[float]) -> None:
    found = at_each_second(values, *(Event(each, each + 1) for each in sorted(times)))
    assert len(found) == len(times)
    for each in found:
        if each is not None:
            assert 0 <= each.depth <= 1 and 0 <= each.length <= len(values) and (each.depth > 0) == (each.length > 0)
