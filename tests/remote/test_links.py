"""What becomes of a run on another machine when the link, a controller, a disk or a user goes."""

from __future__ import annotations

import os
import pty
import random
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attacks import MOMENTS, SEED
from laboratory import Laboratory, ended, kill, wait_for, wait_until
from laboratory.hosts import Hosts
from laboratory.studies import directory
from remote.conftest import jobs_of

pytestmark = pytest.mark.needs("root", "sshd", "ssh")

ROUNDS = 8
LONG = directory("command = { argv = ['sleep', '0.7'] }", rounds=ROUNDS)


def begun(lab: Laboratory, trial: int = 1) -> bool:
    return (lab.out / "trials" / f"{trial:04d}" / "trial.json").exists()


def whole(lab: Laboratory) -> bool:
    """Whether every trial is here, once, and was done."""
    found = [(record.trial, record.status) for record in lab.records()]
    return found == [(n, "done") for n in range(1, ROUNDS + 1)]


def sleeps(machines: Hosts) -> int:
    return sum(line.startswith("sleep 0.7") for line in machines["lab1"].processes())


def test_a_lost_link_disturbs_nothing(here: Laboratory, machines: Hosts) -> None:
    process = here.start_run(LONG, "--on", "lab1")
    wait_for(process, lambda: begun(here, 2))
    machines.cut("lab1")
    time.sleep(25)  # until ssh gives up, and the run has ended
    machines.mend("lab1")
    ran = ended(process)
    assert ran.status == 0 and whole(here), ran
    assert "The link to lab1 is lost" in ran.stderr, ran


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_controller_that_is_killed_costs_and_doubles_no_trial(here: Laboratory, machines: Hosts, number: int) -> None:
    """At a moment that the seed says, here or there; then whatever its messages say is done."""
    chance = random.Random(f"{SEED} {number}")
    process = here.start_run(LONG, "--on", "lab1")
    moment, there = chance.uniform(0.0, 12.0), chance.random() < 0.5
    print(f"seed {SEED}, number {number}: killed after {moment:.2f} s {'there' if there else 'here'}")
    wait_until(lambda: process.poll() is not None, moment)
    if there:
        machines["lab1"].run("pkill", "-9", "-f", "storlab.cli.entry", check=False)
    else:
        kill(process)
    ended(process)
    for _ in range(5):
        assert sleeps(machines) <= 1
        attached = here.storlab("attach", "lab1")
        if here.out.exists() and whole(here):
            break
        assert sleeps(machines) == 0 or "killed" in attached.stderr, attached
        known = (here.out / "on.json").exists() and (here.out / "manifest.json").exists()
        again = here.storlab("resume", here.out, "--on", "lab1") if known else here.run(LONG, "--on", "lab1")
        assert again.status in (0, 1, 2), again
    assert whole(here) and sleeps(machines) == 0


def test_a_second_run_is_refused_or_waits(here: Laboratory, machines: Hosts) -> None:
    process = here.start_run(directory("command = { argv = ['sleep', '1.5'] }", rounds=20), "--on", "lab1")
    wait_for(process, lambda: begun(here))
    second: list[str | Path] = [here.study(LONG), "--on", "lab1", "--rounds", "1", "--out"]
    refused = here.storlab("run", *second, here.folder / "second").with_status(2)
    assert re.search(r"another run is using this machine: out, of root since 20\d\d-", refused.stderr), refused
    waited = here.storlab("run", *second, here.folder / "third", "--wait")
    assert waited.status == 0 and "Waiting for another run on this machine: out" in waited.stderr, waited
    assert ended(process).status == 0 and len(here.records()) == 20
    assert here.storlab("attach", "lab1", here.out).status == 0


def test_ctrl_c_without_a_terminal_leaves_it_and_says_so(here: Laboratory, machines: Hosts) -> None:
    process = here.start_run(LONG, "--on", "lab1")
    wait_for(process, lambda: begun(here))
    kill(process, signal.SIGINT)
    left = ended(process)
    assert left.status == 5 and "It continues on lab1: `storlab attach lab1`" in left.stderr, left
    assert not whole(here)
    attached = here.storlab("attach", "lab1")
    assert attached.status == 0 and whole(here), attached
    assert f"round {ROUNDS} of {ROUNDS}" in attached.stderr, attached


@pytest.mark.parametrize(("answer", "status"), [("stop", 130), ("leave", 5)])
def test_ctrl_c_on_a_terminal_asks_once(here: Laboratory, machines: Hosts, answer: str, status: int) -> None:
    with on_a_terminal(here, "run", here.study(LONG), "--out", here.out, "--on", "lab1") as (process, terminal):
        wait_for(process, lambda: begun(here))
        kill(process, signal.SIGINT)
        said = read_until(terminal, "[stop/leave]")
        os.write(terminal, f"{answer}\n".encode())
        said += read_until(terminal, None)
        assert process.wait(60) == status, said
    if answer == "stop":
        assert sleeps(machines) == 0 and here.storlab("resume", here.out, "--on", "lab1").status == 0
    else:
        assert here.storlab("attach", "lab1").status == 0
    assert whole(here)


def test_a_tied_run_ends_with_its_connection(here: Laboratory, machines: Hosts) -> None:
    process = here.start_run(LONG.replace("0.7", "300"), "--on", "lab1", "--tied")
    wait_for(process, lambda: any("sleep 300" in line for line in machines["lab1"].processes()))
    kill(process)
    ended(process)
    assert wait_until(lambda: machines["lab1"].processes() == [], 60)
    assert here.storlab("attach", "lab1").status == 130


def test_a_full_disk_here_stops_nothing_there(here: Laboratory, machines: Hosts) -> None:
    here.out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "full", here.out], check=True)
    try:
        full = here.run(LONG, "--on", "lab1")
        assert full.status == 1 and "No space left on device" in full.stderr, full
        assert "It continues on lab1: `storlab attach lab1`" in full.stderr, full
    finally:
        subprocess.run(["umount", here.out], check=True)
    assert here.storlab("attach", "lab1").status == 0 and whole(here)


def test_a_full_disk_there_is_named(here: Laboratory, machines: Hosts) -> None:
    jobs_of(machines).mkdir(parents=True, exist_ok=True)
    jobs = "/root/.local/state/storlab/jobs"
    machines["lab1"].run("mount", "-t", "tmpfs", "-o", "size=700k,mode=700", "full", jobs)
    try:
        prints = directory("command = { argv = ['sh', '-c', 'yes | head -c 300000'] }", rounds=6)
        full = here.run(prints, "--on", "lab1")
        assert full.status == 1 and "no space left on the file system" in full.stderr, full
    finally:
        here.storlab("attach", "lab1")
        machines["lab1"].run("umount", jobs)


@contextmanager
def on_a_terminal(lab: Laboratory, *words: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command whose streams are a terminal's, and that terminal."""
    terminal, own = pty.openpty()
    process = lab.start(*words, stdin=own, stdout=own, stderr=own)
    os.close(own)
    try:
        yield process, terminal
    finally:
        kill(process)
        os.close(terminal)


def read_until(terminal: int, words: str | None) -> str:
    """What is written there, up to ``words``, or to the end."""
    said = ""
    while words is None or words not in said:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, said
        try:
            said += os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            assert words is None, said
            return said
    return said
