"""Sweeps in reports: charts, tables and sentences."""

from __future__ import annotations

import altair as alt
import pytest

from storlab.report.charts import all_panels
from storlab.report.charts.theme import to_svg
from storlab.report.formats import render

from ..sweep_sample import sweep_sample


def test_a_sweep_has_curves_a_heat_map_and_latency_against_throughput() -> None:
    names = [panel.name for panel in all_panels(sweep_sample()) if panel.kind == "sweep"]
    assert [name.split("-")[0] for name in names] == ["curve", "curve", "heat", "hockey"]


def test_every_chart_of_a_sweep_is_valid_vega_lite() -> None:
    for panel in all_panels(sweep_sample()):
        assert panel.draw().to_dict(validate=True), panel.name


def test_a_single_factor_has_no_heat_map_and_one_line() -> None:
    panels = [panel for panel in all_panels(sweep_sample(jobs=("1",))) if panel.kind == "sweep"]
    assert not [panel for panel in panels if panel.name.startswith("heat")]


def test_the_knee_is_marked_with_its_level() -> None:
    (stick,) = [panel for panel in all_panels(sweep_sample(jobs=("1",))) if panel.name.startswith("hockey")]
    chart = stick.draw()
    assert isinstance(chart, alt.LayerChart)
    assert "iodepth 8" in stick.alt and ">8<" in to_svg(chart)


def test_levels_are_the_ticks_of_a_curve() -> None:
    curve = next(panel for panel in all_panels(sweep_sample()) if panel.name.startswith("curve-iops"))
    drawn = to_svg(curve.draw())
    assert all(f">{depth}<" in drawn for depth in (1, 2, 4, 8, 16, 32))
    assert "log scale" in drawn


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_a_report_says_where_the_knee_is_and_up_to_where_the_objective_holds(form: str) -> None:
    said = " ".join(render(sweep_sample(), form).split())
    assert "established up to iodepth 8" in said.replace("\\", "")
    assert "not so from 16 on" in said
    assert "iodepth 8 (95 %" in said.replace("\\", "")
