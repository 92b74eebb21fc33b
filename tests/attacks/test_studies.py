"""What the author of a study, or of files that it names, can't do to whoever plans it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.odd_files import KINDS, bounded, lay
from laboratory import COMMAND
from study.program import Ran, call

STUDY = """
schema = 1
title = "A"
primary = "bandwidth"
stack = [{ layer = "directory" }]
[workload.load]
fio = { job_file = "job.fio" }
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def refused(ran: Ran, *words: str) -> None:
    assert ran.status == 2, ran
    assert ran.output == ""
    assert "internal error" not in ran.message
    assert "Traceback" not in ran.message
    for word in words:
        assert word in ran.message, ran.message


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_that_is_no_file_is_refused_at_once(kind: str, here: Path) -> None:
    lay(kind, here / "study.toml")
    for command in ("plan", "run", "shell"):
        with bounded():
            refused(call(command, "study.toml"), "study.toml")


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_file_that_is_no_file_is_refused_at_once(kind: str, here: Path) -> None:
    (here / "study.toml").write_text(STUDY)
    lay(kind, here / "job.fio")
    with bounded():
        refused(call("plan", "study.toml"), "job.fio")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", ["csv", "fio", "sysbench", "bonnie", "blkalgn", "pcap", "virtiofs-tests"])
def test_a_file_to_import_that_is_no_file_is_refused_at_once(tool: str, kind: str, here: Path) -> None:
    lay(kind, here / "input")
    with bounded():
        refused(call("import", tool, "input", "--out", "run"), "input")
    assert not (here / "run").exists()


def test_a_study_that_a_shell_writes_into_a_pipe_is_read(here: Path) -> None:
    text = STUDY.replace('fio = { job_file = "job.fio" }', 'command = { argv = ["true"] }').replace(
        "bandwidth", "elapsed"
    )
    (here / "true.toml").write_text(text)
    argv = ["bash", "-c", f"{' '.join(COMMAND)} plan <(cat true.toml)"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stderr


def test_the_file_of_a_study_named_by_a_job_is_no_terminal_of_whoever_plans_it(here: Path) -> None:
    (here / "study.toml").write_text(STUDY.replace("job.fio", "/dev/stdin"))
    ours, theirs = os.openpty()
    try:
        argv = [sys.executable, "-m", "storlab.cli.main", "plan", "study.toml"]
        ran = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ran.returncode == 2
    assert "/dev/stdin" in ran.stderr


ABSURD = ("9" * 400, "9" * 5000, "-" + "9" * 400, "1e400", "9" * 400 + "%", "±" + "9" * 400 + "%", "9" * 400 + "s")
NUMBERS = (
    "repeat.until", "repeat.min", "repeat.max", "confidence", "trial.warm_up", "trial.timeout", "trial.settle.wait",
    "stack.0.size", "workload.load.command.timeout", "schema", "nodes.client.count", "nodes.client.memory",
)  # fmt: skip


@pytest.mark.parametrize("absurd", ABSURD, ids=lambda text: f"{text[:3]}-{len(text)}")
@pytest.mark.parametrize("key", NUMBERS)
def test_an_absurd_number_is_refused_in_one_short_sentence(key: str, absurd: str, here: Path) -> None:
    text = STUDY.replace('fio = { job_file = "job.fio" }', 'command = { argv = ["true"] }')
    (here / "study.toml").write_text(text.replace("bandwidth", "elapsed"))
    for written in (absurd, f'"{absurd}"'):
        with bounded():
            ran = call("plan", "study.toml", "--set", f"{key}={written}")
        refused(ran)
        assert len(ran.message.replace(absurd, "").replace(absurd[:60], "")) < 1500
