"""What a report says and shows of the samples within trials."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from storlab.report.charts import all_panels
from storlab.report.charts.panel import Panel
from storlab.report.charts.theme import to_svg
from storlab.report.formats import render
from storlab.report.model.input import ReportInput
from storlab.report.model.variability import variability_tables
from storlab.timeseries.variability import squared

from ..sample import sample
from ..series_sample import series_sample


@pytest.fixture(scope="module")
def pair() -> ReportInput:
    return series_sample()


@pytest.fixture(scope="module")
def panels(pair: ReportInput) -> dict[str, Panel]:
    return {panel.title: panel for panel in all_panels(pair) if panel.kind in ("course", "variability")}


def test_every_view_that_people_know_of_a_pair_of_runs_is_there(panels: dict[str, Panel]) -> None:
    assert list(panels) == [
        "All levels, zoomed in",
        "All levels, from zero",
        "Part by part, 15 min each",
        "Histogram with density",
        "Quantiles of on against off",
        "Box with outliers",
        "Variance",
        "Variance over time",
        "Histogram",
        "Density",
        "Bell curves",
        "Histogram with bell curves",
        "Box",
    ]
    for panel in panels.values():
        assert "<svg" in to_svg(panel.draw(), width=panel.width)


def test_charts_say_in_words_what_was_found(panels: dict[str, Panel]) -> None:
    assert "the level of on changes at 1 h 40 min" in panels["All levels, zoomed in"].alt
    assert "the level of off" not in panels["All levels, zoomed in"].alt
    assert "off has 1" in panels["Box with outliers"].alt
    assert "7.0" in panels["Variance"].alt or "×" in panels["Variance"].alt


def test_the_time_of_long_trials_is_in_hours_and_of_short_ones_in_seconds(panels: dict[str, Panel]) -> None:
    assert "time in the trial (h)" in to_svg(panels["All levels, zoomed in"].draw())
    short = next(panel for panel in all_panels(series_sample(n=200)) if panel.kind == "course")
    assert "time in the trial (s)" in to_svg(short.draw())


def test_an_axis_that_does_not_begin_at_zero_says_so(panels: dict[str, Panel]) -> None:
    assert "not from zero" in to_svg(panels["All levels, zoomed in"].draw())
    assert "not from zero" not in to_svg(panels["All levels, from zero"].draw())


def test_a_single_file_has_charts_too() -> None:
    titles = [panel.title for panel in all_panels(series_sample(["on"])) if panel.kind == "variability"]
    assert "Histogram with density" in titles
    assert not any(title.startswith("Quantiles") for title in titles)


def test_of_few_samples_there_is_no_distribution() -> None:
    assert not [panel for panel in all_panels(series_sample(n=5)) if panel.kind == "variability"]


def test_several_rounds_stand_round_by_round() -> None:
    titles = [panel.title for panel in all_panels(sample()) if panel.kind == "variability"]
    assert titles[:3] == ["Round by round", "Histogram with density", "Quantiles against ext4"]
    assert "Bell curves" not in titles


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0, 1e-30, 1e30, float("nan"), float("inf")])
def test_series_that_never_vary_or_are_absurd_are_drawn_or_left_out(pair: ReportInput, value: float) -> None:
    odd = replace(pair, series=pair.series.with_columns(value=pl.lit(value)), findings=pair.findings.clear())
    for panel in all_panels(odd):
        to_svg(panel.draw(), width=panel.width)


def test_tables_hold_the_variability_and_the_factor(pair: ReportInput) -> None:
    varying, course = variability_tables(pair)
    off, on = (dict(zip(varying.columns, row, strict=True)) for row in varying.rows)
    assert varying.title == "Variability of tps: sysbench"
    assert off["factor"] == "1.00×"
    assert 4 < float(on["factor"].rstrip("×")) < 8
    assert int(off["outliers"]) >= 11
    assert off["stall"] == "none"
    assert "not how the next will go" in varying.notes[0]
    changes = course.columns.index("changes of the level")
    assert [row[changes] for row in course.rows] == ["none", "−4.1 % at 1 h 40 min"]


def test_a_pages_tables_and_charts_stand_in_one_section(pair: ReportInput) -> None:
    page = render(pair, "html")
    section = page[page.index('<section id="variability"') :]
    assert section.index("Variability of tps") < section.index("Histogram with density") < section.index("Bell curves")


def test_a_page_explains_the_lines_that_it_shows(pair: ReportInput) -> None:
    single, several = render(pair, "html"), render(sample(), "html")
    assert "the line is the mean of a step of time" in single
    assert "the first round above" not in single
    assert "the line is the median of the rounds" in several
    assert "dashed ones the changes" not in several


def test_a_run_without_findings_has_no_tables(pair: ReportInput) -> None:
    assert variability_tables(replace(pair, findings=pair.findings.clear())) == []


def test_rounds_are_counted_where_not_all_of_them_show_something(pair: ReportInput) -> None:
    first = pair.findings.filter(cell=2)
    others = [
        first.with_columns(round=pl.lit(at, dtype=pl.Int64), drift_share=pl.lit(0.0), drift_steps=pl.lit(0.0))
        for at in (2, 3)
    ]
    drifting = first.with_columns(drift_share=pl.lit(-0.04), drift_steps=pl.lit(0.0))
    _, course = variability_tables(replace(pair, findings=pl.concat([drifting, *others])))
    row = dict(zip(course.columns, course.rows[0], strict=True))
    assert row["drift"] == "−4.0 % (1 of 3 rounds)"
    assert row["changes of the level"] == "1 a trial"


def test_where_few_trials_have_samples_enough_there_is_no_table_of_them(pair: ReportInput) -> None:
    cells = tuple(replace(cell, rounds=5) for cell in pair.summary.cells)
    assert variability_tables(replace(pair, summary=replace(pair.summary, cells=cells))) == []


def test_a_range_of_times_says_once_that_they_are_times_after_which(pair: ReportInput) -> None:
    twice = pl.concat([pair.findings.filter(cell=2).with_columns(steady_snia=pl.lit(at)) for at in (300.0, 480.0)])
    _, course = variability_tables(replace(pair, findings=twice))
    assert course.rows[0][4] == "after 5 min to 8 min"


def test_drift_in_steps_is_told_as_such(pair: ReportInput) -> None:
    stepping = pair.findings.filter(cell=2).with_columns(drift_share=pl.lit(0.0), drift_steps=pl.lit(-0.041))
    _, course = variability_tables(replace(pair, findings=stepping))
    assert course.rows[0][course.columns.index("drift")] == "−4.1 % in steps"


def test_a_variances_unit_is_its_values_squared() -> None:
    assert [squared(unit) for unit in ("1/s", "B/s", "s")] == ["1/s²", "B²/s²", "s²"]
