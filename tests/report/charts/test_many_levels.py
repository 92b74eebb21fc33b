"""Charts and tables of many levels, and of levels whose names are long or say little."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import polars as pl
import pytest

from storlab.records.columns import COLUMNS
from storlab.report.charts import all_panels
from storlab.report.charts.latency import latency_chart
from storlab.report.charts.names import legend_of, shortened
from storlab.report.charts.panel import Panel
from storlab.report.charts.theme import MOST_LINES, specification, to_svg
from storlab.report.formats import render
from storlab.report.model.input import ReportInput
from storlab.report.model.tables import Table

from ..declared import declared
from ..series_sample import series_sample


def numbered(count: int) -> ReportInput:
    return series_sample([f"f{number:02}" for number in range(count)], 60)


def with_latencies(given: ReportInput) -> ReportInput:
    series = given.series.with_columns(metric=pl.lit("read.latency.p99"), unit=pl.lit("s"))
    return replace(given, series=series, declared=declared("sysbench"))


def of_kinds(given: ReportInput, *kinds: str) -> list[Panel]:
    return [panel for panel in all_panels(given) if panel.kind in kinds]


def test_levels_that_have_no_colour_of_their_own_are_told_apart_by_rows_or_by_charts() -> None:
    given = numbered(MOST_LINES + 1)
    assert [panel.title for panel in of_kinds(given, "course", "variability")] == ["Box with outliers", "Variance"]
    assert len(of_kinds(given, "series")) == MOST_LINES + 1
    assert "All levels" in of_kinds(numbered(MOST_LINES), "course")[0].title


def test_latencies_of_many_levels_are_shared_out_among_charts() -> None:
    panels = of_kinds(with_latencies(numbered(20)), "course")
    assert [panel.group for panel in panels] == [
        "read.latency: sysbench, doublewrite=f00 to f06",
        "read.latency: sysbench, doublewrite=f07 to f13",
        "read.latency: sysbench, doublewrite=f14 to f19",
    ]
    shown = [[f"f{at:02}" for at in range(20) if f">f{at:02}<" in panel.svg] for panel in panels]
    assert [len(levels) for levels in shown] == [7, 7, 6]


def rounds_of(given: ReportInput, rounds: int) -> ReportInput:
    """With the throughput of each trial, the same in each round."""
    tps = [e for e in given.summary.estimates if e.metric == "tps"]
    rows = [
        (e.cell, at + 1, e.cell, "host", "sysbench", None, "tps", e.mean, "1/s", "higher", "sum")
        for e in tps
        for at in range(rounds)
    ]
    return replace(given, metrics=pl.DataFrame(rows, schema=COLUMNS["metrics"], orient="row"))


@pytest.mark.parametrize(("levels", "drawn"), [(1, False), (2, True)])
def test_a_single_value_is_no_chart(levels: int, drawn: bool) -> None:
    given = numbered(levels)
    panels = of_kinds(rounds_of(given, 1), "rounds")
    assert any(panel.title.startswith("tps:") for panel in panels) is drawn


def test_a_legend_of_many_rows_does_not_take_the_charts_room() -> None:
    def height(count: int) -> float:
        panel = of_kinds(series_sample([f"{at} is a long name" for at in range(count)], 60), "course")[0]
        return float(specification(panel.draw(), width=360)["height"])

    assert height(6) == height(2) + 4 * 17  # a name a row


def test_charts_name_the_factor_whose_levels_they_show() -> None:
    for panel in of_kinds(series_sample(n=100), "rounds", "course", "variability"):
        if not panel.title.startswith("Quantiles"):  # of one level against the other, as it says
            assert ">doublewrite<" in panel.svg, panel.title


@pytest.mark.parametrize(("level", "title"), [("16", "doublewrite=16"), ("on", "doublewrite=on"), ("zfs", "zfs")])
def test_a_level_that_says_little_by_itself_has_its_factor_beside_it(level: str, title: str) -> None:
    assert of_kinds(series_sample([level], 60), "series")[0].title == title


def test_percentiles_whose_labels_would_meet_are_not_all_labelled() -> None:
    def labels(nines: float) -> list[str]:
        curves = pl.DataFrame({"level": ["a", "a"], "nines": [0.1, nines], "latency": [1e-4, 1e-2]})
        drawn = to_svg(latency_chart(curves, "kind", ["a"]))
        return re.findall(r'opacity="1">(9[0-9.]*)<', drawn)

    assert labels(5) == ["90", "99", "99.9", "99.99", "99.999"]
    assert labels(6) == labels(5)  # and not 99.9999


def test_a_table_with_long_labels_has_the_whole_width() -> None:
    table = partial(Table, "tps", ("file", "mean", "95 % interval", "spread", "rounds"))
    numbers = ("5.30 k/s", "5.2 to 5.4 k/s", "3.1 %", "1 [1]")
    assert table((("a" * 50, *numbers),)).wide
    assert not table((("words that break " * 3, *numbers),)).wide


def test_wide_letters_count_twice() -> None:
    assert list(shortened(["默认设置与双写缓冲区"])) == ["默认设置与双写缓冲区"]
    chinese, latin = ({"color": {"scale": {"domain": [letter * 8]}}} for letter in "默a")
    assert legend_of(chinese, 360)[0]["columns"] < legend_of(latin, 360)[0]["columns"]


def test_a_page_names_its_charts_font_once() -> None:
    assert "font-family=" not in render(series_sample(n=60), "html")


def test_a_row_that_a_phone_shows_as_a_card_names_the_factor_of_its_level() -> None:
    assert 'data-label="doublewrite">off</th>' in render(series_sample(n=60), "html")


def test_rows_of_many_levels_are_low() -> None:
    def height(count: int) -> float:
        return float(of_kinds(rounds_of(numbered(count), 2), "rounds")[0].chart.to_dict(validate=False)["height"])

    assert height(20) < height(12) < 12 * 60
