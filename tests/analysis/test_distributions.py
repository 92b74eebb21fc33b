"""Latencies of all operations of a cell: from merged histograms, with bounds, and what is slower than the last bin."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest

from storlab.analysis.design import Design
from storlab.analysis.distributions import distributions
from storlab.analysis.summary import Distribution, Summary, from_json, to_json
from storlab.formats.fio.declared import declared
from storlab.metrics import Declarations
from storlab.probes.alignment.probe import AlignmentProbe
from storlab.records.columns import COLUMNS

DESIGN = Design("t", "iops", {"cache": ("none", "on")}, cells=((1, {"cache": "none"}), (2, {"cache": "on"})))
DECLARED = Declarations.union([("load", (*declared(), *AlignmentProbe().declares()))])
DONE = pl.DataFrame({"trial": [1, 2, 3], "round": [1, 1, 2], "cell": [1, 2, 1]})


def row(
    trial: int, node: str, lower: float, count: int, job: str | None = None, metric: str = "latency"
) -> dict[str, object]:
    place = DONE.row(by_predicate=pl.col("trial") == trial, named=True)
    bins = {"job": job, "metric": metric, "lower": lower, "upper": lower + 0.5, "count": count}
    return {**place, "node": node, "source": "load", **bins}


def found(*rows: dict[str, object], slowest: float | None = None) -> tuple[Distribution, ...]:
    metrics = pl.DataFrame(schema=COLUMNS["metrics"])
    if slowest is not None:
        place = {"trial": 1, "round": 1, "cell": 1, "source": "load", "metric": "latency.max", "value": slowest}
        metrics = pl.DataFrame([place], schema=COLUMNS["metrics"])
    return distributions(
        pl.DataFrame(rows, schema=COLUMNS["histograms"]), metrics, DONE, replace(DESIGN, declared=DECLARED)
    )


def test_operations_of_all_rounds_and_nodes_count_alike_and_each_node_is_told_too() -> None:
    rows = [row(1, "a", 1.0, 98), row(3, "a", 1.0, 0), row(3, "b", 8.0, 1), row(1, "b", 9.0, 1)]
    both, a, b = found(*rows)
    assert (both.node, both.operations, both.rounds, both.levels) == (None, 100, 2, {"cache": "none"})
    assert [(each.low, each.high) for each in both.percentiles[:4]] == [(1.0, 1.5)] * 3 + [(8.0, 8.5)]
    assert (a.node, a.operations) == ("a", 98)
    assert (b.node, b.operations) == ("b", 2)


def test_one_node_is_told_once_and_cells_come_in_the_designs_order() -> None:
    told = found(row(2, "a", 1.0, 1), row(1, "a", 1.0, 1), row(1, "a", 1.0, 1, metric="write.granularity"))
    assert [(each.cell, each.metric, each.node) for each in told] == [(1, "latency", None), (2, "latency", None)]


def test_jobs_are_added_only_where_there_is_no_histogram_of_all_of_them() -> None:
    jobs = [row(1, "a", 1.0, 5, "x"), row(1, "a", 2.0, 7, "y")]
    assert found(*jobs)[0].operations == 12
    assert found(*jobs, row(1, "a", 1.0, 12))[0].operations == 12


def test_the_slowest_operation_bounds_what_lies_in_the_last_bin() -> None:
    (told,) = found(row(1, "a", 1.0, 1000), row(1, "a", 16.0, 1), slowest=40.0)
    assert (told.percentiles[0].low, told.percentiles[0].high) == (1.0, 1.5)
    assert (told.percentiles[-1].low, told.percentiles[-1].high) == (16.0, 40.0)
    assert [each.beyond for each in told.percentiles] == [500, 100, 50, 10, 1, 0]
    assert told.percentiles[0].error == pytest.approx(0.25 / 1.25)
    assert told.percentiles[-1].error == pytest.approx((40 - 16.25) / 16.25)


def test_a_last_bin_without_an_end_gives_its_begin_and_no_more_than_is_known() -> None:
    bins = row(1, "a", 1.0, 1) | {"upper": math.inf}
    (told,) = found(bins)
    assert {(each.value, each.low, each.high) for each in told.percentiles} == {(1.0, 1.0, None)}
    assert {each.error for each in told.percentiles} == {None}
    (told,) = found(bins, slowest=3.0)
    assert {(each.low, each.high) for each in told.percentiles} == {(1.0, 3.0)}


def test_no_histograms_no_distributions() -> None:
    nothing = pl.DataFrame(schema=COLUMNS["metrics"])
    assert distributions(None, nothing, DONE, DESIGN) == ()
    assert found() == ()
    assert found(row(1, "a", 1.0, 0)) == ()


def test_they_are_read_back_from_json() -> None:
    summary = Summary("t", "iops", 0.95, 1, "", distributions=found(row(1, "a", 1.0, 3)))
    assert from_json(to_json(summary)) == summary
