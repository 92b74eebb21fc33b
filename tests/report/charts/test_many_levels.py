"""Charts and tables of many levels, of levels whose names are long or say little, and of levels that are a sweep."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import altair as alt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from storlab.analysis.summary import to_json
from storlab.base.errors import UserError
from storlab.records.tables import COLUMNS
from storlab.report.charts.theme import LIMIT, MOST_LINES, legend_of, shortened, specification, to_svg, with_short_names
from storlab.report.charts.whole_trials import latency_chart
from storlab.report.document import Figure, Table
from storlab.report.formats import render
from storlab.report.model.input import ReportInput
from storlab.report.plots import Plots, Run

from ..hostile import invisible
from ..sample_run import declared
from ..samples import marked, series_sample, sweep_sample
from ..shown import drawn, kind, svg


def numbered(count: int) -> ReportInput:
    return series_sample([f"f{number:02}" for number in range(count)], 60)


def with_latencies(given: ReportInput) -> ReportInput:
    series = given.series.with_columns(metric=pl.lit("read.latency.p99"), unit=pl.lit("s"))
    return replace(given, series=series, declared=declared("sysbench"))


def of_kinds(given: ReportInput, *kinds: str) -> list[Figure]:
    return [panel for panel in drawn(given) if kind(panel) in kinds]


def test_many_levels_are_told_apart_by_rows_or_by_charts() -> None:
    given = numbered(MOST_LINES + 1)
    assert [panel.title for panel in of_kinds(given, "course", "variability")][:2] == ["Box with outliers", "Outliers"]
    assert len(of_kinds(given, "series")) == MOST_LINES + 1
    assert "All levels" in of_kinds(numbered(MOST_LINES), "course")[0].title
    panels = of_kinds(with_latencies(numbered(20)), "course")
    assert [panel.about for panel in panels] == [
        "read.latency: sysbench, doublewrite=f00 to f06",
        "read.latency: sysbench, doublewrite=f07 to f13",
        "read.latency: sysbench, doublewrite=f14 to f19",
    ]
    shown = [[f"f{at:02}" for at in range(20) if f">f{at:02}<" in svg(panel)] for panel in panels]
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


def test_legends_and_rows_of_many_levels_leave_the_charts_room() -> None:
    def height(count: int) -> float:
        panel = of_kinds(series_sample([f"{at} is a long name" for at in range(count)], 60), "course")[0]
        return float(specification(panel.draw(), width=360)["height"])

    assert height(6) == height(2) + 4 * 17  # a name a row

    def of_rounds(count: int) -> float:
        return float(of_kinds(rounds_of(numbered(count), 2), "rounds")[0].draw().to_dict(validate=False)["height"])

    assert of_rounds(20) < of_rounds(12) < 12 * 60

    def labels(nines: float) -> list[str]:
        curves = pl.DataFrame({"level": ["a", "a"], "nines": [0.1, nines], "latency": [1e-4, 1e-2]})
        drawn = to_svg(latency_chart(curves, "kind", ["a"]))
        return re.findall(r'opacity="1">(9[0-9.]*)<', drawn)

    assert labels(5) == ["90", "99", "99.9", "99.99", "99.999"]
    assert labels(6) == labels(5)  # and not 99.9999


def test_charts_and_tables_name_the_factor() -> None:
    for panel in of_kinds(series_sample(n=100), "rounds", "course", "variability"):
        if not panel.title.startswith("Quantiles"):  # of one level against the other, as it says
            assert ">doublewrite<" in svg(panel), panel.title
    assert '<th scope="row">off</th>' in render(series_sample(n=60), "html")


@pytest.mark.parametrize(("level", "title"), [("16", "doublewrite=16"), ("on", "doublewrite=on"), ("zfs", "zfs")])
def test_a_level_that_says_little_by_itself_has_its_factor_beside_it(level: str, title: str) -> None:
    assert of_kinds(series_sample([level], 60), "series")[0].title == title


def test_wide_letters_count_twice_and_long_labels_have_the_whole_width() -> None:
    assert list(shortened(["默认设置与双写缓冲区"])) == ["默认设置与双写缓冲区"]
    chinese, latin = ({"color": {"scale": {"domain": [letter * 8]}}} for letter in "默a")
    assert legend_of(chinese, 360)[0]["columns"] < legend_of(latin, 360)[0]["columns"]
    table = partial(Table, "tps", ("file", "mean", "95 % interval", "spread", "rounds"))
    numbers = ("5.30 k/s", "5.2 to 5.4 k/s", "3.1 %", "1 [1]")
    assert table((("a" * 50, *numbers),)).wide
    assert not table((("words that break " * 3, *numbers),)).wide

    def columns(letters: int, width: float) -> int:
        return legend_of({"color": {"scale": {"domain": ["x" * letters]}}}, width)[0]["columns"]

    assert [columns(3, 360), columns(16, 360), columns(16, 1040), columns(90, 360)] == [5, 2, 6, 1]


NAMES = st.lists(st.text("ab-_.", max_size=40) | st.text(max_size=30) | invisible, max_size=5)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["xfs", "ext4"], {}),
        (["mysql-12h-doublewrite-off", "mysql-12h-doublewrite-on"],
         {"mysql-12h-doublewrite-off": "…doublewrite-off", "mysql-12h-doublewrite-on": "…doublewrite-on"}),
        (["/var/tmp/results/off-1.txt", "/var/tmp/results/on-2.txt"],
         {"/var/tmp/results/off-1.txt": "…results/off-1.txt", "/var/tmp/results/on-2.txt": "…results/on-2.txt"}),
        (["xfs-without-reflinks-today", "ext4-without-reflinks-today"],
         {"xfs-without-reflinks-today": "xfs-without-…", "ext4-without-reflinks-today": "ext4-without-…"}),
        (["baseline-kernel-6.12.117-x", "patched"], {"baseline-kernel-6.12.117-x": "baseline-…12.117-x"}),
        (["a-name-of-22-characters", "a-name-of-22-characters-and-more"], None),
    ],
)  # fmt: skip
def test_what_long_names_share_is_left_out(names: list[str], short: dict[str, str] | None) -> None:
    found = shortened(names)
    assert found == short if short is not None else len(set(found.values())) == 2, found


@given(NAMES)
def test_names_stay_apart_and_fit_or_all_stay_as_they_are(names: list[str]) -> None:
    short = shortened(names)
    shown = [short.get(name, name) for name in names]
    assert len(set(shown)) == len(set(names))
    assert all(cell_len(name) <= LIMIT for name in short.values())
    assert all(cell_len(name) > LIMIT for name in short)


def test_a_level_has_one_name_in_all_of_a_chart() -> None:
    long = "mysql-12h-doublewrite-"
    spec = {
        "encoding": {"y": {"field": "level", "sort": [f"{long}on", f"{long}off"]}},
        "datasets": {"x": [{"level": f"{long}on", "v": 1.0}, {"level": f"{long}off", "v": 2.0}]},
    }
    assert with_short_names(spec) == {
        "encoding": {"y": {"field": "level", "sort": ["…doublewrite-on", "…doublewrite-off"]}},
        "datasets": {"x": [{"level": "…doublewrite-on", "v": 1.0}, {"level": "…doublewrite-off", "v": 2.0}]},
    }


@given(NAMES, st.integers(1, 2000))
def test_a_legend_of_any_names_has_a_column_and_room_between_two(names: list[str], width: int) -> None:
    given = legend_of({"color": {"legend": {"title": "".join(names)}, "scale": {"domain": names}}}, width)[0]
    assert given["columns"] >= 1 and given["columnPadding"] >= 10


def test_a_sweep_has_valid_curves_a_heat_map_and_latency_against_throughput() -> None:
    names = [panel.name for panel in drawn(sweep_sample()) if kind(panel) in ("curve", "heat", "hockey")]
    assert [name.split("-")[0] for name in names] == ["curve", "curve", "heat", "hockey"]
    for panel in drawn(sweep_sample()):
        assert panel.draw().to_dict(validate=True), panel.name
    panels = [panel for panel in drawn(sweep_sample(jobs=("1",))) if kind(panel) == "sweep"]
    assert not [panel for panel in panels if panel.name.startswith("heat")]


def test_levels_are_in_their_order_as_ticks_and_in_heat_maps_and_the_knee_is_marked() -> None:
    (stick,) = [panel for panel in drawn(sweep_sample(jobs=("1",))) if panel.name.startswith("hockey")]
    chart = stick.draw()
    assert isinstance(chart, alt.LayerChart)
    assert "iodepth 8" in stick.alt and ">8<" in to_svg(chart)
    run = sweep_sample(jobs=("1", "4", "16"))
    without = tuple(e for e in run.summary.estimates if e.levels != {"jobs": "1", "iodepth": "8"})
    panels = drawn(replace(run, summary=replace(run.summary, estimates=without)))
    heat = next(panel for panel in panels if panel.name.startswith("heat"))
    layer = heat.draw().to_dict()["layer"][0]["encoding"]
    assert layer["x"]["scale"]["domain"] == ["1", "2", "4", "8", "16", "32"]
    assert layer["y"]["scale"]["domain"] == ["16", "4", "1"]
    curve = next(panel for panel in drawn(sweep_sample()) if panel.name.startswith("curve-iops"))
    shown = to_svg(curve.draw())
    assert all(f">{depth}<" in shown for depth in (1, 2, 4, 8, 16, 32))
    assert "log scale" in shown


def test_a_chart_marks_the_knees_of_its_own_load_and_latency_alone() -> None:
    run = sweep_sample(jobs=("1",))
    (own,) = run.summary.knees
    others = (replace(own, source="other", level="2"), replace(own, latency="latency.p99", level="4"))
    estimates = [*run.summary.estimates, *(replace(e, source="other") for e in run.summary.estimates)]
    summary = replace(run.summary, knees=(own, *others), estimates=tuple(estimates))
    sticks = [panel for panel in drawn(replace(run, summary=summary)) if panel.name.startswith("hockey")]
    told = [[level for level in ("2", "4", "8") if f"iodepth {level} (" in stick.alt] for stick in sticks]
    assert told == [["8"], ["2"], ["4"]]
    assert [marked(stick.draw()) for stick in sticks] == told


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_a_report_says_where_the_knee_is_and_up_to_where_the_objective_holds(form: str) -> None:
    said = " ".join(render(sweep_sample(), form).split())
    assert "established up to iodepth 8" in said.replace("\\", "") and "not so from 16 on" in said
    assert "iodepth 8 (95 %" in said.replace("\\", "")


@pytest.fixture
def plot(tmp_path: Path) -> Plots:
    (tmp_path / "summary.json").write_bytes(to_json(sweep_sample().summary))
    return Run(tmp_path).plot


def test_every_plot_is_a_chart_that_can_be_changed_and_saved_with_its_own_knees(plot: Plots, tmp_path: Path) -> None:
    charts = [
        plot.curve("iops"), plot.curve("latency.p99", "jobs", where={"iodepth": "8"}),
        plot.heat_map("iops", "iodepth", "jobs"), plot.hockey_stick("latency.p99"),
    ]  # fmt: skip
    for number, chart in enumerate(charts):
        chart.properties(title="mine").save(str(tmp_path / f"{number}.svg"))
        assert "mine" in (tmp_path / f"{number}.svg").read_text()
    summary = sweep_sample(jobs=("1",)).summary
    (own,) = summary.knees
    odd = (replace(own, source="other", level="2"), replace(own, latency="latency.p99", level="4"))
    (tmp_path / "summary.json").write_bytes(to_json(replace(summary, knees=(own, *odd))))
    plot = Run(tmp_path).plot
    assert marked(plot.hockey_stick()) == ["8"] and marked(plot.hockey_stick("latency.p99")) == ["4"]


def test_what_cannot_be_drawn_is_refused_with_what_there_is(plot: Plots, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no metric 'iop'"):
        plot.curve("iop")
    with pytest.raises(UserError, match="there are: jobs, iodepth"):
        plot.curve("iops", "depth")
    with pytest.raises(UserError, match="no cell has these levels"):
        plot.curve("iops", where={"jobs": "3"})
    with pytest.raises(UserError, match="no cell has these levels"):
        plot.heat_map("iops", "iodepth", "jobs", where={"jobs": "3"})
    with pytest.raises(UserError, match=r"summary\.json is not there: `storlab report "):
        Run(tmp_path / "none").plot.curve("iops")
