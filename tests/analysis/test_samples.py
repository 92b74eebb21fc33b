"""Frames that charts of samples show, and latencies of all operations of a cell."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from storlab.analysis import variability as within
from storlab.analysis.design import Design
from storlab.analysis.summarise import distributions
from storlab.analysis.summary import Distribution, Summary, from_json, to_json
from storlab.metrics import Declarations
from storlab.probes.alignment import AlignmentProbe
from storlab.records.tables import COLUMNS
from storlab.tools.fio.declared import declared


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
    schema = {"level": pl.String, "round": pl.Int64, "t": pl.Float64, "value": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def summed(
    values: dict[tuple[int, str, str | None], list[float]], late: float = 0.0, across: str = "sum", metric: str = "iops"
) -> list[float]:
    found = within.samples(series(values, late), "load", metric, across, {"xfs": 1})
    assert set(found["level"]) <= {"xfs"}
    return found["value"].to_list()


def test_nodes_and_jobs_add_up_at_each_instant_that_all_have_unless_a_tool_has_its_own_total() -> None:
    x, y = [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]
    assert summed({(1, "a", "x"): x, (1, "a", "y"): y, (1, "b", "x"): [100.0, 200.0]}) == [111.0, 222.0]
    assert summed({(1, "a", None): [5.0, 6.0], (1, "a", "x"): [1.0, 2.0]}) == [5.0, 6.0]
    late = summed({(1, "a", None): [float(at) for at in range(50)], (1, "b", None): [1.0] * 50}, late=0.2)
    assert late == [at + 1.0 for at in range(50)], "of their interval, though they come a little late"


def test_percentiles_of_nodes_have_their_largest_and_nothing_gives_frames_without_rows() -> None:
    nodes: dict[tuple[int, str, str | None], list[float]] = {(1, "a", None): [1.0, 20.0], (1, "b", None): [10.0, 2.0]}
    for across in ("merge", "none", "max"):
        assert summed(nodes, across=across) == [10.0, 20.0]
    assert summed(nodes, metric="tps") == []
    none = samples()
    for frame in (within.over_time(none, 1.0), within.histogram(none), within.densities(none), within.bells(none)):
        assert frame.is_empty()
    assert within.outlying(none, 1.5).is_empty()
    assert within.quantile_differences(none, "a").is_empty()


def test_variances_are_of_the_population_and_the_bulk_is_not_moved_by_a_stall() -> None:
    found = within.variances(samples(a=[1.0, 3.0], b=[0.0, 4.0]))
    assert found.rows() == [("a", 1.0, 1.0), ("b", 4.0, 4.0)]
    assert within.variances(samples(a=[1.0, 1.0], b=[0.0, 4.0]))["factor"].to_list() == [1.0, None]
    low, high = within.bulk(samples(a=[100.0 + at % 3 for at in range(1000)] + [0.0] * 3, b=[110.0] * 50))
    assert (low, high) == (100.0, 110.0)
    bins = within.histogram(samples(a=[100.0 + at % 7 for at in range(700)] + [0.0] * 3))
    assert (bins["low"].min(), bins["high"].max(), bins["outside"][0]) == (100.0, 106.0, 3)
    assert bins["share"].sum() == pytest.approx(700 / 703)


def test_outliers_lie_apart_and_are_counted_though_not_all_are_shown() -> None:
    values = [0.0] * 3000 + [float(at) for at in range(1, 1001)]
    found = within.outlying(samples(a=values), 1.5)
    assert found["of"].unique().to_list() == [1000]
    assert found.height == 400
    assert (found["value"].min(), found["value"].max()) == (1.0, 1000.0)
    assert found["aside"].is_between(-0.5, 0.5).all()
    quiet, loud = [100.0 + at % 7 for at in range(100)], [100.0 + at % 7 for at in range(99)] + [900.0]
    for levels in ({"a": quiet, "b": loud}, {"a": loud, "b": quiet}):
        assert within.outlying(samples(**levels), 1.5).select("value", "of").rows() == [(900.0, 1)]


def test_quantiles_are_compared_with_the_first_levels_and_courses_are_cut_into_round_parts() -> None:
    values = list(np.random.default_rng(3).normal(100, 5, 400))
    found = within.quantile_differences(samples(a=values, b=[1.1 * value for value in values]), "a")
    assert found["level"].unique().to_list() == ["b"]
    assert found["difference"].to_list() == pytest.approx([0.1] * found.height)
    found, step = within.parts(samples(a=[1.0] * 100))
    assert step == 10.0
    assert found["part"].value_counts().sort("part").rows() == [(part, 10) for part in range(10)]
    course = pl.DataFrame({"level": ["a"] * 3, "round": [1, 2, 3], "t": [1.0] * 3, "mean": [1.0, 5.0, 2.0]})
    assert within.over_rounds(course).select("mean", "low", "high").row(0) == (2.0, 1.0, 5.0)


DESIGN = Design("t", "iops", {"cache": ("none", "on")}, cells=((1, {"cache": "none"}), (2, {"cache": "on"})))
DECLARED = Declarations.union([("load", (*declared(), *AlignmentProbe().declares()))])
DONE = pl.DataFrame({"trial": [1, 2, 3], "round": [1, 1, 2], "cell": [1, 2, 1]})
Row = dict[str, object]


def row(trial: int, node: str, lower: float, count: int, job: str | None = None, metric: str = "latency") -> Row:
    place = DONE.row(by_predicate=pl.col("trial") == trial, named=True)
    bins = {"job": job, "metric": metric, "lower": lower, "upper": lower + 0.5, "count": count}
    return {**place, "node": node, "source": "load", **bins}


def found(*rows: Row, slowest: float | None = None) -> tuple[Distribution, ...]:
    place = {"trial": 1, "round": 1, "cell": 1, "source": "load", "metric": "latency.max", "value": slowest}
    metrics = pl.DataFrame([] if slowest is None else [place], schema=COLUMNS["metrics"])
    histograms = pl.DataFrame(rows, schema=COLUMNS["histograms"])
    return distributions(histograms, metrics, DONE, replace(DESIGN, declared=DECLARED))


def test_operations_of_all_rounds_nodes_and_jobs_count_alike_and_each_node_is_told_too() -> None:
    rows = [row(1, "a", 1.0, 98), row(3, "a", 1.0, 0), row(3, "b", 8.0, 1), row(1, "b", 9.0, 1)]
    both, a, b = found(*rows)
    assert (both.node, both.operations, both.rounds, both.levels) == (None, 100, 2, {"cache": "none"})
    assert [(each.low, each.high) for each in both.percentiles[:4]] == [(1.0, 1.5)] * 3 + [(8.0, 8.5)]
    assert (a.node, a.operations) == ("a", 98)
    assert (b.node, b.operations) == ("b", 2)
    told = found(row(2, "a", 1.0, 1), row(1, "a", 1.0, 1), row(1, "a", 1.0, 1, metric="write.granularity"))
    assert [(each.cell, each.metric, each.node) for each in told] == [(1, "latency", None), (2, "latency", None)]
    jobs = [row(1, "a", 1.0, 5, "x"), row(1, "a", 2.0, 7, "y")]
    assert found(*jobs)[0].operations == 12
    assert found(*jobs, row(1, "a", 1.0, 12))[0].operations == 12


def test_the_slowest_operation_bounds_the_last_bin_which_else_has_no_end() -> None:
    (told,) = found(row(1, "a", 1.0, 1000), row(1, "a", 16.0, 1), slowest=40.0)
    assert (told.percentiles[0].low, told.percentiles[0].high) == (1.0, 1.5)
    assert (told.percentiles[-1].low, told.percentiles[-1].high) == (16.0, 40.0)
    assert [each.beyond for each in told.percentiles] == [500, 100, 50, 10, 1, 0]
    assert told.percentiles[0].error == pytest.approx(0.25 / 1.25)
    assert told.percentiles[-1].error == pytest.approx((40 - 16.25) / 16.25)
    bins = row(1, "a", 1.0, 1) | {"upper": math.inf}
    (told,) = found(bins)
    assert {(each.value, each.low, each.high) for each in told.percentiles} == {(1.0, 1.0, None)}
    assert {each.error for each in told.percentiles} == {None}
    (told,) = found(bins, slowest=3.0)
    assert {(each.low, each.high) for each in told.percentiles} == {(1.0, 3.0)}


def test_no_histograms_no_distributions_and_others_are_read_back_from_json() -> None:
    nothing = pl.DataFrame(schema=COLUMNS["metrics"])
    assert distributions(None, nothing, DONE, DESIGN) == ()
    assert found() == ()
    assert found(row(1, "a", 1.0, 0)) == ()
    summary = Summary("t", "iops", 0.95, 1, None, distributions=found(row(1, "a", 1.0, 3)))
    assert from_json(to_json(summary)) == summary
