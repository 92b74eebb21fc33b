"""Charts: every panel of the samples, drawn on the page and written to files of their own with a title above."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import altair as alt
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storlab.analysis.variability import samples
from storlab.base.text import plain
from storlab.report.charts.panel import titled, write_charts
from storlab.report.charts.theme import fitting_scale, to_png, to_svg
from storlab.report.charts.whole_trials import (
    histogram_chart,
    paired_chart,
    percentile_curve,
    rounds_chart,
    shares_of_bins,
)
from storlab.report.document import Figure, figures
from storlab.report.formats import render
from storlab.report.formats.html import render_html
from storlab.report.model.input import ReportInput
from storlab.report.model.questions import Values
from storlab.report.sections import page_document

from ..hostile import hostile_run, invisible
from ..sample import sample, with_one_load
from ..sample_run import declared
from ..samples import LEVELS, block_sample, series_sample
from ..shown import drawn, kind, svg
from ..vm_sample import vm_sample


@pytest.fixture(scope="module")
def run() -> ReportInput:
    return sample()


@pytest.fixture(scope="module")
def half() -> ReportInput:
    return with_one_load(sample())


def test_every_chart_is_written_as_svg_and_png(half: ReportInput, tmp_path: Path) -> None:
    files = write_charts(drawn(half), tmp_path / "charts")
    assert len(files) == len(set(files)) == 24
    for file in files:
        start = file.read_bytes()[:8]
        assert start.startswith(b"<svg") if file.suffix == ".svg" else start == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("make", [sample, block_sample, series_sample, vm_sample])
def test_every_chart_is_valid_vega_lite(make: Callable[[], ReportInput]) -> None:
    with alt.data_transformers.disable_max_rows():
        for panel in drawn(make()):
            assert panel.draw().to_dict(validate=True), panel.name


def test_panels_say_in_words_what_they_show_in_the_unit_of_the_tables(run: ReportInput) -> None:
    panels = {panel.name: panel for panel in drawn(run)}
    rounds = panels["rounds-write-bandwidth-random-write"]
    assert "write.bandwidth: ext4 47.3 MiB/s (45.7 to 48.9 MiB/s), xfs" in rounds.alt
    assert "ext4 is better than xfs: 1.43×" in panels["paired-write-bandwidth-random-write"].alt
    for panel in drawn(run):
        if kind(panel) == "rounds" and "bandwidth" in panel.name:
            assert "bandwidth (MiB/s" in to_svg(panel.draw())


def test_a_failed_trial_leaves_a_gap_percentile_curves_rise_and_series_add_up_over_nodes(run: ReportInput) -> None:
    comparison = next(
        c for c in run.summary.comparisons if (c.a, c.b, c.metric) == ("ext4", "btrfs", "write.bandwidth")
    )
    span = Values(run.summary, run).span(comparison)
    assert span is not None and len(span.points) == 7 and all(4 < point < 7 for point in span.points)
    curve = percentile_curve(run.histograms, 1, "random-write", "write.latency")
    assert curve["nines"].is_sorted() and curve["latency"].is_sorted()
    half = curve.filter(pl.col("nines") >= 0.30103)["latency"][0]
    assert 1.0e-3 < half < 1.6e-3
    together = samples(run.series, "random-write", "write.bandwidth", "sum", {"ext4": 1})
    one = run.series.filter(cell=1, round=1, t=1.0, source="random-write")["value"]
    assert len(one) == 2
    assert together.filter(level="ext4", round=1, t=1.0)["value"].item() == pytest.approx(one.sum())


def test_a_page_has_charts_of_what_its_run_has_and_counts_those_that_do_not_fit(
    run: ReportInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = ReportInput(run.summary, metrics=run.metrics)
    assert {kind(panel) for panel in drawn(bare)} == {"paired", "rounds"}
    assert "Over time" not in render(bare, "html")
    monkeypatch.setattr("storlab.report.charts.panel._MOST", 1)
    page = render(run, "html")
    shown = [figure for figure in figures(page_document(run)) if not figure.file]
    assert len(shown) == len({kind(figure) for figure in shown} - {"series"}), "one of each place"
    assert f"{len(drawn(run)) - len(shown) - 4} more charts are not on this page" in page


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, float("nan"), float("inf"), -1.0])
def test_absurd_numbers_are_drawn_or_left_out_but_never_fatal(half: ReportInput, scale: float) -> None:
    estimates = tuple(replace(e, mean=e.mean * scale, low=None, high=scale) for e in half.summary.estimates)
    odd = replace(
        half,
        summary=replace(half.summary, estimates=estimates),
        metrics=half.metrics.with_columns(pl.col("value") * scale),
        series=half.series.with_columns(pl.col("value") * scale),
        histograms=half.histograms.with_columns(pl.col("upper") * scale),
    )
    for panel in drawn(odd):
        to_svg(panel.draw())


def test_axes_are_logarithmic_where_that_shows_all_values_and_intervals(run: ReportInput) -> None:
    shares = [0.0, 0.0001, 1.0]
    assert fitting_scale(shares)[0].to_dict()["zero"] is True and fitting_scale(shares[1:])[1] == "log scale"
    some = run.summary.estimates[0]
    small, large = replace(some, mean=1e6, low=0.0, high=2e6), replace(some, mean=1e9, low=9e8, high=1.1e9)
    values = pl.DataFrame({"level": ["a", "b"], "round": [1, 1], "value": [1e6, 1e9]})
    chart = rounds_chart(values, {"a": small, "b": large}, "kind", ["a", "b"]).to_dict()
    rows = [row for data in chart["datasets"].values() for row in data if "low" in row]
    assert "log scale" in str(chart)
    assert rows
    assert all(row["low"] > 0 for row in rows)


def test_long_names_of_pairs_are_in_two_lines_and_those_without_a_width_are_drawn(run: ReportInput) -> None:
    comparison = replace(run.summary.comparisons[0], a="xfs-16k-16k", b="ext4-bigalloc")
    assert ">vs ext4-bigalloc<" in to_svg(paired_chart([comparison], [None]))
    for panel in drawn(hostile_run("🏻")):
        assert titled(svg(panel), panel.title).startswith("<svg")


DRAWN = (
    '<svg xmlns="http://www.w3.org/2000/svg" class="marks" width="360" height="100" viewBox="0 0 360 100"><g/></svg>'
)
_SVG = "{http://www.w3.org/2000/svg}"


def lines(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{_SVG}text")]


def test_the_title_stands_above_the_drawing_which_stays_as_it_is_in_lines_that_fit() -> None:
    root = ET.fromstring(titled(DRAWN, "Histogram, tps"))
    assert root.get("width") == "360" and root.get("viewBox") == f"0 0 360 {root.get('height')}"
    below = root.find(f"{_SVG}g")
    assert below is not None and below.get("transform") == f"translate(0,{int(root.get('height') or 0) - 100})"
    assert [child.tag for child in below] == [f"{_SVG}g"]
    title = "Quantiles of on against off, transactions per second under random writes of 4k"
    assert len(lines(titled(DRAWN, title))) == 2
    assert " ".join(lines(titled(DRAWN, title))) == title
    assert 'height="100"' in titled(DRAWN, "")
    assert to_png(titled(DRAWN, 'a <b> & "c" 😀 \x00\x1b[1m')).startswith(b"\x89PNG")


@settings(max_examples=200)
@given(title=st.text(max_size=120) | invisible, width=st.integers(1, 2000))
@example(title="🏻", width=360)
@example(title="漢字", width=1)
def test_any_title_gives_a_document_that_can_be_read(title: str, width: int) -> None:
    drawn = DRAWN.replace("360", str(width))
    assert "".join("".join(lines(titled(drawn, title))).split()) == "".join(plain(title).split())


def test_page_and_files_share_one_drawing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times: list[int] = []

    def counted(chart: object, *, width: int = 360) -> str:
        times.append(width)
        return DRAWN.replace("360", str(width))

    monkeypatch.setattr("storlab.report.charts.theme.to_svg", counted)
    document = page_document(sample())
    render_html(document)
    charts = figures(document)
    write_charts(charts, tmp_path)
    assert len(times) == sum((2 if each.wide else 1) * (2 if each.draw_log else 1) for each in charts)


def with_latency(nodes: int = 1, n: int = 100) -> ReportInput:
    """Of reads and writes the median and the 99th percentile; those of the second node are twice those of the first."""
    plain = series_sample(LEVELS, n)
    factors = {"read.latency.p50": 1e-4, "read.latency.p99": 2e-3, "write.latency.p50": 1e-3, "write.latency.p99": 0.03}
    series = pl.concat(
        plain.series.with_columns(node=pl.lit(f"vm-{node}"), metric=pl.lit(metric), unit=pl.lit("s"),
                                  value=factor * node * (1 + pl.col("t") / pl.col("t").max()))
        for metric, factor in factors.items()
        for node in range(1, nodes + 1)
    )  # fmt: skip
    return replace(plain, series=pl.concat([plain.series, series]), declared=declared("sysbench"))  # with directions


def percentiles(given: ReportInput) -> list[Figure]:
    return [panel for panel in drawn(given) if panel.title.startswith("Percentiles")]


def test_each_direction_has_a_chart_of_its_latency_with_the_slowest_node_and_the_percentiles_that_are_kept() -> None:
    panels = percentiles(with_latency())
    assert [panel.about for panel in panels] == ["read.latency: sysbench", "write.latency: sysbench"]
    assert panels[0].title == "Percentiles of each interval: p99 and p50 (dashed)"
    assert panels[0].alt == "p99 and p50 of read.latency over the time of a trial, of off and on."
    for text in (">off<", ">on<", ">200 µs<", ">2 ms<", "latency (log scale)"):
        assert text in svg(panels[0]), text
    alone, slow = (percentiles(with_latency(nodes))[1].draw().to_dict(validate=False) for nodes in (1, 3))

    def highest(spec: dict[str, object]) -> float:
        (rows, *_) = spec["datasets"].values()  # type: ignore[attr-defined]
        return float(max(row["high"] for row in rows))

    assert highest(slow) == pytest.approx(3 * highest(alone))
    given = with_latency()
    given = replace(given, series=given.series.filter(pl.col("metric") != "read.latency.p50"))
    assert percentiles(given)[0].title == "Percentiles of each interval: p99"
    given = with_latency()
    reads = pl.col("metric").str.starts_with("read.latency")
    given = replace(given, series=given.series.with_columns(value=pl.when(reads).then(0.0).otherwise("value")))
    assert [panel.about for panel in percentiles(given)] == ["write.latency: sysbench"]


@pytest.mark.parametrize("n", [1, 2])
def test_two_instants_are_no_course(n: int) -> None:
    assert percentiles(with_latency(n=n)) == []


def histograms(*cells: dict[tuple[float, float], int]) -> pl.DataFrame:
    """Of cells 1, 2 …: edges → count."""
    rows = [
        {"cell": cell, "trial": 1, "node": "host", "job": None, "source": "job", "metric": "latency"}
        | {"lower": lower, "upper": upper, "count": count}
        for cell, bins in enumerate(cells, 1)
        for (lower, upper), count in bins.items()
    ]
    return pl.DataFrame(rows, schema_overrides={"job": pl.String})


def shares(*cells: dict[tuple[float, float], int]) -> pl.DataFrame:
    names = {f"depth={cell}": cell for cell in range(1, len(cells) + 1)}
    return shares_of_bins(histograms(*cells), names, "job", "latency")


def of(found: pl.DataFrame, level: str) -> dict[float, float]:
    rows = found.filter(pl.col("level") == level, pl.col("share") > 0)
    return {float(f"{lower:.4g}"): share for lower, share in rows.select("lower", "share").iter_rows()}


def test_bins_are_brought_together_in_tenths_of_a_decade_where_a_tool_has_not_kept_them_wider() -> None:
    found = shares({(1e-4, 1.02e-4): 3, (1.02e-4, 1.04e-4): 1, (1.1e-3, 1.11e-3): 4}, {(1e-2, 1.01e-2): 7})
    assert of(found, "depth=1") == {1e-4: 0.5, 1e-3: 0.5} and of(found, "depth=2") == {1e-2: 1.0}
    edges = [found.filter(pl.col("level") == f"depth={number}")["lower"].to_list() for number in (1, 2)]
    assert edges[0] == edges[1] == pytest.approx([10 ** (number / 10) for number in range(-41, -18)])
    found = shares({(0.0, 2e-6): 1, (2e-6, 4e-6): 2, (4e-6, 1e-5): 1}, {(2.0, math.inf): 5})
    assert of(found, "depth=1") == {1e-6: 0.25, 2e-6: 0.5, 4e-6: 0.25} and of(found, "depth=2") == {2.0: 1.0}
    assert found.filter(pl.col("level") == "depth=1")["lower"].to_list() == [1e-6, 2e-6, 4e-6, 1e-5, 2.0, 4.0]
    found = shares({(0.0, 0.0): 5})
    assert found.height == 0 and histogram_chart(found, "latency", ["depth=1"]).to_dict()["layer"]
    found = shares({(1e-4, 1.02e-4): 3}, {(1e-2, 1.01e-2): 7})
    chart = histogram_chart(found, "latency", ["depth=1", "depth=2"]).to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["area", "line"]
    assert chart["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["depth=1", "depth=2"]


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.floats(1e-9, 1e3), st.floats(1.001, 4)).map(lambda edges: (edges[0], edges[0] * edges[1])),
            st.integers(1, 10**9), min_size=1, max_size=8,
        ),
        min_size=1,
        max_size=3,
    )
)  # fmt: skip
def test_the_shares_of_a_cell_are_all_of_it_and_end_at_nothing(cells: list[dict[tuple[float, float], int]]) -> None:
    found = shares(*cells)
    for number in range(1, len(cells) + 1):
        own = found.filter(pl.col("level") == f"depth={number}")
        assert own["share"].sum() == pytest.approx(1.0)
        assert own["lower"].is_sorted() and own["lower"].n_unique() == own.height and own["share"][-1] == 0.0
