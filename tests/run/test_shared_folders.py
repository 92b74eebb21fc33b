"""Folders of this machine in guests: over virtiofs and 9p, with each daemon; what can't be, and what goes wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.guests import BEGUN, endings, guests, kill_guest, needs_guests, once_begun
from storlab.images.virtiofsd import IMPLEMENTATIONS, find_virtiofsd
from storlab.records.derive import derive
from storlab.study.study import load_study, shipped_studies

STUDY = shipped_studies()["shared-folders"]
SMALL = ("size=2M", "runtime=0.2s", "nodes.vm.memory=384M", 'patterns=["randwrite"]')
DAEMON = '[{ layer = "directory" }, { layer = "virtiofsd" }, { layer = "virtiofs" }]'
READS = f"""
dd if=/dev/zero of=$target/$node bs=4k count=1 conv=fsync status=none; echo "{BEGUN}" > /dev/console
i=0; while [ $trial = 1 ] && [ $i -lt 3000 ]; do
    i=$((i + 1)); dd if=/dev/zero of=$target/$node bs=4k count=1 conv=notrunc,fsync status=none || exit 1
done
"""

needs_virtiofsd = pytest.mark.skipif(
    any(find_virtiofsd(each) is None for each in IMPLEMENTATIONS),
    reason="virtiofsd is not there: `storlab image virtiofsd` unpacks it",
)
pytestmark = needs_virtiofsd


def test_its_profiles_are_what_virtiofs_tests_runs() -> None:
    assert len(load_study(STUDY).cells) == 9 * 2 * 2
    assert len(load_study(STUDY, ["profile=full"]).cells) == 9 * 30


@pytest.mark.timeout(1200)
@needs_guests
def test_nine_set_ups_run_and_what_can_not_be_has_its_reason(lab: Laboratory) -> None:
    found = outcomes_of(lab, "mmap")
    assert len(found) == 9
    for setup, (status, reason) in found.items():
        if setup.endswith("-dax"):
            assert (status, "No cache capability" in reason) == ("unsupported", True), reason
        elif setup in ("virtiofs-none", "9p-none"):
            errno = "ENODEV, no such device" if setup == "virtiofs-none" else "EINVAL, invalid argument"
            assert (status, reason.endswith(f"fio's engine mmap got {errno}")) == ("unsupported", True), reason
        else:
            assert status == "done", (setup, reason)
    table = lab.storlab("report", lab.out, "--format", "virtiofs-tests").stdout
    lines = {(fields[0], fields[1]): fields[2:] for line in table.splitlines() if (fields := line.split())}
    assert lines["virtiofs-none", "randwrite-mmap"] == lines["virtiofs-none-dax", "randwrite-mmap"] == ["0kb", "0"]
    assert lines["9p-loose", "randwrite-mmap"][1] != "0"
    # What maps no files reads and writes them all the same.
    assert outcomes_of(lab, "psync", only="setup=virtiofs-none,9p-none") == dict.fromkeys(
        ("virtiofs-none", "9p-none"), ("done", "")
    )
    assert lab.leftovers() == []


def outcomes_of(lab: Laboratory, engine: str, only: str = "") -> dict[str, tuple[str, str]]:
    """Of a run of the study with one engine, in place of the run before: set-up → status and reason."""
    shutil.rmtree(lab.out, ignore_errors=True)
    settings = [word for each in (*SMALL, f'ioengines=["{engine}"]') for word in ("--set", each)]
    options = ["--rounds", "1", "--quiet", *(["--only", only] if only else [])]
    ran = lab.storlab("run", STUDY, "--out", lab.out, *options, *settings, timeout=1100)
    assert ran.status == 0, ran
    return {record.levels["setup"]: (record.status, record.reason or "") for record in lab.records()}


@pytest.mark.timeout(600)
@needs_guests
def test_sshfs_stands_beside_virtiofs_and_both_are_held_to_the_requests_of_an_operation(lab: Laboratory) -> None:
    study = shipped_studies()["shared-folders-network"]
    small = [word for each in SMALL for word in ("--set", each)]
    ran = lab.storlab(
        "run",
        study,
        "--out",
        lab.out,
        "--rounds",
        "1",
        "--quiet",
        "--only",
        "setup=virtiofs-none,sshfs",
        *small,
        timeout=500,
    )
    assert ran.status == 0, ran
    assert {(each.levels["setup"], each.status) for each in lab.records()} == {
        ("virtiofs-none", "done"),
        ("sshfs", "done"),
    }
    counted = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_null(), metric="requests.per-operation")
    assert sorted(counted["trial"].unique()) == [1, 2] and (counted["value"] >= 1).all()
    assert lab.leftovers() == []


@pytest.mark.timeout(600)
@needs_guests
@pytest.mark.parametrize(("implementation", "version"), [("rust", "1."), ("c", "7.")])
def test_each_guest_has_a_daemon_of_its_own_and_sees_what_the_other_writes(
    lab: Laboratory, implementation: str, version: str
) -> None:
    load = "echo $node > $target/../$node.txt; i=0; while [ $(cat $target/../*.txt | wc -l) != 2 ]; do"
    load += " i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.2; done"
    daemon = f'{{ layer = "virtiofsd", cache = "none", implementation = "{implementation}" }}'
    stack = f'[{{ layer = "directory" }}, {daemon}, {{ layer = "virtiofs" }}]'
    lab.execute(guests(load, stack=stack, memory='"256M"'), unconfined=True)
    assert endings(lab) == [("done", None)]
    (record,) = lab.records()
    facts = [each for layers in record.facts.values() for each in layers if each["layer"] == "virtiofsd"]
    assert [each["version"].startswith(version) for each in facts] == [True, True]
    assert lab.leftovers() == []


@pytest.mark.timeout(600)
@needs_guests
def test_a_daemon_that_is_killed_fails_the_trial_at_once_and_the_next_one_runs(lab: Laboratory) -> None:
    study = guests(READS, stack=DAEMON, memory='"256M"', rounds=2)
    with once_begun(lab, ("vm-1", "vm-2"), lambda: kill_daemon(lab)):
        lab.execute(study)
    first, second = endings(lab)
    reason = r"node host: virtiofsd of vm-[12] was killed by SIGKILL.*"
    assert first[0] == "failed" and re.fullmatch(reason, str(first[1])), first
    assert second == ("done", None)
    assert lab.leftovers() == []


@pytest.mark.timeout(600)
@needs_guests
def test_a_guest_that_is_killed_is_named_and_not_its_daemon(lab: Laboratory) -> None:
    study = guests(READS, stack=DAEMON, memory='"256M"', rounds=2)
    with once_begun(lab, ("vm-1", "vm-2"), lambda: kill_guest(lab, "vm-1")):
        lab.execute(study)
    first, second = endings(lab)
    assert first[0] == "failed" and "vm-1" in str(first[1]) and "virtiofsd" not in str(first[1]), first
    assert second == ("done", None)
    assert lab.leftovers() == []


@pytest.mark.timeout(600)
@needs_guests
def test_a_daemon_that_stands_still_ends_with_the_trials_time_out(lab: Laboratory) -> None:
    study = guests(READS, stack=DAEMON, memory='"256M"', rounds=2, trial='timeout = "20s"')
    with once_begun(lab, ("vm-1", "vm-2"), lambda: kill_daemon(lab, signal.SIGSTOP)):
        lab.execute(study)
    first, second = endings(lab)
    assert first[0] == "failed" and "stopped at its time-out of 20 s" in str(first[1]), first
    assert second == ("done", None)
    assert lab.leftovers() == []


@pytest.mark.timeout(600)
@needs_guests
@pytest.mark.parametrize("crossing", ['{ layer = "virtiofsd" }, { layer = "virtiofs" }', '{ layer = "9p" }'])
def test_a_host_folder_that_is_full_is_named(lab: Laboratory, crossing: str) -> None:
    below = '{ layer = "file", size = "16M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }'
    load = "dd if=/dev/zero of=$target/x bs=64k count=512 conv=fsync"
    lab.execute(guests(load, stack=f'[{below}, {{ layer = "mount" }}, {crossing}]', count="1", memory='"256M"'))
    ((status, reason),) = endings(lab)
    assert status == "failed" and "No space left on device" in str(reason), reason
    assert lab.leftovers() == []


@pytest.mark.timeout(600)
@needs_guests
def test_a_daemon_without_a_file_descriptor_left_is_named(lab: Laboratory) -> None:
    daemon = '{ layer = "virtiofsd", open_files = 700 }'
    load = "for i in $(seq 150); do echo $i > $target/$i || exit 1; done"
    stack = f'[{{ layer = "directory" }}, {daemon}, {{ layer = "virtiofs" }}]'
    lab.execute(guests(load, stack=stack, count="1", memory='"256M"'))
    ((status, reason),) = endings(lab)
    assert status == "failed" and "Too many open files" in str(reason), reason
    assert re.search(
        r"\(virtiofsd-vm on host has \d+ files open of at most 700, some of them for itself\)$", str(reason)
    ), reason
    assert lab.leftovers() == []


def kill_daemon(lab: Laboratory, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to one of them."""
    daemons = [pid for pid, words in lab.commands().items() if any(word.startswith("--socket-path=") for word in words)]
    os.kill(daemons[0], number)
