"""A study that asks for power cuts: after its rounds they are tried, and shown beside what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from study.program import call

STUDY = """
schema  = 1
title   = "Speed and safety"
primary = "commit.rate"
repeat  = { min = 1, max = 1, until = "max" }
[probes]
[nodes.vm]
kind   = "vm"
memory = "256M"
stack  = [
  { layer = "file", size = "64M" }, { layer = "virtio-blk", cache = "{cache}" },
  { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]
[factors]
cache = ["none", "unsafe"]
[workload.commits]
on     = ["vm"]
ledger = { runtime = "3s", commit = "rename" }
[crash]
moments = 12
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lab = Laboratory(tmp_path)
    yield lab
    lab.close()
    assert lab.leftovers() == []


@needs_guests
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_power_cuts_stand_beside_what_the_rounds_measured(lab: Laboratory) -> None:
    path = lab.folder / "study.toml"
    path.write_text(STUDY)
    said = lab.storlab("run", path, "--out", lab.out, "--seed", "7", "--set", f"scratch={lab.scratch}", timeout=500)
    assert said.status == 0, said
    assert "After a power cut" in said.stdout and "0 of 12" in said.stdout, said
    shown = json.loads(lab.storlab("report", lab.out, "--format", "json").stdout)["facts"]["power_cuts"]
    assert [(each["levels"]["cache"], each["moments"]) for each in shown] == [("none", 12), ("unsafe", 12)]
    assert shown[0]["broken"] == 0 and shown[1]["broken"] >= 9, shown
    assert "After a power cut" in (lab.out / "report.html").read_text()


def test_a_study_whose_power_cuts_cannot_be_tried_is_refused_before_its_rounds(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace('{ layer = "file", size', '{ layer = "qcow2", size'))
    said = call("run", str(path), "--out", str(tmp_path / "out"))
    assert said.status == 2
    assert "[crash]: a crash check logs what is written to a raw image file" in said.message
    assert not (tmp_path / "out").exists()


def test_a_plan_says_that_power_cuts_come_after_the_rounds(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    said = call("plan", str(path))
    assert "after the rounds, and not in their time: 2 set-ups once more" in " ".join(said.output.split())
