"""Frames that charts of samples show."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from storlab.analysis.variability import samples as within
from storlab.records.columns import COLUMNS


def series(values: dict[tuple[int, str, str | None], list[float]], late: float = 0.0) -> pl.DataFrame:
    """Rows of (cell, node, job), a sample a second; ``late``: how far the clock may be off."""
    drawn = np.random.default_rng(1)
    rows = [
        (cell, 1, cell, node, "load", job, "iops", "1/s", at + 1 + drawn.uniform(0, late), value)
        for (cell, node, job), those in values.items()
        for at, value in enumerate(those)
    ]
    names = ["trial", "round", "cell", "node", "source", "job", "metric", "unit", "t", "value"]
    frame = pl.DataFrame(rows, schema={name: COLUMNS["series"][name] for name in names}, orient="row")
    return frame.select(list(COLUMNS["series"]))


def samples(**levels: list[float]) -> pl.DataFrame:
    rows = [(level, 1, float(at + 1), value) for level, values in levels.items() for at, value in enumerate(values)]
    return pl.DataFrame(
        rows, schema={"level": pl.String, "round": pl.Int64, "t": pl.Float64, "value": pl.Float64}, orient="row"
    )


def test_nodes_and_jobs_add_up_at_each_instant_that_all_have() -> None:
    rows = series({(1, "a", "x"): [1.0, 2.0, 3.0], (1, "a", "y"): [10.0, 20.0, 30.0], (1, "b", "x"): [100.0, 200.0]})
    found = within.samples(rows, "load", "iops", "sum", {"xfs": 1})
    assert found["value"].to_list() == [111.0, 222.0]
    assert found["level"].to_list() == ["xfs", "xfs"]


def test_a_tools_own_total_goes_before_a_sum_of_jobs() -> None:
    rows = series({(1, "a", None): [5.0, 6.0], (1, "a", "x"): [1.0, 2.0]})
    assert within.samples(rows, "load", "iops", "sum", {"xfs": 1})["value"].to_list() == [5.0, 6.0]


def test_samples_that_come_a_little_late_are_of_their_interval() -> None:
    rows = series({(1, "a", None): [float(at) for at in range(50)], (1, "b", None): [1.0] * 50}, late=0.2)
    found = within.samples(rows, "load", "iops", "sum", {"xfs": 1})
    assert found.height == 50
    assert found["value"].to_list() == [at + 1.0 for at in range(50)]


def test_of_percentiles_of_several_nodes_which_do_not_combine_the_largest_counts() -> None:
    rows = series({(1, "a", None): [1.0, 20.0], (1, "b", None): [10.0, 2.0]})
    for across in ("merge", "none", "max"):
        assert within.samples(rows, "load", "iops", across, {"xfs": 1})["value"].to_list() == [10.0, 20.0]


def test_samples_of_an_unknown_metric_are_none() -> None:
    assert within.samples(series({(1, "a", None): [1.0]}), "load", "tps", "sum", {"xfs": 1}).is_empty()


def test_variances_are_of_the_population_and_say_how_many_times_the_least() -> None:
    found = within.variances(samples(a=[1.0, 3.0], b=[0.0, 4.0]))
    assert found.rows() == [("a", 1.0, 1.0), ("b", 4.0, 4.0)]
    assert within.variances(samples(a=[1.0, 1.0], b=[0.0, 4.0]))["factor"].to_list() == [1.0, None]


def test_the_bulk_of_samples_is_not_moved_by_a_stall() -> None:
    low, high = within.bulk(samples(a=[100.0 + at % 3 for at in range(1000)] + [0.0] * 3, b=[110.0] * 50))
    assert (low, high) == (100.0, 110.0)


def test_a_stall_is_counted_and_does_not_widen_the_bins() -> None:
    bins = within.histogram(samples(a=[100.0 + at % 7 for at in range(700)] + [0.0] * 3))
    assert (bins["low"].min(), bins["high"].max(), bins["outside"][0]) == (100.0, 106.0, 3)
    assert bins["share"].sum() == pytest.approx(700 / 703)


def test_outliers_lie_apart_and_their_number_is_told_though_not_all_are_shown() -> None:
    values = [0.0] * 3000 + [float(at) for at in range(1, 1001)]
    found = within.outlying(samples(a=values))
    assert found["of"].unique().to_list() == [1000]
    assert found.height == 400
    assert (found["value"].min(), found["value"].max()) == (1.0, 1000.0)
    assert found["aside"].is_between(-0.5, 0.5).all()


def test_a_level_without_outliers_stands_beside_one_with_some() -> None:
    quiet, loud = [100.0 + at % 7 for at in range(100)], [100.0 + at % 7 for at in range(99)] + [900.0]
    for levels in ({"a": quiet, "b": loud}, {"a": loud, "b": quiet}):
        assert within.outlying(samples(**levels)).select("value", "of").rows() == [(900.0, 1)]


def test_quantiles_are_compared_with_those_of_the_first_level() -> None:
    values = list(np.random.default_rng(3).normal(100, 5, 400))
    found = within.quantile_differences(samples(a=values, b=[1.1 * value for value in values]), "a")
    assert found["level"].unique().to_list() == ["b"]
    assert found["difference"].to_list() == pytest.approx([0.1] * found.height)


def test_parts_of_a_trial_are_at_most_twelve_and_as_long_as_a_round_number() -> None:
    found, step = within.parts(samples(a=[1.0] * 100))
    assert step == 10.0
    assert found["part"].value_counts().sort("part").rows() == [(part, 10) for part in range(10)]


def test_the_rounds_of_a_course_are_their_median_and_their_range() -> None:
    course = pl.DataFrame({"level": ["a"] * 3, "round": [1, 2, 3], "t": [1.0] * 3, "mean": [1.0, 5.0, 2.0]})
    assert within.over_rounds(course).select("mean", "low", "high").row(0) == (2.0, 1.0, 5.0)


def test_nothing_gives_frames_without_rows() -> None:
    none = samples()
    for frame in (within.over_time(none, 1.0), within.histogram(none), within.densities(none), within.bells(none)):
        assert frame.is_empty()
    assert within.outlying(none).is_empty()
    assert within.quantile_differences(none, "a").is_empty()
