"""Tests of ``storlab.analysis.estimates`` against the plain functions, series by series."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.estimates import Recorded, estimates
from storlab.analysis.stats import checks
from storlab.analysis.stats.anytime import mean_interval
from storlab.analysis.summary import Estimate
from storlab.timeseries.drift import average_ranks

CELLS = {1: {"fs": "xfs"}, 2: {"fs": "ext4"}}


def recorded(*series: list[float | None]) -> Recorded:
    """Each of ``series`` is one metric of cell 1, a value a round."""
    names = [f"m{index}" for index in range(len(series))]
    rows = [(index, round_, value) for index, one in enumerate(series) for round_, value in enumerate(one, 1)]
    return Recorded(
        pl.DataFrame({"series": range(len(series)), "cell": 1, "source": "load", "metric": names}).with_columns(
            pl.col("series").cast(pl.UInt32), unit=pl.lit("B/s"), better=pl.lit("higher")
        ),
        pl.DataFrame(rows, schema={"series": pl.UInt32, "round": pl.Int64, "value": pl.Float64}, orient="row"),
    )


def one(values: list[float | None]) -> Estimate:
    (found,) = estimates(recorded(values), CELLS, 0.95, 5)
    return found


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=30))
def test_an_estimate_says_what_the_plain_functions_say(values: list[float]) -> None:
    found, numbers = one(list(values)), np.array(values)
    interval = mean_interval(numbers, 0.05)
    assert found.rounds == len(values)
    assert found.mean == pytest.approx(numbers.mean())
    assert found.median == pytest.approx(np.median(numbers))
    assert found.sd == pytest.approx(interval.sd, rel=1e-6, abs=1e-9)
    assert found.cv == pytest.approx(interval.sd / numbers.mean(), rel=1e-6, abs=1e-9)
    if interval.bounded:
        assert (found.low, found.high) == pytest.approx((max(interval.low, 0.0), interval.high), rel=1e-6)
    else:
        assert (found.low, found.high) == (None, None)


@given(st.lists(st.sampled_from([1.0, 1.1, 1.2, 1.3, 2.0, 9.0, 50.0]), min_size=5, max_size=25))
def test_warnings_are_those_of_the_plain_checks(values: list[float]) -> None:
    found = set(one(list(values)).warnings)
    plain = set(checks.warn(np.array(values), np.arange(1, len(values) + 1), "The value"))
    assert found - {w for w in found if w.startswith("The same value")} == plain


def test_one_round_has_no_spread() -> None:
    found = one([3.0])
    assert (found.sd, found.cv, found.low, found.high) == (None, None, None, None)
    assert found.warnings == ("Only 1 of at least 5 rounds.",)


def test_values_that_are_no_numbers_are_left_out_and_counted() -> None:
    found = one([1.0, 2.0, math.nan, None, math.inf, 3.0, 2.0, 2.5])
    assert found.rounds == 5
    assert found.mean == pytest.approx(2.1)
    assert found.warnings == ("No finite value in 3 rounds: left out.",)


def test_a_series_without_any_number_has_no_estimate() -> None:
    assert estimates(recorded([math.nan, None]), CELLS, 0.95, 5) == ()


def test_equal_counts_give_a_point_with_a_warning() -> None:
    found = one([7.0] * 6)
    assert found.low == found.high == 7 and found.sd == 0 and found.cv == 0
    assert found.warnings == ("The same value in every round: the interval is a point, right for counts only.",)


def test_a_mean_of_zero_has_no_coefficient_of_variation() -> None:
    assert one([-1.0, 1.0, 0.0]).cv is None


def test_a_series_that_drifts_is_named_though_it_has_no_outlier() -> None:
    found = one([1779.0 - 40 * round_ for round_ in range(20)])
    assert found.warnings == ("The value falls over the rounds: they are not repeats of one steady state.",)


def test_estimates_come_in_the_order_of_the_series() -> None:
    found = estimates(recorded([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]), CELLS, 0.95, 5)
    assert [(e.metric, e.mean) for e in found] == [("m0", 1.5), ("m1", 3.5), ("m2", 5.5)]
    assert found[0].levels == {"fs": "xfs"} and found[0].unit == "B/s"


def test_ranks_share_ties_and_drift_needs_a_direction() -> None:
    assert average_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]
    assert checks.drift_z(np.arange(9.0)) == pytest.approx(math.sqrt(8))
    assert checks.drift_z(np.ones(9)) == 0
    assert checks.drift_z(np.array([1.0, 2.0])) == 0


def test_where_most_values_are_equal_an_outlier_is_still_found() -> None:
    assert checks.outliers(np.array([1.0] * 9 + [2.0])).tolist() == [False] * 9 + [True]
    assert not checks.outliers(np.ones(9)).any()


@given(st.lists(st.floats(0.1, 1e6), min_size=5, max_size=30), st.sampled_from([-990, -600, 600, 990]))
def test_an_estimate_of_huge_or_tiny_numbers_is_that_of_their_multiples(values: list[float], power: int) -> None:
    factor = 2.0**power
    usual, scaled = one(list(values)), one([value * factor for value in values])
    assert (scaled.mean, scaled.median, scaled.cv) == (usual.mean * factor, usual.median * factor, usual.cv)
    assert scaled.sd is not None and usual.sd is not None and scaled.sd == usual.sd * factor
    assert usual.high is not None and scaled.high == pytest.approx(usual.high * factor)
    assert scaled.warnings == usual.warnings


def test_an_interval_that_reaches_beyond_all_floats_is_none() -> None:
    found = one([1.7e308, 0.1e308])
    assert (found.low, found.high) == (None, None) and found.sd is not None and math.isfinite(found.sd)
    assert one([1.7e308, -1.7e308]).sd is None
