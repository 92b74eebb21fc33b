"""What varies: samples within trials, latencies of all operations, and whether rounds are steady."""

import csv
import io
from dataclasses import replace

import polars as pl
import pytest

from storlab.analysis.summary import Distribution, Estimate, Percentile, SteadyWindow, Summary
from storlab.report.charts.theme import to_svg
from storlab.report.document import Figure, Table
from storlab.report.formats import render
from storlab.report.formats.csv import render_csv
from storlab.report.model.chapters import steady_tables
from storlab.report.model.input import ReportInput
from storlab.report.model.variability import asked_latencies, latency_tables, variability_tables
from storlab.timeseries.variability import squared

from ..sample import sample, with_one_load
from ..sample_run import declared
from ..samples import series_sample
from ..shown import drawn, kind, rows, section, tables, width


@pytest.fixture(scope="module")
def pair() -> ReportInput:
    return series_sample()


@pytest.fixture(scope="module")
def panels(pair: ReportInput) -> dict[str, Figure]:
    return {panel.title: panel for panel in drawn(pair) if kind(panel) in ("course", "variability")}


def test_every_view_that_people_know_of_a_pair_of_runs_is_there(panels: dict[str, Figure]) -> None:
    assert list(panels) == [
        "All levels, zoomed in", "All levels, from zero", "Part by part, 15 min each", "Histogram with density",
        "Quantiles of on against off", "Box with outliers", "Outliers", "Variance", "Variance over time", "Histogram",
        "Density", "Bell curves", "Histogram with bell curves", "Box",
    ]  # fmt: skip
    for panel in panels.values():
        assert "<svg" in to_svg(panel.draw(), width=width(panel))


def test_charts_say_in_words_what_was_found_and_on_which_axis(panels: dict[str, Figure]) -> None:
    assert "the level of on changes at 1 h 40 min" in panels["All levels, zoomed in"].alt
    assert "the level of off" not in panels["All levels, zoomed in"].alt
    assert "off has 1" in panels["Box with outliers"].alt
    assert "whiskers of 1.5 IQR" in to_svg(panels["Box with outliers"].draw())
    assert panels["Outliers"].alt.startswith("tps: samples beyond 1.5 IQR from the quartiles: off 1")
    assert "7.0" in panels["Variance"].alt or "×" in panels["Variance"].alt
    assert "time in the trial (h)" in to_svg(panels["All levels, zoomed in"].draw())
    short = next(panel for panel in drawn(series_sample(n=200)) if kind(panel) == "course")
    assert "time in the trial (s)" in to_svg(short.draw())
    assert "not from zero" in to_svg(panels["All levels, zoomed in"].draw())
    assert "not from zero" not in to_svg(panels["All levels, from zero"].draw())


def test_single_files_and_several_rounds_have_charts_and_few_samples_none() -> None:
    titles = [panel.title for panel in drawn(series_sample(["on"])) if kind(panel) == "variability"]
    assert "Histogram with density" in titles
    assert not any(title.startswith("Quantiles") for title in titles)
    assert not [panel for panel in drawn(series_sample(n=5)) if kind(panel) == "variability"]
    titles = [panel.title for panel in drawn(sample()) if kind(panel) == "variability"]
    assert titles[:3] == ["Round by round", "Histogram with density", "Quantiles against ext4"]
    assert "Bell curves" not in titles


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-30, 1e30, float("nan"), float("inf")])
def test_series_that_never_vary_or_are_absurd_are_drawn_or_left_out(pair: ReportInput, value: float) -> None:
    odd = replace(pair, series=pair.series.with_columns(value=pl.lit(value)), findings=pair.findings.clear())
    for panel in drawn(odd):
        to_svg(panel.draw(), width=width(panel))


def test_tables_hold_the_variability_and_the_factor(pair: ReportInput) -> None:
    varying, course = variability_tables(pair)
    off, on = (dict(zip(varying.columns, row, strict=True)) for row in varying.rows)
    assert varying.title == "Variability of tps: sysbench" and "outliers beyond 1.5 IQR" in varying.caption
    assert off["factor"] == "1.00×"
    assert 4 < float(on["factor"].rstrip("×")) < 8
    assert (off["outliers"], on["outliers"]) == ("19", "0"), "none has no factor"
    four = (replace(e, mean=4.0) if (e.cell, e.metric) == (2, "tps.outliers") else e for e in pair.summary.estimates)
    ((*_, first), *_) = [
        row[:7] for row in variability_tables(replace(pair, summary=replace(pair.summary, estimates=(*four,))))[0].rows
    ]
    assert first == "19 (4.75×)"
    assert off["stall"] == "none"
    assert "not how the next will go" in varying.notes[0]
    changes = course.columns.index("changes of the level")
    assert [row[changes] for row in course.rows] == ["none", "−4.1 % at 1 h 40 min"]


