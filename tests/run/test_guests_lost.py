"""Virtual machines that are lost, or whose Storlab is killed: the reason is named, all end, and the run goes on.

The moments come from ``STORLAB_TEST_SEED``; a failing test prints what it was.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from laboratory import Laboratory, ended, interrupt, kill, opened, wait_for, wait_until
from laboratory.devices import tmpfs
from laboratory.guests import (
    BEGUN,
    DISK,
    EXT4,
    FOREVER_AT_FIRST,
    WhenBegun,
    begun,
    endings,
    guests,
    kill_guest,
    once_begun,
    qemus,
)  # fmt: skip
from laboratory.samples import sample
from storlab.images.cache import storlab_cache
from storlab.records.run_folder import TrialRecord
from storlab.report.language.say import say

pytestmark = pytest.mark.needs("guests")

SEED = int(os.environ.get("STORLAB_TEST_SEED", "2026"))
KILLS = 4
PAUSE = 6.0  # s
AT_ONCE = 3.0  # s, on a machine that has other things to do
SHORT = FOREVER_AT_FIRST.replace("sleep 3600", "sleep 3")
BOTH = ("vm-1", "vm-2")

FULL = "a write to what is behind its disk failed: no space left there; QEMU stopped the guest"
PANIC = "node vm-1: the guest's kernel panicked: sysrq triggered crash"
VICTIMS: Mapping[str, str | None] = {
    "killed": "node vm-2: QEMU was killed by SIGKILL",
    "stopped": "node vm-2: its agent has been silent for 4 s: the guest hangs, "
    "and so does QEMU: it does not answer either",
    "panic": PANIC,
    "prepare": PANIC,
    "agent": "node vm-1: the guest powered off: the agent was killed by SIGKILL",
    "host": "node host: the stream to its agent closed, and with the agent its virtual machines ended",
    "beneath": f"node vm-1: {FULL}",
    "inside": "node vm-1: sh ended with status 1: dd: error writing 'PATH/x': No space left on device",
    "memory": "node vm-1: sh was killed by SIGKILL: no output "
    "(the guest vm-1 ran out of memory, and its kernel killed tail)",
    "late": "the trial was stopped at its time-out of 8 s, in the phase 'measure'",
    "none": None,
}
"""What becomes of one of two guests, and what is told of its trial. All are cells of one run."""

LOAD = sample(__file__, "cases/victims.sh", begun=BEGUN)
# Without min_ttl_ms the kernel may look for memory for minutes before it gives up.
PREPARE = """prepare = [["sh", "-c", "case {victim.is}-{node} in \
prepare-vm-1) echo c > /proc/sysrq-trigger ;; memory-*) echo 1000 > /sys/kernel/mm/lru_gen/min_ttl_ms ;; esac"]]"""
LATE = 'timeouts = [{ where = { victim = "late" }, timeout = "8s" }]'

WRITES = "while :; do dd if=/dev/zero of=$target/x bs=4k count=64 oflag=direct conv=notrunc; done 2> /dev/null"
ON_STORAGE = f"""echo "{BEGUN}" > /dev/console
case {{victim.is}} in
  killed) {WRITES} ;;
  beneath) exec dd if=/dev/urandom of=$target/x bs=1M count=48 oflag=direct ;;
