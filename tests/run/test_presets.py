"""Every preset runs: once, with sizes that take seconds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from storlab.run.executor import Outcome, run_study
from storlab.run.observer import Observer
from storlab.run.permissions import Permissions
from storlab.study.study import load_study, preset_studies

SMALL = {
    "backup": ("image=4M", "files=60", "disk=512M"),
    "database-log": ("data=8M", "log=1M", "runtime=1s"),
    "mail": ("messages=20", "appended=64k", "disk=512M"),
    "media-streaming": ("film=1M", "runtime=1s"),
}
ONLY = {
    "backup": ("fs=ext4,xfs",),
    "mail": ("fs=ext4,btrfs",),
    "media-streaming": ("numjobs=1,4",),
}
NEEDS_ROOT = {"backup", "mail"}
ASKED = {
    "backup": {"write.bandwidth", "read.bandwidth", "write.amplification"},
    "database-log": {"write.iops", "sync.latency.p99"},
    "mail": {"create.rate", "delete.rate", "write.iops", "write.amplification"},
    "media-streaming": {"latency.p99"},
}
"""The metrics that its questions are about."""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def run(preset: str, folder: Path) -> Outcome:
    """One round, without a report, which takes longer than the load."""
    study = load_study(preset_studies()[preset], SMALL[preset], ONLY.get(preset, ()))
    return asyncio.run(run_study(study, folder, 1, (1, 1), Observer(), Permissions()))


def test_every_preset_is_run_by_a_test_and_says_so_in_one_line() -> None:
    assert set(preset_studies()) == set(SMALL) == set(ASKED)
    for path in preset_studies().values():
        study = load_study(path)
        assert study.notes == ()
        assert len(study.model.title) <= 90
        first, *_ = study.text.splitlines()
        assert first.startswith("# ")
        assert f"#   storlab run {path.stem}" in study.text


@pytest.mark.parametrize("preset", [name for name in SMALL if name != "boot-storm"])
def test_a_preset_runs_and_has_every_metric_that_it_asks_about(preset: str, tmp_path: Path) -> None:
    if preset in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("needs root: it sets up loop devices and mounts")
    outcome = run(preset, tmp_path / "run")
    assert outcome.ending == "complete"
    assert set(outcome.tables.frame("metrics")["metric"]) >= ASKED[preset]
