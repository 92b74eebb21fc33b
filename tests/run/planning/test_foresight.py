"""What a plan expects of noise: from the study's last run, which may be a stranger's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import storlab
from storlab.analysis.foresight import ASSUMED
from storlab.run.planning.foresight import typical_noise
from storlab.study.study import load_study

QUICK = Path(storlab.__file__).parent / "studies" / "quick.toml"


@pytest.mark.timeout(30)
def test_a_summary_that_would_never_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "runs" / "quick-1").mkdir(parents=True)
    os.mkfifo(tmp_path / "runs" / "quick-1" / "summary.json")
    (tmp_path / "runs" / "quick-2").mkdir()
    (tmp_path / "runs" / "quick-2" / "summary.json").symlink_to("/dev/zero")
    assert typical_noise(load_study(QUICK)).sd == ASSUMED
