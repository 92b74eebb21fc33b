"""Charts: every panel of the sample, drawn and written to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import altair as alt
import polars as pl
import pytest

from storlab.analysis.variability.samples import samples
from storlab.report.charts import all_panels
from storlab.report.charts.latency import percentile_curve
from storlab.report.charts.panel import titled, write_charts
from storlab.report.charts.rounds import paired_chart, ratios, rounds_chart
from storlab.report.charts.scales import fitting_scale
from storlab.report.charts.theme import to_svg
from storlab.report.formats import render
from storlab.report.model.input import ReportInput, per_trial

from ..block_sample import block_sample
from ..hostile import hostile_run
from ..sample import sample
from ..series_sample import series_sample
from ..vm_sample import vm_sample


@pytest.fixture(scope="module")
def run() -> ReportInput:
    return sample()


def test_every_chart_is_written_as_svg_and_png(run: ReportInput, tmp_path: Path) -> None:
    files = write_charts(all_panels(run), tmp_path / "charts")
    assert len(files) == 48
    assert len(set(files)) == 48
    for file in files:
        start = file.read_bytes()[:8]
        assert start.startswith(b"<svg") if file.suffix == ".svg" else start == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("make", [sample, block_sample, series_sample, vm_sample])
def test_every_chart_is_valid_vega_lite(make: Callable[[], ReportInput]) -> None:
    with alt.data_transformers.disable_max_rows():
        for panel in all_panels(make()):
            assert panel.draw().to_dict(validate=True), panel.name


def test_panels_say_in_words_what_they_show(run: ReportInput) -> None:
    panels = {panel.name: panel for panel in all_panels(run)}
    rounds = panels["rounds-write-bandwidth-random-write"]
    assert "write.bandwidth: ext4 47.3 MiB/s (45.7 to 48.9 MiB/s), xfs" in rounds.alt
    assert "ext4 is better than xfs: 1.43×" in panels["paired-write-bandwidth-random-write"].alt


def test_a_chart_and_the_tables_name_the_same_unit(run: ReportInput) -> None:
    for panel in all_panels(run):
        if panel.kind == "rounds" and "bandwidth" in panel.name:
            assert "bandwidth (MiB/s" in to_svg(panel.draw())


def test_a_failed_trial_leaves_a_gap_and_not_a_zero(run: ReportInput) -> None:
    comparison = next(
        c for c in run.summary.comparisons if (c.a, c.b, c.metric) == ("ext4", "btrfs", "write.bandwidth")
    )
    points = ratios(per_trial(run.metrics, "random-write", "write.bandwidth"), comparison, 1, 3)
    assert points["round"].to_list() == [1, 2, 3, 4, 6, 7, 8]
    assert points["ratio"].is_between(4, 7).all()


def test_percentile_curves_rise_to_the_right(run: ReportInput) -> None:
    curve = percentile_curve(run.histograms, 1, "random-write", "write.latency")
    assert curve["nines"].is_sorted()
    assert curve["latency"].is_sorted()
    half = curve.filter(pl.col("nines") >= 0.30103)["latency"][0]
    assert 1.0e-3 < half < 1.6e-3


def test_series_add_up_over_nodes(run: ReportInput) -> None:
    together = samples(run.series, "random-write", "write.bandwidth", "sum", {"ext4": 1})
    one = run.series.filter(cell=1, round=1, t=1.0, source="random-write")["value"]
    assert len(one) == 2
    assert together.filter(level="ext4", round=1, t=1.0)["value"].item() == pytest.approx(one.sum())


def test_a_run_without_series_and_histograms_has_only_the_other_charts(run: ReportInput) -> None:
    bare = ReportInput(run.summary, metrics=run.metrics)
    assert {panel.kind for panel in all_panels(bare)} == {"paired", "rounds"}
    assert "Over time" not in render(bare, "html")


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, float("nan"), float("inf"), -1.0])
def test_absurd_numbers_are_drawn_or_left_out_but_never_fatal(run: ReportInput, scale: float) -> None:
    estimates = tuple(replace(e, mean=e.mean * scale, low=None, high=scale) for e in run.summary.estimates)
    odd = replace(
        run,
        summary=replace(run.summary, estimates=estimates),
        metrics=run.metrics.with_columns(pl.col("value") * scale),
        series=run.series.with_columns(pl.col("value") * scale),
        histograms=run.histograms.with_columns(pl.col("upper") * scale),
    )
    for panel in all_panels(odd):
        to_svg(panel.draw())


def test_names_without_a_width_are_drawn() -> None:
    for panel in all_panels(hostile_run("🏻")):
        assert titled(panel.svg, panel.full_title).startswith("<svg")


def test_more_charts_than_fit_a_page_are_counted(run: ReportInput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storlab.report.formats.html._MOST", 1)
    page = render(run, "html")
    assert page.count('class="chart"') == 4
    assert "18 more charts are not on this page" in page


def test_values_of_which_one_is_0_are_not_on_a_log_axis() -> None:
    shares = [0.0, 0.0001, 1.0]
    assert fitting_scale(shares)[0].to_dict()["zero"] is True
    assert fitting_scale(shares[1:])[1] == "log scale"


def test_long_names_of_pairs_are_in_two_lines(run: ReportInput) -> None:
    comparison = replace(run.summary.comparisons[0], a="xfs-16k-16k", b="ext4-bigalloc")
    points = pl.DataFrame(schema={"round": pl.Int64, "ratio": pl.Float64, "pair": pl.String, "verdict": pl.String})
    svg = to_svg(paired_chart(points, [comparison]))
    assert ">vs ext4-bigalloc<" in svg


def test_an_interval_that_ends_at_0_leaves_a_log_axis_whole(run: ReportInput) -> None:
    some = run.summary.estimates[0]
    small, large = replace(some, mean=1e6, low=0.0, high=2e6), replace(some, mean=1e9, low=9e8, high=1.1e9)
    values = pl.DataFrame({"level": ["a", "b"], "round": [1, 1], "value": [1e6, 1e9]})
    chart = rounds_chart(values, {"a": small, "b": large}, "kind", ["a", "b"]).to_dict()
    rows = [row for data in chart["datasets"].values() for row in data if "low" in row]
    assert "log scale" in str(chart)
    assert rows
    assert all(row["low"] > 0 for row in rows)
