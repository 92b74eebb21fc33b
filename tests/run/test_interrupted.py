"""Ctrl-C, SIGTERM, a terminal that closes: what was recorded is kept, all is torn down, ``resume`` goes on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time

import pytest

from laboratory import Laboratory, ended, interrupt, kill, needs_root, wait_for
from laboratory.studies import LOOPS, directory

SLEEP = directory('command = { argv = ["sleep", "0.5"] }', rounds=3)
ANYHOW = ("env", "--default-signal=HUP")
"""Though the tests themselves may have been started by ``nohup``."""
HOUR = directory('command = { argv = ["sleep", "3600"] }', rounds=3)


def started(lab: Laboratory, study: str) -> subprocess.Popen[bytes]:
    """A run whose first trial is being measured."""
    process = lab.start_run(study, "--quiet", wrapper=ANYHOW)
    wait_for(process, lab.sleeps)
    return process


def test_ctrl_c_once_finishes_the_trial_and_resume_goes_on(lab: Laboratory) -> None:
    process = started(lab, SLEEP)
    kill(process, signal.SIGINT)
    result = ended(process)
    assert result.status == 130, str(result)
    assert "the running trial is finished first" in result.stderr
    assert f"`storlab resume {lab.out}` resumes it" in result.stderr
    assert [record.status for record in lab.records()] == ["done"]
    assert lab.leftovers() == []
    assert [record.trial for record in lab.go_on().tables.records] == [1, 2, 3]
    assert lab.leftovers() == []


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGHUP,)])
def test_ctrl_c_twice_and_other_signals_stop_at_once_and_the_trial_is_run_again(
    lab: Laboratory, signals: tuple[signal.Signals, ...]
) -> None:
    process = started(lab, HOUR)
    interrupt(process, signals)
    result = ended(process)
    assert result.status == 130, str(result)
    assert "Stopping at once" in result.stderr
    assert lab.leftovers() == []
    assert lab.records() == []
    assert lab.run_folder.manifest.finished is None
    process = lab.start("resume", lab.out, "--quiet")
    wait_for(process, lab.sleeps)
    assert (lab.out / "trials" / "0001.interrupted-1").is_dir(), "what the first attempt left is kept beside"
    kill(process, signal.SIGTERM)
    assert ended(process).status == 130
    assert lab.leftovers() == []


def test_a_trial_that_was_cut_short_is_named_once_it_was_run_again(lab: Laboratory) -> None:
    flag = lab.folder / "there"
    endless_at_first = f'argv = ["sh", "-c", "test -e {flag} || exec sleep 3600"]'
    process = started(lab, directory(f"command = {{ {endless_at_first} }}", rounds=2))
    kill(process, signal.SIGTERM)
    assert ended(process).status == 130
    flag.touch()
    said = [warning for warning in lab.go_on().summary.warnings if "cut short" in warning]
    assert said == ["trial 1 was cut short and run again: what it measured at first isn't known"]


def test_what_nohup_starts_outlives_its_terminal(lab: Laboratory) -> None:
    process = lab.start_run(SLEEP, "--quiet", wrapper=["nohup"])
    wait_for(process, lab.sleeps)
    kill(process, signal.SIGHUP)
    result = ended(process)
    assert result.status == 0, str(result)
    assert [record.status for record in lab.records()] == ["done"] * 3


@needs_root
def test_signals_during_teardown_are_answered_and_disturb_nothing(lab: Laboratory) -> None:
    study = LOOPS.replace("max = 2", "max = 9").replace("min = 2", "min = 9") + '[nodes.host]\nkeep = "run"\n'
    process = lab.start_run(study, "--quiet")
    wait_for(process, lambda: sum(line.get("event") == "trial ends" for line in lab.journal()) >= 2)
    kill(process, signal.SIGTERM)
    wait_for(process, lambda: any("undone" in line for line in lab.journal()))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        kill(process, number)
        time.sleep(0.02)
    result = ended(process)
    assert result.status == 130, str(result)
    assert any(line.get("event") == "end" and not line["left_behind"] for line in lab.journal())
    assert lab.leftovers() == []


def test_a_signal_while_planning_ends_it_with_nothing_to_resume(lab: Laboratory) -> None:
    slow = lab.folder / "bin"
    slow.mkdir()
    (slow / "df").write_text("#!/bin/sh\nexec sleep 3600\n")
    (slow / "df").chmod(0o755)
    lab.environment["PATH"] = f"{slow}:{os.environ['PATH']}"
    process = lab.start_run(SLEEP, "--quiet")
    wait_for(process, lab.sleeps)
    kill(process, signal.SIGINT)
    result = ended(process)
    assert result.status == 130, str(result)
    assert "interrupted before anything was set up" in result.stderr
    assert not lab.out.exists()
    assert lab.leftovers() == []


def test_a_terminal_that_closes_ends_the_run_in_order(lab: Laboratory) -> None:
    ours, theirs = pty.openpty()
    process = lab.start_run(HOUR, stdin=theirs, stdout=theirs, stderr=theirs, wrapper=ANYHOW)
    os.close(theirs)
    shown = b""
    while b"round 1 of 3" not in shown or not lab.sleeps():
        shown += os.read(ours, 4096)  # fails, by EIO, where it ended
    os.close(ours)
    kill(process, signal.SIGHUP)
    assert ended(process).status == 130
    assert lab.leftovers() == []
