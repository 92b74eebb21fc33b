"""Latencies of all operations as a table: each percentile within stated bounds, nodes below all of them together."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from storlab.analysis.summary import Distribution, Estimate, Percentile, Summary
from storlab.report.formats import render
from storlab.report.formats.csv import render_csv
from storlab.report.model.input import ReportInput
from storlab.report.model.latencies import asked_latencies, latency_tables
from storlab.report.model.tables import Table
from storlab.report.model.view import View

from ..declared import declared

FINE = (Percentile(50, 100e-6, 99.5e-6, 100.5e-6, 5000), Percentile(99.99, 2e-3, 1.98e-3, 2.02e-3, 1))


def told(
    cell: int, percentiles: tuple[Percentile, ...], node: str | None = None, metric: str = "latency"
) -> Distribution:
    levels = {"cache": "none" if cell == 1 else "on"}
    return Distribution(cell, levels, "load", metric, "s", node, 2, 10_000, percentiles)


def tables(*those: Distribution) -> list[Table]:
    return latency_tables(Summary("t", "iops", 0.95, 1, "", distributions=those), declared("load"))


def test_a_row_is_a_cell_and_the_caption_says_how_far_off_a_percentile_can_be() -> None:
    (table,) = tables(told(1, FINE), told(2, FINE))
    assert table.title == "latency: load"
    assert table.columns == ("cache", "operations", "p50", "p99.99")
    assert table.rows[0] == ("none", "10000", "100 µs", "2.00 ms [1]")
    assert table.caption == "of all operations of all rounds and jobs, from merged histograms, exact to 1.0 %"
    assert table.notes == ("Fewer than ten operations are slower: another run may well give a different value.",)


def test_nodes_stand_below_all_of_them_together() -> None:
    (table,) = tables(told(1, FINE), told(1, FINE, "n-1"), told(1, FINE, "n-2"))
    assert [row[0] for row in table.rows] == ["all together", "n-1", "n-2"]
    assert table.title == "latency: load, cache=none"
    assert "all rounds, nodes and jobs" in table.caption


def counted(mean: float, metric: str = "ios", node: str | None = None) -> Estimate:
    """How many operations a round had in the two rounds of ``told``, as the load itself counted."""
    return Estimate(1, {}, "load", metric, "1", "neither", 2, mean, mean, None, None, None, None, 0.95, (), node)


def test_operations_that_are_in_no_histogram_are_not_passed_over() -> None:
    summary = Summary("t", "iops", 0.95, 1, "", distributions=(told(1, FINE), told(2, FINE)))
    (table,) = latency_tables(replace(summary, estimates=(counted(50_500.0),)), declared("load"))
    assert [row[1] for row in table.rows] == ["10000 of 101000 [1]", "10000"]
    assert table.notes[0] == "Not all operations are in its histograms: the percentiles are of those that are."
    assert table.caption == "of all operations in the histograms of all rounds and jobs, merged, exact to 1.0 %"


def test_a_node_is_held_against_what_it_counted_itself() -> None:
    nodes = tuple(told(1, FINE, name) for name in ("n-1", "n-2"))
    summary = Summary("t", "iops", 0.95, 1, "", distributions=nodes, by_node=(counted(6_000.0, node="n-2"),))
    (table,) = latency_tables(summary, declared("load"))
    assert [row[1] for row in table.rows] == ["10000", "10000 of 12000 [2]"]


def test_a_few_operations_at_the_end_that_no_histogram_has_change_nothing() -> None:
    summary = Summary("t", "iops", 0.95, 1, "", distributions=(told(1, FINE),), estimates=(counted(5_010.0),))
    (table,) = latency_tables(summary, declared("load"))
    assert table.rows[0][0] == "none" and table.rows[0][1] == "10000"


def test_what_lies_in_the_last_bin_is_told_by_its_bounds() -> None:
    bounded, open_ended = Percentile(50, 17.0, 16.9, 40.0, 500), Percentile(99.99, 16.9, 16.9, None, 500)
    (table,) = tables(told(1, (bounded, open_ended)))
    assert table.rows[0][-2:] == ("16.9 s to 40.0 s [1]", "16.9 s or more [1]")
    assert "merged histograms" in table.caption and "exact" not in table.caption


def test_in_short_there_are_those_of_the_operation_that_is_asked_about() -> None:
    those = tuple(told(1, FINE, metric=name) for name in ("close.latency", "create.latency", "sync.latency"))
    different = tuple(replace(each, operations=10_000 + at) for at, each in enumerate(those))
    summary = Summary("t", "create.rate", 0.95, 1, "", distributions=different)
    assert [table.title for table in asked_latencies(summary, declared("load"))] == [
        "create.latency: load",
        "sync.latency: load",
    ]
    assert asked_latencies(summary, declared("load"))[0].columns[-1] == "p50"
    assert asked_latencies(summary, declared("load"))[0].notes == ()


def test_they_stand_in_a_section_of_their_own() -> None:
    summary = Summary("t", "iops", 0.95, 1, "", distributions=(told(1, FINE),))
    assert [table.title for table in View(ReportInput(summary)).latencies] == ["latency: load"]
    for kind, heading in (("md", "## Latency"), ("adoc", "== Latency"), ("html", "Latency</h2>")):
        assert heading in render(ReportInput(summary), kind)


def test_csv_has_each_percentile_with_its_bounds() -> None:
    summary = Summary("t", "iops", 0.95, 1, "", distributions=(told(1, FINE), told(1, FINE, "n-1")))
    rows = list(csv.DictReader(io.StringIO(render_csv(ReportInput(summary)))))
    names = ("kind", "metric", "factor.cache", "node", "value", "low", "high", "operations")
    assert [rows[0][name] for name in names] == [
        *("latency", "latency.p50", "none", "", "0.0001", "9.95e-05", "0.0001005", "10000")
    ]
    assert [(row["metric"], row["node"]) for row in rows[1:]] == [
        ("latency.p99.99", ""),
        ("latency.p50", "n-1"),
        ("latency.p99.99", "n-1"),
    ]


def test_a_load_that_only_writes_is_shown_once_and_a_run_without_histograms_not_at_all() -> None:
    assert len(tables(told(1, FINE), told(1, FINE, metric="write.latency"))) == 1
    assert tables() == []
