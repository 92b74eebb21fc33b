"""Raw records of a trial that was stopped half-way are not taken for those of its repetition."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from laboratory import Laboratory, wait_until

STUDY = """
primary = "elapsed"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }
[probes]
[nodes.host]
kind = "local"
stack = [{ layer = "directory" }]
[workload.load]
on = ["host"]
command = { argv = ["sh", "-c", "echo {target} > result; test -e GO || sleep 3600"] }
"""


def test_files_of_a_trial_that_was_killed_are_gone_when_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with contextlib.closing(Laboratory(tmp_path)) as lab:
        go = tmp_path / "go"
        process = lab.start_run(STUDY.replace("GO", str(go)))
        assert wait_until(lambda: any(lab.scratch.rglob("result")))
        process.kill()
        process.wait()
        raw = lab.out / "trials" / "0001" / "host" / "load"
        raw.mkdir(parents=True, exist_ok=True)
        (raw / "result").write_text("of the first attempt")
        (raw / "other").write_text("of the first attempt")
        go.touch()
        lab.go_on()
        assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
        assert "first attempt" not in (raw / "result").read_text()
        assert not (raw / "other").exists()
