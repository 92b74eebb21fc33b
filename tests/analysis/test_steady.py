"""Steady state over rounds: SNIA's window of five, at each point of the primary metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from storlab.analysis.design import Design
from storlab.analysis.estimates import Recorded
from storlab.analysis.steady import steady_windows
from storlab.timeseries.steady import snia_steady, window_of

CELLS = ((1, {"bs": "4k"}), (2, {"bs": "1M"}))


def windows(*series: Sequence[float | None], steady: bool = True) -> list[tuple[int, int, bool]]:
    """First and last round, and whether it is steady, of each series, a cell each."""
    design = Design("A study", "write.iops", {"bs": ("4k", "1M")}, CELLS, comparisons=(), steady=steady)
    known = {"source": "load", "metric": "write.iops", "unit": "1/s", "better": "higher"}
    rows = [{"series": i, "cell": i + 1, **known} for i in range(len(series))]
    values = [
        {"series": i, "round": number, "value": value}
        for i, one in enumerate(series)
        for number, value in enumerate(one, start=1)
    ]
    schema = {"series": pl.Int64, "round": pl.Int64, "value": pl.Float64}
    found = steady_windows(Recorded(pl.DataFrame(rows), pl.DataFrame(values, schema=schema)), design)
    return [(each.first, each.last, each.steady) for each in found]


def test_only_the_last_five_rounds_count() -> None:
    falling_then_level = [900.0, 500.0, 300.0, 101.0, 99.0, 100.0, 102.0, 98.0]
    assert windows(falling_then_level, falling_then_level[:6]) == [(4, 8, True), (2, 6, False)]


def test_a_slope_beyond_a_tenth_is_not_steady_though_the_range_is_within_a_fifth() -> None:
    assert windows([100.0, 104.0, 108.0, 112.0, 116.0]) == [(1, 5, False)]
    assert windows([100.0, 116.0, 100.0, 116.0, 100.0]) == [(1, 5, True)]


@pytest.mark.parametrize("series", [[100.0] * 4, [100.0] * 4 + [None], [0.0] * 5, [100.0] * 4 + [float("nan")]])
def test_too_few_rounds_and_what_is_no_number_are_never_steady(series: list[float | None]) -> None:
    ((*_, steady),) = windows(series)
    assert not steady


def test_a_round_without_a_value_is_passed_over() -> None:
    assert windows([100.0, 100.0, None, 100.0, 100.0, 100.0]) == [(1, 6, True)]


def test_nothing_is_looked_at_unless_the_study_stops_at_steady_state() -> None:
    assert windows([100.0] * 5, steady=False) == []


def test_a_window_alone_is_judged_as_the_last_of_a_series() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.02, 0.05, 0.08, 0.2):
        for _ in range(50):
            values = 100 * (1 + scale * rng.normal(size=5))
            assert window_of(values).steady is (snia_steady(values) == 5)