def test_a_page_explains_the_lines_that_it_shows_beside_their_tables(pair: ReportInput) -> None:
    page = render(pair, "html")
    section = page[page.index('<section id="variability"') :]
    assert section.index("Variability of tps") < section.index("Histogram with density") < section.index("Bell curves")
    single, several = render(pair, "html"), render(with_one_load(sample()), "html")
    assert "the line is the mean of a step of time" in single and "the first round above" not in single
    assert "the line is the median of the rounds" in several and "dashed ones the changes" not in several


def test_without_findings_or_with_few_there_are_no_tables_and_a_variances_unit_is_squared(pair: ReportInput) -> None:
    assert variability_tables(replace(pair, findings=pair.findings.clear())) == []
    cells = tuple(replace(cell, rounds=5) for cell in pair.summary.cells)
    assert variability_tables(replace(pair, summary=replace(pair.summary, cells=cells))) == []
    assert [squared(unit) for unit in ("1/s", "B/s", "s")] == ["1/s²", "B²/s²", "s²"]


def test_drift_changes_and_times_are_told_in_one_cell_each(pair: ReportInput) -> None:
    first = pair.findings.filter(cell=2)
    others = [
        first.with_columns(round=pl.lit(at, dtype=pl.Int64), drift_share=pl.lit(0.0), drift_steps=pl.lit(0.0))
        for at in (2, 3)
    ]
    drifting = first.with_columns(drift_share=pl.lit(-0.04), drift_steps=pl.lit(0.0))
    _, course = variability_tables(replace(pair, findings=pl.concat([drifting, *others])))
    row = dict(zip(course.columns, course.rows[0], strict=True))
    assert row["drift"] == "−4.0 % (1 of 3 rounds)" and row["changes of the level"] == "1 a trial"
    twice = pl.concat([pair.findings.filter(cell=2).with_columns(steady_snia=pl.lit(at)) for at in (300.0, 480.0)])
    _, course = variability_tables(replace(pair, findings=twice))
    assert course.rows[0][4] == "after 5 min to 8 min"
    stepping = pair.findings.filter(cell=2).with_columns(drift_share=pl.lit(0.0), drift_steps=pl.lit(-0.041))
    _, course = variability_tables(replace(pair, findings=stepping))
    assert course.rows[0][course.columns.index("drift")] == "−4.1 % in steps"


FINE = (Percentile(50, 100e-6, 99.5e-6, 100.5e-6, 5000), Percentile(99.99, 2e-3, 1.98e-3, 2.02e-3, 1))


def distribution(
    cell: int, percentiles: tuple[Percentile, ...], node: str | None = None, metric: str = "latency"
) -> Distribution:
    levels = {"cache": "none" if cell == 1 else "on"}
    return Distribution(cell, levels, "load", metric, "s", node, 2, 10_000, percentiles)


def tables_of(*those: Distribution) -> list[Table]:
    return latency_tables(Summary("t", "iops", 0.95, 1, None, distributions=those), declared("load"))


def test_a_row_is_a_cell_or_a_node_and_the_caption_says_how_far_off_a_percentile_can_be() -> None:
    (table,) = tables_of(distribution(1, FINE), distribution(2, FINE))
    assert table.title == "latency: load" and table.columns == ("cache", "operations", "p50", "p99.99")
    assert rows(table)[0] == ("none", "10000", "100 µs", "2.00 ms [1]")
    assert table.caption == "of all operations of all rounds and jobs, from merged histograms, exact to 1.0 %"
    assert table.notes == ("Fewer than ten operations are slower: another run may well give a different value.",)
    (table,) = tables_of(distribution(1, FINE), distribution(1, FINE, "n-1"), distribution(1, FINE, "n-2"))
    assert [row[0] for row in table.rows] == ["all together", "n-1", "n-2"]
    assert table.title == "latency: load, cache=none" and "all rounds, nodes and jobs" in table.caption
    bounded, open_ended = Percentile(50, 17.0, 16.9, 40.0, 500), Percentile(99.99, 16.9, 16.9, None, 500)
    (table,) = tables_of(distribution(1, (bounded, open_ended)))
    assert rows(table)[0][-2:] == ("16.9 s to 40.0 s [1]", "16.9 s or more [1]")
    assert "merged histograms" in table.caption and "exact" not in table.caption