esac"""


USUAL, SPECIAL = ("60s", "32M"), {"stopped": ("4s", "32M"), "beneath": ("60s", "128M")}  # silence, size of disks


def victims(load: str, names: list[str], rest: str = "", trial: str = "", **keys: str) -> str:
    """A study with a cell for each. ``keys`` of the group of nodes."""
    rows = ['{n} = {{ is = "{n}", silence = "{0}", size = "{1}" }}'.format(*SPECIAL.get(n, USUAL), n=n) for n in names]
    factor = "\n".join(["[factors.victim]", *rows])
    text = guests(load, rounds=1, trial=trial, rest=rest + factor, silence='"{victim.silence}"', **keys)
    return text.replace('primary = "elapsed"', 'primary = "elapsed"\ncompare = []')


def kill_hosts_agent(lab: Laboratory) -> None:
    """All QEMUs are its children."""
    qemu, *_ = qemus(lab).values()
    os.kill(int(Path(f"/proc/{qemu}/stat").read_text().rpartition(") ")[2].split()[1]), SIGKILL)


Lost = dict[str, tuple[TrialRecord, str | None]]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """One run of all victims but those of a storage host: of each its record, and its reason without chance."""
    stack = EXT4.replace('"64M"', '"{victim.size}", overcommit = true').replace('-blk"', '-blk", cache = "writeback"')
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as lab, tmpfs(lab.scratch, "64M"):
        actions = {
            "killed": lambda: kill_guest(lab, "vm-2"),
            "stopped": lambda: kill_guest(lab, "vm-2", SIGSTOP),
            "host": lambda: kill_hosts_agent(lab),
        }
        fates = WhenBegun(lab, BOTH, lambda levels: actions.get(levels["victim"], lambda: None)())
        outcome = lab.execute(
            victims(LOAD, [*VICTIMS], trial=f"{PREPARE}, {LATE}", stack=stack), fates, unconfined=True
        )
        assert (outcome.ending, fates.errors) == ("failures", [])
        assert str(VICTIMS["killed"]) in lab.storlab("report", lab.out).stdout.replace("\n", " ")
        reasons = [reason and re.sub(r"'/.*/x'", "'PATH/x'", reason) for _, reason in endings(lab)]
        assert lab.leftovers() == []
        yield {record.levels["victim"]: (record, reason) for record, reason in zip(lab.records(), reasons, strict=True)}


@pytest.mark.parametrize("victim", VICTIMS)
def test_what_is_lost_is_named_the_other_guest_ends_and_other_trials_run(lost: Lost, victim: str) -> None:
    record, reason = lost[victim]
    assert (record.status, reason) == ("failed" if VICTIMS[victim] else "done", VICTIMS[victim])
    assert not any("torn down" in say(warning) for warning in record.warnings)
    assert record.phases["tear down"] < 10


def test_the_end_of_a_console_is_kept_and_the_trace_of_a_panic(lost: Lost) -> None:
    assert lost["killed"][0].detail == f"The end of its console:\n{BEGUN}"
    detail = lost["panic"][0].detail
    assert "Kernel panic - not syncing: sysrq triggered crash\n" in detail
    assert "sysrq_handle_crash" in detail
    assert lost["panic"][0].lost_after is not None
    assert lost["prepare"][0].lost_after is None


def tell(monitor: Path, command: str, event: str) -> None:
    """Have QEMU do something, by a monitor of the test's own."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(monitor))
        client.sendall(f'{{"execute": "qmp_capabilities"}}{{"execute": "{command}"}}'.encode())
        while f'"{event}"'.encode() not in client.recv(4096):
            pass


def monitored(monitor: Path) -> str:
    """The ``qemu_args`` for it."""
    return f'["-chardev", "socket,id=mine,path={monitor},server=on,wait=off", "-mon", "chardev=mine,mode=control"]'


def test_a_guest_that_somebody_pauses_counts_as_hung_and_qemus_word_is_told(lab: Laboratory) -> None:
    monitor = lab.folder / "mine"
    with once_begun(lab, ("vm",), lambda: tell(monitor, "stop", "STOP")):
        own = monitored(monitor)
        study = guests(FOREVER_AT_FIRST, count="1", silence='"4s"', start='"cold"', qemu_args=own)
        lab.execute(study)
    hangs = "node vm: its agent has been silent for 4 s: the guest hangs; QEMU says that it is paused"
    assert endings(lab) == [("failed", hangs)]


