"""``storlab.open_run(…).plot``: charts for Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storlab.analysis.summary import to_json
from storlab.errors import UserError
from storlab.report.plots import Plots, Run

from .sweep_sample import marked, sweep_sample


@pytest.fixture
def plot(tmp_path: Path) -> Plots:
    (tmp_path / "summary.json").write_bytes(to_json(sweep_sample().summary))
    return Run(tmp_path).plot


def test_every_plot_of_a_sweep_is_a_chart_that_can_be_changed_and_saved(plot: Plots, tmp_path: Path) -> None:
    charts = [
        plot.curve("iops"),
        plot.curve("latency.p99", "jobs", where={"iodepth": "8"}),
        plot.heat_map("iops", "iodepth", "jobs"),
        plot.hockey_stick("latency.p99"),
    ]
    for number, chart in enumerate(charts):
        chart.properties(title="mine").save(str(tmp_path / f"{number}.svg"))
        assert "mine" in (tmp_path / f"{number}.svg").read_text()


def test_knees_of_other_loads_and_latencies_are_notmarked(tmp_path: Path) -> None:
    summary = sweep_sample(jobs=("1",)).summary
    (own,) = summary.knees
    others = (replace(own, source="other", level="2"), replace(own, latency="latency.p99", level="4"))
    (tmp_path / "summary.json").write_bytes(to_json(replace(summary, knees=(own, *others))))
    plot = Run(tmp_path).plot
    assert marked(plot.hockey_stick()) == ["8"]
    assert marked(plot.hockey_stick("latency.p99")) == ["4"]


def test_what_cannot_be_drawn_is_refused_with_what_there_is(plot: Plots) -> None:
    with pytest.raises(UserError, match="no metric 'iop'"):
        plot.curve("iop")
    with pytest.raises(UserError, match="there are: jobs, iodepth"):
        plot.curve("iops", "depth")
    with pytest.raises(UserError, match="no cell has these levels"):
        plot.curve("iops", where={"jobs": "3"})
    with pytest.raises(UserError, match="no cell has these levels"):
        plot.heat_map("iops", "iodepth", "jobs", where={"jobs": "3"})


def test_a_run_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"summary\.json is not there: `storlab report "):
        Run(tmp_path).plot.curve("iops")