def counted(mean: float, metric: str = "ios", node: str | None = None) -> Estimate:
    """How many operations a round had in the two rounds of ``distribution``, as the load itself counted."""
    return Estimate(1, {}, "load", metric, "1", "neither", 2, mean, mean, None, None, None, None, 0.95, (), node)


def test_operations_that_are_in_no_histogram_are_told_unless_they_are_few() -> None:
    summary = Summary("t", "iops", 0.95, 1, None, distributions=(distribution(1, FINE), distribution(2, FINE)))
    (table,) = latency_tables(replace(summary, estimates=(counted(50_500.0),)), declared("load"))
    assert [row[1] for row in rows(table)] == ["10000 of 101000 [1]", "10000"]
    assert table.notes[0] == "Not all operations are in its histograms: the percentiles are of those that are."
    assert table.caption == "of all operations in the histograms of all rounds and jobs, merged, exact to 1.0 %"
    nodes = tuple(distribution(1, FINE, name) for name in ("n-1", "n-2"))
    summary = Summary("t", "iops", 0.95, 1, None, distributions=nodes, by_node=(counted(6_000.0, node="n-2"),))
    (table,) = latency_tables(summary, declared("load"))
    assert [row[1] for row in rows(table)] == ["10000", "10000 of 12000 [2]"]
    summary = Summary("t", "iops", 0.95, 1, None, distributions=(distribution(1, FINE),), estimates=(counted(5_010.0),))
    (table,) = latency_tables(summary, declared("load"))
    assert table.rows[0][0] == "none" and table.rows[0][1] == "10000"


def test_latencies_have_a_section_with_those_that_are_asked_about_in_short() -> None:
    summary = Summary("t", "iops", 0.95, 1, None, distributions=(distribution(1, FINE),))
    assert [table.title for table in tables(section(ReportInput(summary), "latency").blocks)] == ["latency: load"]
    for form, heading in (("md", "## Latency"), ("adoc", "== Latency"), ("html", "Latency</h2>")):
        assert heading in render(ReportInput(summary), form)
    those = tuple(distribution(1, FINE, metric=name) for name in ("close.latency", "create.latency", "sync.latency"))
    different = tuple(replace(each, operations=10_000 + at) for at, each in enumerate(those))
    summary = Summary("t", "create.rate", 0.95, 1, None, distributions=different)
    assert [table.title for table in asked_latencies(summary, declared("load"))] == [
        "create.latency: load",
        "sync.latency: load",
    ]
    assert asked_latencies(summary, declared("load"))[0].columns[-1] == "p50"
    assert asked_latencies(summary, declared("load"))[0].notes == ()
    assert len(tables_of(distribution(1, FINE), distribution(1, FINE, metric="write.latency"))) == 1
    assert tables_of() == []


def test_csv_has_each_percentile_with_its_bounds() -> None:
    summary = Summary("t", "iops", 0.95, 1, None, distributions=(distribution(1, FINE), distribution(1, FINE, "n-1")))
    found = list(csv.DictReader(io.StringIO(render_csv(ReportInput(summary)))))
    names = ("kind", "metric", "factor.cache", "node", "value", "low", "high", "operations")
    assert [found[0][name] for name in names] == [
        *("latency", "latency.p50", "none", "", "0.0001", "9.95e-05", "0.0001005", "10000")
    ]
    assert [(row["metric"], row["node"]) for row in found[1:]] == [
        ("latency.p99.99", ""), ("latency.p50", "n-1"), ("latency.p99.99", "n-1"),
    ]  # fmt: skip


def steady_table(*windows: SteadyWindow) -> Table:
    (only,) = steady_tables(Summary("t", "iops", 0.95, 8, None, steady=windows))
    return only


def window(cell: int, mean: float | None, spread: float | None, slope: float | None, *, steady: bool) -> SteadyWindow:
    return SteadyWindow(cell, {"fs": f"fs{cell}"}, "load", "bandwidth", "B/s", 4, 8, mean, spread, slope, steady)


def test_steady_state_shares_stand_beside_their_limits_and_few_rounds_have_none() -> None:
    over, within = window(1, 1e6, 0.204, 0.05, steady=False), window(2, 1e6, 0.196, 0.1, steady=True)
    shown = steady_table(over, within)
    assert [row[3:] for row in shown.rows] == [("20.4 %", "5.0 %", "no"), ("19.6 %", "10.0 %", "yes")]
    few = steady_table(window(1, None, None, None, steady=False), window(2, 1e6, 0.1, 0.1, steady=True))
    assert few.rows[0][2:] == ("–", "–", "–", "no: too few rounds")
