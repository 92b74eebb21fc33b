"""Storlab is killed or interrupted while it has virtual machines: they end at once, and nothing of them is left.

The moments come from ``STORLAB_TEST_SEED``; a failing test prints what it was.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

import pytest

from laboratory import Laboratory, ended, interrupt, kill, wait_for, wait_until
from laboratory.guests import FOREVER_AT_FIRST, begun, endings, guests, needs_guests, once_begun, qemus
from storlab.images.cache import storlab_cache

SEED = int(os.environ.get("STORLAB_TEST_SEED", "2026"))
KILLS = 5
AT_ONCE = 3.0  # s, on a machine that has other things to do
SHORT = FOREVER_AT_FIRST.replace("sleep 3600", "sleep 3")

FOUR = guests(
    SHORT,
    stack='[{ layer = "file", size = "16M" }, { layer = "virtio-blk" }]',
    from_='"here"',
    rest="""
[nodes.here]
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[nodes.storage]
kind = "vm"
memory = "192M"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.far]
kind = "vm"
memory = "192M"
from = "storage"
stack = [
  { layer = "mkfs", type = "ext4" }, { layer = "mount" }, { layer = "file", size = "16M" }, { layer = "virtio-blk" },
]
""",
).replace('on = ["vm"]', 'on = ["vm", "far"]')
"""Two guests whose disks lie on a loop device of this machine, one with a disk from a storage host, and that host."""


def started(lab: Laboratory, study: str, *names: str) -> subprocess.Popen[bytes]:
    """A run whose load has begun in these guests."""
    process = lab.start_run(study, "--quiet")
    wait_for(process, lambda: begun(lab, *names))
    return process


def kill_controller(lab: Laboratory, process: subprocess.Popen[bytes]) -> None:
    """By SIGKILL; the guests end by themselves."""
    kill(process)
    assert wait_until(lambda: not qemus(lab), AT_ONCE), f"QEMU outlives the controller: {qemus(lab)}"
    ended(process)
    assert wait_until(lambda: not lab.processes(), AT_ONCE)


@needs_guests
def test_a_controller_that_is_killed_takes_four_guests_with_it_and_clean_and_resume_do_the_rest(
    lab: Laboratory,
) -> None:
    process = started(lab, FOUR, "vm-1", "vm-2", "far")
    assert len(qemus(lab)) == 4
    kill_controller(lab, process)
    cleaned = lab.storlab("clean", "--yes")
    assert cleaned.status == 0, str(cleaned)
    for told in ("detached /dev/loop", "unmounted", "removed the network namespace", f"removed {lab.scratch}/storlab-"):
        assert told in cleaned.stdout, str(cleaned)
    assert f"removed /tmp/storlab-{lab.identity}" in cleaned.stdout
    assert lab.leftovers() == []
    resumed = lab.storlab("resume", lab.out, "--quiet")
    assert resumed.status == 0, str(resumed)
    assert endings(lab) == [("done", None)]
    assert lab.leftovers() == []


def wait_for_lines(lab: Laboratory, process: subprocess.Popen[bytes], more: int) -> None:
    """Wait for the journal to get so many more lines, or for the end of the process."""
    lines = len(lab.journal()) + more
    wait_until(lambda: process.poll() is not None or len(lab.journal()) >= lines)


@needs_guests
@pytest.mark.slow
def test_a_run_with_guests_that_is_killed_again_and_again_ends_complete_with_nothing_left(lab: Laboratory) -> None:
    chance = random.Random(SEED)
    process = lab.start_run(FOUR.replace("sleep 3", "sleep 0.1"), "--quiet")
    for _ in range(KILLS):
        lines = chance.randrange(1, 30)
        wait_for_lines(lab, process, lines)
        time.sleep(chance.uniform(0.0, 0.3))
        print(f"STORLAB_TEST_SEED={SEED}: killed after {lines} lines")
        kill_controller(lab, process)
        if (lab.out / "manifest.json").exists():
            process = lab.start("resume", lab.out, "--quiet")
        else:
            process = lab.start_run(FOUR, "--quiet")
    result = ended(process)
    assert result.status == 0, str(result)
    assert endings(lab) == [("done", None)]
    assert lab.leftovers() == []


@needs_guests
@pytest.mark.parametrize("signals", [(SIGINT, SIGINT), (SIGTERM,)])
def test_ctrl_c_twice_and_sigterm_end_all_guests_and_resume_goes_on(
    lab: Laboratory, signals: tuple[Signals, ...]
) -> None:
    process = started(lab, guests(SHORT), "vm-1", "vm-2")
    interrupt(process, signals)
    result = ended(process)
    assert result.status == 130, str(result)
    assert lab.leftovers() == []
    assert [record.status for record in lab.go_on().tables.records] == ["done"]
    assert lab.leftovers() == []


@needs_guests
@pytest.mark.parametrize("start", ["restored", "cold"])
def test_a_signal_while_guests_are_being_started_ends_them(lab: Laboratory, start: str) -> None:
    process = lab.start_run(guests("true", start=f'"{start}"'), "--quiet")
    wait_for(process, lambda: len(qemus(lab)) == 2)
    kill(process, SIGTERM)
    result = ended(process)
    assert result.status == 130, str(result)
    assert lab.leftovers() == []
    assert lab.records() == []


@needs_guests
def test_the_hosts_agent_takes_all_guests_with_it_and_the_next_trial_has_others(lab: Laboratory) -> None:
    def kill_agent() -> None:
        (qemu, _) = qemus(lab).values()
        os.kill(int(Path(f"/proc/{qemu}/stat").read_text().rpartition(") ")[2].split()[1]), SIGKILL)

    with once_begun(lab, ("vm-1", "vm-2"), kill_agent):
        lab.execute(guests(FOREVER_AT_FIRST, rounds=2))
    assert endings(lab) == [
        ("failed", "node host: the stream to its agent closed, and with the agent its virtual machines ended"),
        ("done", None),
    ]
    assert lab.leftovers() == []


@pytest.fixture
def own_cache(lab: Laboratory) -> Path:
    """A cache that has images and nothing else."""
    own = lab.folder / "cache" / "storlab"
    own.mkdir(parents=True)
    (own / "images").symlink_to(storlab_cache() / "images")
    lab.environment["XDG_CACHE_HOME"] = str(own.parent)
    return own


@needs_guests
@pytest.mark.parametrize("moment", ["booting", "saving"])
def test_a_saved_guest_that_was_being_made_by_a_run_that_is_killed_is_never_used(
    lab: Laboratory, own_cache: Path, moment: str
) -> None:
    study = guests("true", count="1", accel='"tcg"')
    process = lab.start_run(study, "--quiet")
    wait_for(process, lambda: list(own_cache.glob(f"saved/*/{'console.log' if moment == 'booting' else 'state'}")))
    kill_controller(lab, process)
    assert [path.suffix for path in own_cache.glob("saved/*/")] == [".new"]
    resumed = lab.storlab("resume", lab.out, "--quiet")
    assert resumed.status == 0, str(resumed)
    assert endings(lab) == [("done", None)]
    assert [path.suffix for path in own_cache.glob("saved/*/")] == [""]
    assert lab.leftovers() == []


@needs_guests
def test_two_runs_that_need_the_same_saved_guest_make_it_once(lab: Laboratory, own_cache: Path) -> None:
    study = lab.study(guests("true", count="1", accel='"tcg"'))
    outs = [lab.folder / "a", lab.folder / "b"]
    results = [ended(each) for each in [lab.start("run", study, "--out", out, "--quiet") for out in outs]]
    assert [result.status for result in results] == [0, 0], results
    assert sum("Booting a guest to make copies of it" in result.stderr for result in results) == 1
    assert len(list(own_cache.glob("saved/*/"))) == 1


@needs_guests
@pytest.mark.skipif(not Path("/dev/kvm").exists(), reason="without /dev/kvm nothing is tried in it")
def test_the_guest_that_tries_kvm_does_not_outlive_the_controller(lab: Laboratory, own_cache: Path) -> None:
    process = lab.start_run(guests("true", count="1"), "--quiet")
    wait_for(process, lambda: any("storlab.try=1" in " ".join(words) for words in lab.commands().values()))
    kill(process)
    assert wait_until(lambda: not lab.processes(), AT_ONCE), lab.processes()
    ended(process)
    assert not list(own_cache.glob("kvm/*")), "a try that did not end tells nothing"
