"""Sweeps in reports and in Python: charts, tables and sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from storlab.analysis.summary import to_json
from storlab.errors import UserError
from storlab.report.charts import all_panels
from storlab.report.charts.theme import to_svg
from storlab.report.formats import render
from storlab.report.plots import Plots, Run

from ..samples import marked, sweep_sample


def test_a_sweep_has_valid_curves_a_heat_map_and_latency_against_throughput() -> None:
    names = [panel.name for panel in all_panels(sweep_sample()) if panel.kind == "sweep"]
    assert [name.split("-")[0] for name in names] == ["curve", "curve", "heat", "hockey"]
    for panel in all_panels(sweep_sample()):
        assert panel.draw().to_dict(validate=True), panel.name
    panels = [panel for panel in all_panels(sweep_sample(jobs=("1",))) if panel.kind == "sweep"]
    assert not [panel for panel in panels if panel.name.startswith("heat")]


def test_levels_are_in_their_order_as_ticks_and_in_heat_maps_and_the_knee_is_marked() -> None:
    (stick,) = [panel for panel in all_panels(sweep_sample(jobs=("1",))) if panel.name.startswith("hockey")]
    chart = stick.draw()
    assert isinstance(chart, alt.LayerChart)
    assert "iodepth 8" in stick.alt and ">8<" in to_svg(chart)
    run = sweep_sample(jobs=("1", "4", "16"))
    without = tuple(e for e in run.summary.estimates if e.levels != {"jobs": "1", "iodepth": "8"})
    panels = all_panels(replace(run, summary=replace(run.summary, estimates=without)))
    heat = next(panel for panel in panels if panel.name.startswith("heat"))
    layer = heat.draw().to_dict()["layer"][0]["encoding"]
    assert layer["x"]["scale"]["domain"] == ["1", "2", "4", "8", "16", "32"]
    assert layer["y"]["scale"]["domain"] == ["16", "4", "1"]
    curve = next(panel for panel in all_panels(sweep_sample()) if panel.name.startswith("curve-iops"))
    drawn = to_svg(curve.draw())
    assert all(f">{depth}<" in drawn for depth in (1, 2, 4, 8, 16, 32))
    assert "log scale" in drawn


def test_a_chart_marks_the_knees_of_its_own_load_and_latency_alone() -> None:
    run = sweep_sample(jobs=("1",))
    (own,) = run.summary.knees
    others = (replace(own, source="other", level="2"), replace(own, latency="latency.p99", level="4"))
    estimates = [*run.summary.estimates, *(replace(e, source="other") for e in run.summary.estimates)]
    summary = replace(run.summary, knees=(own, *others), estimates=tuple(estimates))
    sticks = [panel for panel in all_panels(replace(run, summary=summary)) if panel.name.startswith("hockey")]
    told = [[level for level in ("2", "4", "8") if f"iodepth {level} (" in stick.alt] for stick in sticks]
    assert told == [["8"], ["2"], ["4"]]
    assert [marked(stick.draw()) for stick in sticks] == told


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_a_report_says_where_the_knee_is_and_up_to_where_the_objective_holds(form: str) -> None:
    said = " ".join(render(sweep_sample(), form).split())
    assert "established up to iodepth 8" in said.replace("\\", "")
    assert "not so from 16 on" in said
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
    assert marked(plot.hockey_stick()) == ["8"]
    assert marked(plot.hockey_stick("latency.p99")) == ["4"]


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
