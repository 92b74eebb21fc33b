"""What ``plan`` and ``run`` say, before anything runs, of what a study can decide in its rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storlab.analysis.summary import Comparison, Summary, to_json
from storlab.records.files import write_whole
from study.program import call

STUDY = """
title = "Three programs"
primary = "took"
stack = [{ layer = "directory" }]
repeat = { min = 1, max = MOST }
trial = { settle = { sync = false, drop_caches = false } }
factors = { build = ["a", "b", "c"], mode = ["x", "y", "z"] }
[probes]

[workload.load.command]
argv = ["echo", "took 1 s {build} {mode}"]
metrics = [{ name = "took", regex = "took ([0-9.]+) s", unit = "s", better = "lower" }]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def planned(most: int, *words: str) -> tuple[str, dict[str, Any]]:
    Path("three.toml").write_text(STUDY.replace("MOST", str(most)))
    text, data = call("plan", "three.toml", *words), call("plan", "three.toml", "--json", *words)
    assert text.status == data.status == 0, "it warns and never refuses"
    return " ".join(text.output.split()), json.loads(data.output)["foresight"]


def test_six_rounds_for_twelve_comparisons_are_warned_of() -> None:
    text, data = planned(6)
    assert data["comparisons"] == 12, "three pairs in each of three modes, and pooled"
    assert data["fewest_rounds_alone"] > 6
    assert data["warning"] in text and "Warning: This can hardly decide anything: it stops after 6 rounds" in text
    assert planned(30)[1]["warning"] is None
    assert "can't decide anything" in planned(30, "--rounds", "1")[1]["warning"]


def test_levels_that_are_left_out_are_not_counted() -> None:
    assert planned(30, "--only", "build=a,b", "--only", "mode=x")[1]["comparisons"] == 1
    assert planned(30, "--only", "build=a")[1] is None, "nothing is compared"


def test_a_run_that_can_decide_nothing_begins_with_that_warning_alone() -> None:
    planned(1)
    words = ("run", "three.toml", "--only", "mode=x", "--only", "build=a,b", "--out")
    loud, quiet = call(*words, "loud"), call(*words, "quiet", "--quiet")
    assert (loud.status, quiet.status) == (0, 0)
    for said in (loud.message, quiet.message):
        assert "Warning: This can't decide anything: there is only 1 round, and a verdict takes at least 5." in said
        assert "Verdicts" not in said  # after how many they come stands in the warning


def test_the_noise_of_the_last_run_of_the_same_study_goes_before_an_assumption() -> None:
    assert "an assumption" in planned(30)[0]
    compared = Comparison(
        factor="build", a="a", b="b", within={}, pooled=True, source="load", metric="took", unit="s", better="lower",
        rounds=20, ratio=1.1, low=0.9, high=1.3, confidence=0.99, margin=0.1, verdict="undecided", reason="",
    )  # fmt: skip
    for name, title in (("three-1", "Three programs"), ("three-2", "Another study"), ("three-3", "")):
        made = Path("runs", name)
        made.mkdir(parents=True)
        summary = Summary(title, "took", 0.95, 20, "", comparisons=(compared,))
        write_whole(made / "summary.json", to_json(summary) if title else b"{")
    text, data = planned(30)
    assert "as in its last run, runs/three-1" in text
    assert 0.1 < data["noise"]["sd"] < 0.5