@pytest.mark.parametrize("clock", ["stands", "goes on"])
def test_a_guest_that_answers_again_within_its_silence_has_stood_still_for_that_time(
    lab: Laboratory, clock: str
) -> None:
    """Its clock stands still if QEMU pauses it, and goes on if QEMU itself is stopped."""
    monitor, took = lab.folder / "mine", []

    def pause() -> None:
        began = time.monotonic()
        tell(monitor, "stop", "STOP") if clock == "stands" else kill_guest(lab, "vm", SIGSTOP)
        time.sleep(PAUSE)
        tell(monitor, "cont", "RESUME") if clock == "stands" else kill_guest(lab, "vm", SIGCONT)
        took.append(time.monotonic() - began)

    with once_begun(lab, ("vm",), pause):
        load = f'echo "{BEGUN}" > /dev/console; for i in $(seq 40); do sleep 0.1; done'
        study = guests(load, count="1", silence='"30s"', start='"cold"', stack=EXT4, qemu_args=monitored(monitor))
        lab.succeed(study.replace("[probes]", "[probes.stalls]"))
    rows = lab.run_folder.metrics.filter(source="probe:stalls", metric="machine.stall.longest", node="vm")
    assert rows["value"].item() == pytest.approx(took[0], abs=2.0)


def test_a_storage_host_that_is_lost_is_the_reason_and_the_next_trial_has_another(lab: Laboratory) -> None:
    storage = '[nodes.storage]\nkind = "vm"\nmemory = "256M"\n'
    storage += f"stack = {DISK}\n".replace('"64M"', '"512M", overcommit = true')
    stack = f'[{{ layer = "mkfs", type = "xfs" }}, {{ layer = "mount" }}, {EXT4[1:]}'
    fates = WhenBegun(lab, ("vm",), lambda levels: kill_guest(lab, "storage") if levels["victim"] == "killed" else None)
    with tmpfs(lab.scratch, "80M"):
        keys = {"count": "1", "stack": stack, "from_": '"storage"'}
        lab.execute(victims(ON_STORAGE, ["killed", "beneath", "none"], storage, **keys), fates)
        assert fates.errors == []
        told = dict(zip((record.levels["victim"] for record in lab.records()), endings(lab), strict=True))
        assert told == {
            "killed": ("failed", "node storage: QEMU was killed by SIGKILL"),
            "beneath": ("failed", f"node storage: {FULL}"),
            "none": ("done", None),
        }
        assert all(record.warnings == [] for record in lab.records())
        assert lab.leftovers() == []


FOUR = guests(
    SHORT,
    stack='[{ layer = "file", size = "16M" }, { layer = "virtio-blk" }]',
    from_='"here"',
    rest=sample(__file__, "cases/four-nodes.toml"),
).replace('on = ["vm"]', 'on = ["vm", "far"]')
"""Two guests whose disks lie on a loop device of this machine, one with a disk from a storage host, and that host."""


def started(lab: Laboratory, process: subprocess.Popen[bytes], *names: str) -> subprocess.Popen[bytes]:
    """A run, once its load has begun in these guests."""
    wait_for(process, lambda: begun(lab, *names))
    return process


def kill_controller(lab: Laboratory, process: subprocess.Popen[bytes]) -> None:
    """By SIGKILL; the guests end by themselves."""
    kill(process)
    assert wait_until(lambda: not qemus(lab), AT_ONCE), f"QEMU outlives the controller: {qemus(lab)}"
    ended(process)
    assert wait_until(lambda: not lab.processes(), AT_ONCE)


def test_a_controller_that_is_killed_takes_all_guests_with_it_and_clean_and_resume_do_the_rest(lab: Laboratory) -> None:
    process = started(lab, lab.start_run(FOUR, "--quiet"), *BOTH, "far")
    assert len(qemus(lab)) == 4
    kill_controller(lab, process)
    cleaned = lab.storlab("clean", "--yes")
    assert cleaned.status == 0, str(cleaned)
    sockets, files = f"removed /tmp/storlab-{lab.identity}", f"removed {lab.scratch}/storlab-"
    for told in ("detached /dev/loop", "unmounted", "removed the network namespace", files, sockets):
        assert told in cleaned.stdout, str(cleaned)
    assert lab.leftovers() == []
    chance = random.Random(SEED)
    process = lab.start("resume", lab.out, "--quiet")
    for _ in range(KILLS):
        lines, delay = len(lab.journal()) + chance.randrange(1, 30), chance.uniform(0.0, 0.3)
        wait_until(lambda: process.poll() is not None or len(lab.journal()) >= lines)  # noqa: B023 - called at once
        time.sleep(delay)
        print(f"STORLAB_TEST_SEED={SEED}: killed after {lines} lines")
        kill_controller(lab, process)
        process = lab.start("resume", lab.out, "--quiet")
    result = ended(process)
    assert result.status == 0, str(result)
    assert endings(lab) == [("done", None)]


