"""A virtual machine that is lost fails its trial with the reason; the others are ended, and the run goes on."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGSTOP

from laboratory import Laboratory
from laboratory.guests import (
    EXT4,
    FOREVER_AT_FIRST,
    endings,
    guests,
    kill_guest,
    needs_guests,
    once_begun,
)

BOTH = ("vm-1", "vm-2")
STORAGE = """
[nodes.storage]
kind = "vm"
memory = "256M"
stack = [{ layer = "file", size = "SIZE", overcommit = true }, { layer = "virtio-blk" }]
"""
ON_STORAGE = {
    "from": '"storage"',
    "stack": f'[{{ layer = "mkfs", type = "xfs" }}, {{ layer = "mount" }}, {EXT4[1:]}',
}


@needs_guests
def test_a_qemu_that_is_killed_is_named_the_other_guests_end_and_the_next_trial_runs(lab: Laboratory) -> None:
    with once_begun(lab, BOTH, lambda: kill_guest(lab, "vm-2")):
        result = lab.run(guests(FOREVER_AT_FIRST, rounds=2))
    assert result.status == 3, str(result)
    assert endings(lab) == [("failed", "node vm-2: QEMU was killed by SIGKILL"), ("done", None)]
    assert lab.records()[0].detail == "The end of its console:\nthe load has begun"
    assert "node vm-2: QEMU was killed by SIGKILL" in result.stdout
    assert lab.leftovers() == []


@needs_guests
def test_a_kernel_panic_is_named_with_its_reason_and_its_trace_is_kept(lab: Laboratory) -> None:
    lab.execute(
        guests("if [ $trial$node = 1vm-1 ]; then echo c > /proc/sysrq-trigger; fi; sleep 0.5", rounds=2),
        unconfined=True,
    )
    assert endings(lab) == [
        ("failed", "node vm-1: the guest's kernel panicked: sysrq triggered crash"),
        ("done", None),
    ]
    detail = lab.records()[0].detail
    assert "Kernel panic - not syncing: sysrq triggered crash\n" in detail
    assert "sysrq_handle_crash" in detail
    assert lab.leftovers() == []


@needs_guests
def test_a_panic_while_preparing_is_told_like_one_while_measuring(lab: Laboratory) -> None:
    panic = 'prepare = [["sh", "-c", "echo c > /proc/sysrq-trigger"]]'
    lab.execute(guests("true", count="1", trial=panic), unconfined=True)
    assert endings(lab) == [("failed", "node vm: the guest's kernel panicked: sysrq triggered crash")]
    assert lab.records()[0].lost_after is None
    assert lab.leftovers() == []


@needs_guests
def test_a_qemu_that_stands_still_counts_as_hung_after_the_studys_silence(lab: Laboratory) -> None:
    with once_begun(lab, BOTH, lambda: kill_guest(lab, "vm-2", SIGSTOP)):
        lab.execute(guests(FOREVER_AT_FIRST, rounds=2, silence='"4s"'))
    hangs = "node vm-2: its agent has been silent for 4 s: the guest hangs, and so does QEMU: it does not answer either"
    assert endings(lab) == [("failed", hangs), ("done", None)]
    assert lab.records()[0].phases["tear down"] < 10
    assert lab.leftovers() == []


@needs_guests
def test_a_guest_that_somebody_pauses_counts_as_hung_and_qemus_word_is_told(lab: Laboratory) -> None:
    monitor = lab.folder / "mine"

    def pause() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(monitor))
            client.sendall(b'{"execute": "qmp_capabilities"}{"execute": "stop"}')
            while b'"STOP"' not in client.recv(4096):
                pass

    own = f'["-chardev", "socket,id=mine,path={monitor},server=on,wait=off", "-mon", "chardev=mine,mode=control"]'
    with once_begun(lab, ("vm",), pause):
        lab.execute(guests(FOREVER_AT_FIRST, count="1", silence='"4s"', start='"cold"', qemu_args=own))
    hangs = "node vm: its agent has been silent for 4 s: the guest hangs; QEMU says that it is paused"
    assert endings(lab) == [("failed", hangs)]
    assert lab.leftovers() == []


@needs_guests
def test_a_guest_whose_agent_is_killed_powers_off_and_says_why(lab: Laboratory) -> None:
    lab.execute(guests("if [ $trial$node = 1vm-1 ]; then kill -KILL $PPID; fi; sleep 0.5", rounds=2), unconfined=True)
    assert endings(lab) == [
        ("failed", "node vm-1: the guest powered off: the agent was killed by SIGKILL"),
        ("done", None),
    ]
    assert lab.leftovers() == []


@needs_guests
def test_a_storage_host_that_is_killed_is_the_reason_and_not_what_follows_and_the_next_trial_has_another(
    lab: Laboratory,
) -> None:
    writes = "while :; do dd if=/dev/zero of=$target/x bs=4k count=64 oflag=direct conv=notrunc; done 2> /dev/null"
    load = FOREVER_AT_FIRST.replace("exec sleep 3600", writes)
    study = guests(load, rounds=2, rest=STORAGE.replace("SIZE", "512M"), **ON_STORAGE)
    with once_begun(lab, BOTH, lambda: kill_guest(lab, "storage")):
        lab.execute(study)
    assert endings(lab) == [("failed", "node storage: QEMU was killed by SIGKILL"), ("done", None)]
    assert all(record.warnings == [] for record in lab.records())
    assert lab.leftovers() == []


@contextmanager
def tmpfs(path: Path, size: str) -> Iterator[None]:
    """A small file system of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@needs_guests
