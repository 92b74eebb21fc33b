"""The controller is killed with SIGKILL at any moment: nothing is lost, nothing is left.

The moments come from ``STORLAB_TEST_SEED``; a failing test prints what it was.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pytest

from laboratory import Ended, Laboratory, ended, kill, needs_root, wait_until
from laboratory.studies import LOOPS
from storlab.records.derive import derive
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
            wait_until(lambda: process.poll() is not None or _has_ended(lab, began))
        until = time.monotonic() + self.delay
        wait_until(lambda: process.poll() is not None or time.monotonic() >= until)


def _has_ended(lab: Laboratory, began: int) -> bool:
    return any(line.get("event") == "end" for line in lab.journal()[began:])


def moments(chance: random.Random) -> Iterator[Moment]:
    """Spread over a process's whole life: planning, setting up, measuring, tearing down, writing."""
    while True:
        yield Moment("start", 0, chance.uniform(0.0, 2.0))
        yield Moment("line", chance.randrange(1, 30), chance.uniform(0.0, 0.1))
        yield Moment("line", chance.randrange(1, 50), chance.uniform(0.0, 0.01))
        yield Moment("start", 0, chance.uniform(0.5, 5.0))
        yield Moment("end", 0, chance.uniform(0.0, 1.0))


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("chain", range(CHAINS))
def test_a_run_that_is_killed_again_and_again_ends_with_every_trial_once_and_nothing_left(
    lab: Laboratory, chain: int
) -> None:
    chance = random.Random(f"{SEED}/{chain}")
    killed: list[str] = []
    for moment in moments(chance):
        process = go_on(lab)
        moment.come(lab, process)
        kill(process)
        result = ended(process)
        assert result.status in (-9, 0), f"seed {SEED}, after {killed}: {result}"
        if result.status == -9:
            killed.append(f"{moment} at {where(lab)}")
        if len(killed) == KILLS:
            break
        if result.status == 0:
            check_complete(lab)
            shutil.rmtree(lab.out)  # and begin another
    print(f"STORLAB_TEST_SEED={SEED}, chain {chain}:", *killed, sep="\n  ")
    result = ended(go_on(lab))
    assert result.status == 0, str(result)
    check_complete(lab)


def go_on(lab: Laboratory) -> subprocess.Popen[bytes]:
    """Begin, or resume what was begun."""
    if (lab.out / "manifest.json").exists():
        return lab.start("resume", lab.out)
    return lab.start_run(LOOPS)


def where(lab: Laboratory) -> str:
    """The last thing that the journal says, for people."""
    journal = lab.journal()
    return str({key: value for key, value in journal[-1].items() if key != "time"}) if journal else "planning"


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
    assert run.manifest.finished is not None
    assert lab.leftovers() == []


@needs_root
def test_clean_after_a_kill_takes_everything_down_says_so_and_is_harmless_again(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    first = lab.storlab("clean", "--yes")
    assert first.status == 0, str(first)
    assert "unmounted" in first.stdout
    assert "detached /dev/loop" in first.stdout
    assert f"removed {lab.scratch}/storlab-" in first.stdout
    assert lab.leftovers() == []
    assert "No run is known" in lab.storlab("clean", "--yes").stdout
    again = lab.storlab("clean", lab.out)
    assert (again.status, again.stdout) == (0, f"{lab.out}: nothing is left to tear down\n")
    assert lab.storlab("resume", lab.out).status == 0
    check_complete(lab)


@needs_root
def test_clean_touches_nothing_that_no_journal_names(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    standing = next(lab.scratch.glob("storlab-*"))
    decoys = [lab.scratch / f"{standing.name}-2", lab.scratch / "storlab-20260101-000000-abcd", standing / "mine"]
    for decoy in decoys[:2]:
        decoy.mkdir()
        (decoy / "file").write_text("mine")
    image = decoys[1] / "0-file.img"
    with image.open("wb") as file:
        file.truncate(16 * 1024**2)
    loop = run("losetup", "--find", "--show", str(image)).strip()
    run("mkfs.ext4", "-q", loop)
    run("mount", loop, str(decoys[0]))
    try:
        (decoys[0] / "file").write_text("mounted")
        assert lab.storlab("clean", "--yes").status == 0
        assert not standing.exists()
        assert (decoys[0] / "file").read_text() == "mounted"
        assert (decoys[1] / "file").read_text() == "mine"
        assert loop in run("losetup", "--list", "--noheadings", "--output", "NAME", "--associated", str(image))
    finally:
        run("umount", str(decoys[0]))
        run("losetup", "--detach", loop)
    assert (decoys[0] / "file").read_text() == "mine"


@needs_root
def test_clean_refuses_a_run_that_is_in_progress(lab: Laboratory) -> None:
    process = lab.start_run(LOOPS)
    assert wait_until(lambda: any("registered" in line for line in lab.journal()))
    process.send_signal(signal.SIGSTOP)  # or it might be over before all three have looked
    refused = lab.storlab("clean", lab.out)
    passed_over = lab.storlab("clean", "--yes")
    resumed = lab.storlab("resume", lab.out)
    process.send_signal(signal.SIGCONT)
    assert ended(process).status == 0
    assert refused.status == resumed.status == 2
    assert f"is in use by process {process.pid}" in refused.stderr
    assert f"is in use by process {process.pid}" in passed_over.stdout
    check_complete(lab)


def test_what_is_killed_before_there_is_a_manifest_says_what_to_do_and_can_begin_anew(lab: Laboratory) -> None:
    lab.out.mkdir()
    (lab.out / "lock").touch()
    (lab.out / ".manifest.json.new").write_bytes(b'{"half": ')
    refused = lab.storlab("resume", lab.out)
    assert refused.status == 2
    assert f"start over with `storlab run STUDY --out {lab.out}`" in refused.stderr
    study = 'stack = [{ layer = "directory" }]\n[repeat]\nmin = 1\nmax = 1\n[workload.w]\ncommand = { argv = ["true"] }'
    assert lab.run(study).status == 0


def killed_while_measuring(lab: Laboratory) -> None:
    """Kill a run in the middle of its second trial."""
    process = lab.start_run(LOOPS)
    assert wait_until(lambda: any(line.get("trial") == 2 for line in lab.journal()))
    assert wait_until(lambda: any("mnt" in str(line.get("arguments")) for line in lab.journal()[-1:]))
    time.sleep(0.5)
    kill(process)
    result: Ended = ended(process)
    assert result.status == -9, str(result)
    assert wait_until(lambda: not lab.processes(), 10.0), "agents end by themselves, with all that they started"


def run(*argv: str) -> str:
    """A command that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
