"""The shipped study ``queue-depth``, small: from fio to its curves."""

from __future__ import annotations

from pathlib import Path

import storlab
from storlab.analysis.summary import from_json
from study.program import program

SMALL = ("depths=[1,2,4]", "jobs=[1]", "size=4M", "runtime=0.2s", "ioengine=psync")


def test_a_sweep_of_queue_depths_has_points_and_no_verdicts(tmp_path: Path) -> None:
    words = [each for setting in (*SMALL, f"stack.0.path={tmp_path}") for each in ("--set", setting)]
    ran = program("run", "queue-depth", *words, "--rounds", "2", "--out", str(tmp_path / "run"), timeout=300)
    assert ran.returncode == 0, ran.stderr
    summary = from_json((tmp_path / "run" / "summary.json").read_bytes())
    assert summary.comparisons == ()
    assert [step.number for line in summary.sweeps[0].lines for step in line.steps] == [1, 2, 4]
    (objective,) = summary.objectives
    assert objective.reason.startswith("Too few rounds")
    plot = storlab.open_run(tmp_path / "run").plot
    assert plot.cdf().to_dict()["data"] and plot.histogram().to_dict()["layer"]
