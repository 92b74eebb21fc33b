"""Runs that are killed at any moment, or interrupted: nothing is lost, all is torn down, ``resume`` goes on.

The moments come from ``STORLAB_TEST_SEED``; a failing test prints what it was.
"""

from __future__ import annotations

import os
import pty
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import polars as pl
import pytest

from laboratory import Laboratory, ended, interrupt, kill, nothing_known, wait_for, wait_until
from laboratory.devices import sh
from laboratory.studies import LOOPS, directory
from storlab.records.derive import derive
from storlab.report.language.say import said as told
from storlab.run.planning.order import round_order

SEED = int(os.environ.get("STORLAB_TEST_SEED", "2026"))
CHAINS, KILLS = 2, 5  # each moment of a process's life once
TRIALS = 4


@dataclass(frozen=True)
class Moment:
    """So long after the process started, or after the journal got so many more lines, or wrote its last."""

    after: str  # "start", "line" or "end"
    line: int
    delay: float

    def come(self, lab: Laboratory, process: subprocess.Popen[bytes]) -> None:
        """Wait for it, or for the end of the process."""
        began = len(lab.journal())
        if self.after == "line":
            wait_until(lambda: process.poll() is not None or len(lab.journal()) >= began + self.line)
        elif self.after == "end":
            ends = ({each.get("event") for each in lab.journal()[began:]} for _ in count())
            wait_until(lambda: process.poll() is not None or "end" in next(ends))
        until = time.monotonic() + self.delay
        wait_until(lambda: process.poll() is not None or time.monotonic() >= until)


def moments(chance: random.Random) -> Iterator[Moment]:
    """Spread over a process's whole life: planning, setting up, measuring, tearing down, writing."""
    while True:
        yield Moment("start", 0, chance.uniform(0.0, 2.0))
        yield Moment("line", chance.randrange(1, 30), chance.uniform(0.0, 0.1))
        yield Moment("line", chance.randrange(1, 50), chance.uniform(0.0, 0.01))
        yield Moment("start", 0, chance.uniform(0.5, 5.0))
        yield Moment("end", 0, chance.uniform(0.0, 1.0))


@pytest.mark.needs("root")
@pytest.mark.parametrize("chain", range(CHAINS))
def test_a_run_that_is_killed_again_and_again_ends_with_every_trial_once(lab: Laboratory, chain: int) -> None:
    chance = random.Random(f"{SEED}/{chain}")
    killed: list[str] = []
    for moment in moments(chance):
        process = go_on(lab)
        moment.come(lab, process)
        kill(process)
        result = ended(process)
        assert result.status in (-9, 0), f"seed {SEED}, after {killed}: {result}"
        if result.status == -9:
            killed.append(f"{moment} at {lab.journal()[-1:]}")
        if len(killed) == KILLS:
            break
        if result.status == 0:
            check_complete(lab)
            shutil.rmtree(lab.out)  # and begin another
    print(f"STORLAB_TEST_SEED={SEED}, chain {chain}:", *killed, sep="\n  ")
    result = ended(go_on(lab)).with_status(0)
    check_complete(lab)


def go_on(lab: Laboratory) -> subprocess.Popen[bytes]:
    return lab.start("resume", lab.out) if (lab.out / "manifest.json").exists() else lab.start_run(LOOPS)