def test_ctrl_c_twice_and_sigterm_end_all_guests_and_resume_goes_on(lab: Laboratory) -> None:
    process = lab.start_run(guests(SHORT.replace("sleep 3", "sleep 15")), "--quiet")
    for attempt, signals in enumerate([(SIGINT, SIGINT), (SIGTERM,)]):
        aside = lab.out / "trials" / f"0001.interrupted-{attempt}"
        wait_for(process, lambda: not attempt or aside.exists())  # noqa: B023 - called at once
        interrupt(started(lab, process, *BOTH), signals)
        result = ended(process)
        assert result.status == 130, str(result)
        assert lab.leftovers() == []
        process = lab.start("resume", lab.out, "--quiet")
    assert ended(process).status == 0
    assert endings(lab) == [("done", None)]


@pytest.mark.parametrize("start", ["restored", "cold"])
def test_a_signal_while_guests_are_being_started_ends_them(lab: Laboratory, start: str) -> None:
    process = lab.start_run(guests("true", start=f'"{start}"'), "--quiet")
    wait_for(process, lambda: len(qemus(lab)) == 2)
    kill(process, SIGTERM)
    result = ended(process)
    assert result.status == 130, str(result)
    assert lab.leftovers() == []
    assert lab.records() == []


@pytest.fixture
def own_cache(lab: Laboratory) -> Path:
    """A cache that has images and nothing else."""
    own = lab.folder / "cache" / "storlab"
    own.mkdir(parents=True)
    (own / "images").symlink_to(storlab_cache() / "images")
    lab.environment["XDG_CACHE_HOME"] = str(own.parent)
    return own


def test_a_saved_guest_that_was_being_made_by_a_killed_run_is_never_used(lab: Laboratory, own_cache: Path) -> None:
    process = lab.start_run(guests("true", count="1", accel='"tcg"'), "--quiet")
    for file in ("console.log", "state"):  # booting, saving
        wait_for(process, lambda: [*own_cache.glob(f"saved/*/{file}")])  # noqa: B023 - called at once
        kill_controller(lab, process)
        assert [path.suffix for path in own_cache.glob("saved/*/")] == [".new"]
        process = lab.start("resume", lab.out, "--quiet")
    resumed = ended(process)
    assert resumed.status == 0, str(resumed)
    assert endings(lab) == [("done", None)]
    assert [path.suffix for path in own_cache.glob("saved/*/")] == [""]


def test_two_runs_that_need_the_same_saved_guest_make_it_once(lab: Laboratory, own_cache: Path) -> None:
    study = lab.study(guests("true", count="1", accel='"tcg"'))
    outs = [lab.folder / "a", lab.folder / "b"]
    results = [ended(each) for each in [lab.start("run", study, "--out", out, "--quiet", "--shared") for out in outs]]
    assert [result.status for result in results] == [0, 0], results
    assert sum("Booting a guest to make copies of it" in result.stderr for result in results) == 1
    assert len(list(own_cache.glob("saved/*/"))) == 1


@pytest.mark.needs("kvm")
def test_the_guest_that_tries_kvm_does_not_outlive_the_controller(lab: Laboratory, own_cache: Path) -> None:
    def tried() -> bool:
        return any("storlab.try=1" in " ".join(words) for words in lab.commands().values())

    while True:  # where KVM is broken, the guest dies so soon that a look may miss it
        process = lab.start_run(guests("true", count="1"), "--quiet")
        if wait_until(lambda: tried() or process.poll() is not None) and process.poll() is None:  # noqa: B023
            break
        assert ended(process).status == 0
        shutil.rmtree(lab.out)
        shutil.rmtree(own_cache / "kvm")
    kill(process)
    assert wait_until(lambda: not lab.processes(), AT_ONCE), lab.processes()
    ended(process)
    assert not list(own_cache.glob("kvm/*")), "a try that did not end tells nothing"
    lab.storlab("clean", "--yes")