def test_a_full_disk_of_this_machine_beneath_a_guests_sparse_one_is_named(lab: Laboratory) -> None:
    load = "if [ $trial$node = 1vm-1 ]; then exec dd if=/dev/urandom of=$target bs=1M count=60 oflag=direct; fi"
    sparse = '[{ layer = "file", size = "64M", overcommit = true }, { layer = "virtio-blk", cache = "writeback" }]'
    with tmpfs(lab.scratch, "24M"):
        lab.execute(guests(load, rounds=2, stack=sparse))
        full = "a write to what is behind its disk failed: no space left there; QEMU stopped the guest"
        assert endings(lab) == [("failed", f"node vm-1: {full}"), ("done", None)]
        assert lab.leftovers() == []


@needs_guests
def test_a_full_disk_of_this_machine_beneath_a_storage_host_is_told_of_the_storage_host(lab: Laboratory) -> None:
    load = "if [ $trial = 1 ]; then exec dd if=/dev/urandom of=$target/x bs=1M count=48 oflag=direct; fi"
    with tmpfs(lab.scratch, "80M"):
        lab.execute(guests(load, rounds=2, rest=STORAGE.replace("SIZE", "512M"), **ON_STORAGE))
        full = "a write to what is behind its disk failed: no space left there; QEMU stopped the guest"
        assert endings(lab) == [("failed", f"node storage: {full}"), ("done", None)]
        assert lab.leftovers() == []


@needs_guests
def test_a_full_file_system_in_a_guest_is_named_with_the_guest(lab: Laboratory) -> None:
    load = "if [ $node = vm-1 ]; then exec dd if=/dev/zero of=$target/x bs=1M; fi"
    lab.execute(guests(load, stack=EXT4))
    ((status, reason),) = endings(lab)
    assert status == "failed"
    assert reason is not None
    assert reason.startswith("node vm-1: sh ended with status 1: dd: error writing '")
    assert reason.endswith("/x': No space left on device")
    assert lab.leftovers() == []


@needs_guests
def test_a_load_that_the_guests_kernel_kills_for_want_of_memory_is_told_so(lab: Laboratory) -> None:
    # Else the kernel may look for memory for minutes before it gives up.
    at_once = 'prepare = [["sh", "-c", "echo 1000 > /sys/kernel/mm/lru_gen/min_ttl_ms"]]'
    lab.execute(guests("exec tail /dev/zero", count="1", trial=at_once), unconfined=True)
    killed = "node vm: sh was killed by SIGKILL: no output (the guest vm ran out of memory, and its kernel killed tail)"
    assert endings(lab) == [("failed", killed)]
    assert lab.leftovers() == []


@needs_guests
def test_a_trial_with_guests_is_stopped_at_its_time_out_and_fails_alone(lab: Laboratory) -> None:
    times = '[factors.time]\nlevels = ["0.1", "3600"]'
    limit = 'timeouts = [{ where = { time = "3600" }, timeout = "8s" }]'
    lab.execute(guests("exec sleep {time}", count="1", trial=limit, rest=times))
    late = "the trial was stopped at its time-out of 8 s, in the phase 'measure'"
    assert sorted(endings(lab)) == [("done", None), ("failed", late)]
    assert lab.leftovers() == []