def check_complete(lab: Laboratory) -> None:
    """Every trial exactly once, in the planned order; the tables say the same; nothing is left."""
    run = lab.run_folder
    rounds = range(1, TRIALS // 2 + 1)
    order = (round_order([1, 2], number, run.manifest.seed, {}, {1: 1, 2: 1}) for number in rounds)
    planned = [trial for each in order for trial in each]
    records = lab.records()
    assert [(r.trial, r.round, r.cell) for r in records] == [(p.number, p.round, p.cell) for p in planned]
    assert [r.status for r in records] == ["done"] * TRIALS, [r.reason for r in records]
    started = [record.started for record in records]
    assert started == sorted(started, key=str)
    assert run.trials["trial"].to_list() == list(range(1, TRIALS + 1))
    rows = run.metrics.filter(pl.col("node").is_null(), source="writes", metric="bandwidth")
    assert rows["trial"].to_list() == list(range(1, TRIALS + 1))
    again = derive(run)
    for name in ("trials", "metrics", "series", "histograms"):
        assert again.frame(name).equals(getattr(run, name)), name
    assert run.manifest.finished is not None and lab.leftovers() == []


@pytest.mark.needs("root")
def test_clean_after_a_kill_takes_down_all_that_a_journal_names_and_nothing_else(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    standing = next(lab.scratch.glob("storlab-*"))
    decoys = [lab.scratch / f"{standing.name}-2", lab.scratch / "storlab-20260101-000000-abcd"]
    for decoy in decoys:
        decoy.mkdir()
        (decoy / "file").write_text("mine")
    image = decoys[1] / "0-file.img"
    with image.open("wb") as file:
        file.truncate(16 * 1024**2)
    loop = sh("losetup", "--find", "--show", str(image)).strip()
    sh("mkfs.ext4", "-q", loop)
    sh("mount", loop, str(decoys[0]))
    try:
        (decoys[0] / "file").write_text("mounted")
        first = lab.storlab("clean", "--yes").with_status(0)
        for told in ("unmounted", "detached /dev/loop", f"removed {lab.scratch}/storlab-"):
            assert told in first.stdout
        assert not standing.exists() and (decoys[0] / "file").read_text() == "mounted"
        assert (decoys[1] / "file").read_text() == "mine"
        assert loop in sh("losetup", "--list", "--noheadings", "--output", "NAME", "--associated", str(image))
    finally:
        sh("umount", str(decoys[0]))
        sh("losetup", "--detach", loop)
    assert (decoys[0] / "file").read_text() == "mine"
    for decoy in decoys:
        shutil.rmtree(decoy)
    assert lab.leftovers() == [] and nothing_known(lab.storlab("clean", "--yes").stdout, lab.folder)
    again = lab.storlab("clean", lab.out)
    assert (again.status, again.stdout) == (0, f"{lab.out}: nothing is left to tear down\n")
    assert lab.storlab("resume", lab.out).status == 0
    check_complete(lab)


@pytest.mark.needs("root")
def test_clean_refuses_a_run_that_is_in_progress(lab: Laboratory) -> None:
    process = lab.start_run(LOOPS)
    assert wait_until(lambda: any("registered" in line for line in lab.journal()))
    process.send_signal(signal.SIGSTOP)  # or it might be over before all three have looked
    refused = lab.storlab("clean", lab.out)
    passed_over = lab.storlab("clean", "--yes")
    resumed = lab.storlab("resume", lab.out)
    process.send_signal(signal.SIGCONT)
    assert ended(process).status == 0 and refused.status == resumed.status == 2
    assert f"is in use by process {process.pid}" in refused.stderr
    assert f"is in use by process {process.pid}" in passed_over.stdout
    check_complete(lab)


def test_what_is_killed_before_there_is_a_manifest_says_what_to_do_and_can_begin_anew(lab: Laboratory) -> None:
    lab.out.mkdir()
    (lab.out / "lock").touch()
    (lab.out / ".manifest.json.new").write_bytes(b'{"half": ')
    refused = lab.storlab("resume", lab.out).with_status(2)
    assert f"start over with `storlab run STUDY --out {lab.out}`" in refused.stderr
    assert lab.run(directory('command = { argv = ["true"] }')).status == 0


def killed_while_measuring(lab: Laboratory) -> None:
    """Kill a run in the middle of its second trial."""
    process = lab.start_run(LOOPS)
    assert wait_until(lambda: any(line.get("trial") == 2 for line in lab.journal()))
    assert wait_until(lambda: any("mnt" in str(line.get("arguments")) for line in lab.journal()[-1:]))
    time.sleep(0.5)
    kill(process)
    assert ended(process).status == -9
    assert wait_until(lambda: not lab.processes(), 10.0), "agents end by themselves, with all that they started"


SLEEP = directory('command = { argv = ["sleep", "0.5"] }', rounds=3)
ANYHOW = ("env", "--default-signal=HUP")
"""Though the tests themselves may have been started by ``nohup``."""
HOUR = directory('command = { argv = ["sleep", "3600"] }', rounds=3)


def started(lab: Laboratory, study: str, wrapper: Sequence[str] = ANYHOW) -> subprocess.Popen[bytes]:
    process = lab.start_run(study, "--quiet", wrapper=wrapper)
    wait_for(process, lab.sleeps)
    return process


def test_ctrl_c_once_finishes_the_trial_and_resume_goes_on(lab: Laboratory) -> None:
    process = started(lab, SLEEP)
    kill(process, signal.SIGINT)
    result = ended(process).with_status(130)
    assert "the running trial is finished first" in result.stderr
    assert f"`storlab resume {lab.out}` resumes it" in result.stderr
    assert [record.status for record in lab.records()] == ["done"] and lab.leftovers() == []
    assert [record.trial for record in lab.go_on().tables.records] == [1, 2, 3]


def test_ctrl_c_twice_and_other_signals_stop_at_once_and_the_trial_is_run_again(lab: Laboratory) -> None:
    flag = lab.folder / "there"
    load = f'command = {{ argv = ["sh", "-c", "test -e {flag} || exec sleep 3600"] }}'
    process = started(lab, directory(load, rounds=2))
    signals = [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGHUP,)]
    for attempt, sent in enumerate(signals, start=1):
        interrupt(process, sent)
        result = ended(process).with_status(130)
        assert "Stopping at once" in result.stderr and lab.leftovers() == [] and lab.records() == []
        assert lab.run_folder.manifest.finished is None
        if sent != signals[-1]:
            process = lab.start("resume", lab.out, "--quiet", wrapper=ANYHOW)
            wait_for(process, lab.sleeps)
            aside = lab.out / "trials" / f"0001.interrupted-{attempt}"
            assert aside.is_dir(), "what the attempt left is kept beside"
    flag.touch()
    said = [text for text in told(lab.go_on().summary.warnings) if "cut short" in text]
    assert said == ["trial 1 was cut short and run again: what it measured at first isn't known"]


def test_what_nohup_starts_outlives_its_terminal(lab: Laboratory) -> None:
    process = started(lab, SLEEP, ["nohup"])
    kill(process, signal.SIGHUP)
    ended(process).with_status(0)
    assert [record.status for record in lab.records()] == ["done"] * 3


@pytest.mark.needs("root")
def test_signals_during_teardown_are_answered_and_disturb_nothing(lab: Laboratory) -> None:
    study = LOOPS.replace("max = 2", "max = 9").replace("min = 2", "min = 9") + '[nodes.host]\nkeep = "run"\n'
    process = lab.start_run(study, "--quiet")
    wait_for(process, lambda: sum(line.get("event") == "trial ends" for line in lab.journal()) >= 2)
    kill(process, signal.SIGTERM)
    wait_for(process, lambda: any("undone" in line for line in lab.journal()))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        kill(process, number)
        time.sleep(0.02)
    ended(process).with_status(130)
    assert any(line.get("event") == "end" and not line["left_behind"] for line in lab.journal())


def test_a_signal_while_planning_ends_it_with_nothing_to_resume(lab: Laboratory) -> None:
    slow = lab.folder / "bin"
    slow.mkdir()
    (slow / "df").write_text("#!/bin/sh\nexec sleep 3600\n")
    (slow / "df").chmod(0o755)
    lab.environment["PATH"] = f"{slow}:{os.environ['PATH']}"
    process = started(lab, SLEEP)
    kill(process, signal.SIGINT)
    result = ended(process).with_status(130)
    assert "interrupted before anything was set up" in result.stderr and not lab.out.exists()


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


def test_files_of_a_trial_that_was_killed_are_gone_when_it_is_run_again(lab: Laboratory) -> None:
    go = lab.folder / "go"
    load = f'command = {{ argv = ["sh", "-c", "echo {{target}} > result; test -e {go} || sleep 3600"] }}'
    process = lab.start_run(directory(load))
    assert wait_until(lambda: any(lab.scratch.rglob("result")))
    kill(process)
    assert ended(process).status == -9
    raw = lab.out / "trials" / "0001" / "host" / "load"
    raw.mkdir(parents=True, exist_ok=True)
    for name in ("result", "other"):
        (raw / name).write_text("of the first attempt")
    go.touch()
    lab.go_on()
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    assert "first attempt" not in (raw / "result").read_text() and not (raw / "other").exists()
