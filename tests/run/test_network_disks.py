"""Trials whose disk comes over the network, and what they report when the server or the network is gone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import polars as pl
import pytest

from laboratory import Laboratory, needs_root
from laboratory.guests import BEGUN, endings, kill_guest, needs_guests, once_begun
from storlab.records.derive import derive

LAYERS = {"nbd": "nbd-export", "iscsi": "iscsi-target", "nvme-tcp": "nvme-target", "aoe": "aoe-target"}
GIVE_UP = 6.0  # s
BEYOND = 20.0
READS = "while dd if=$target of=/dev/null bs=64k count=16 iflag=direct; do :; done; exit 1"
LOAD = f'echo "{BEGUN}" > /dev/console; {READS}'

pytestmark = pytest.mark.slow
by_protocol = pytest.mark.parametrize("protocol", LAYERS)


def study(protocol: str, load: str = LOAD) -> str:
    """A load on a disk that a server serves."""
    return f"""
primary = "elapsed"
repeat = {{ until = "max", min = 1, max = 1 }}
trial = {{ settle = {{ sync = false, drop_caches = false }} }}
[probes]
[nodes.server]
kind = "vm"
memory = "256M"
stack = [{{ layer = "file", size = "16M" }}, {{ layer = "virtio-blk" }}]
[nodes.client]
kind = "vm"
memory = "256M"
from = "server"
stack = [{{ layer = "{LAYERS[protocol]}" }}, {{ layer = "{protocol}", give_up = "{GIVE_UP:g}s" }}]
[workload.load]
on = ["client"]
command = {{ argv = ["sh", "-c", '''target={{target}}; {load}'''] }}
"""


def cut(lab: Laboratory) -> None:
    """Take the last card of the run's network, which is a client's, off it."""
    inside = ["ip", "netns", "exec", f"storlab-{lab.identity}", "ip"]
    listed = subprocess.run([*inside, "-oneline", "link"], check=True, capture_output=True, text=True).stdout
    cards = [line.split(": ")[1] for line in listed.splitlines() if " master " in line]
    subprocess.run([*inside, "link", "set", cards[-1], "down"], check=True)


def fails(lab: Laboratory, protocol: str, action: Callable[[], None]) -> str:
    """Do this once the load works; the reason for which the trial then fails, in time, and with nothing left."""
    with once_begun(lab, ("client",), action):
        lab.execute(study(protocol), unconfined=True)
    ((status, reason),) = endings(lab)
    assert status == "failed"
    assert reason is not None
    (record,) = lab.records()
    assert record.lost_after is not None
    assert (record.reason or "").endswith(f" ({record.lost_after:.1f} s into the load)")
    assert record.phases["measure"] < GIVE_UP + BEYOND
    assert record.phases["tear down"] < BEYOND
    assert [warning for warning in record.warnings if "torn down" in warning] == []
    assert lab.leftovers() == []
    return reason


FULL = """
primary = "elapsed"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }
[probes]
[nodes.server]
kind = "netns"
stack = [
  { layer = "file", size = "16M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
  { layer = "file", size = "64M", overcommit = true },
]
[nodes.client]
kind = "netns"
from = "server"
stack = [{ layer = "nbd-export" }, { layer = "connect" }]
[workload.load]
command = { argv = ["qemu-io", "-f", "raw", "-c", "write -P 90 0 32M", "{target}"] }
"""


@needs_root
def test_a_trial_whose_target_is_full_fails_and_says_whose_it_is(lab: Laboratory) -> None:
    lab.execute(FULL)
    ((status, reason),) = endings(lab)
    assert status == "failed"
    assert (reason or "").startswith("node client: qemu-io ended with status 1: ")
    assert (reason or "").endswith("No space left on device (what server serves is full)")
    assert lab.run_folder.metrics.is_empty()
    assert lab.leftovers() == []


@needs_guests
@by_protocol
def test_a_network_that_is_cut_under_load_is_the_reason_of_the_failure(lab: Laboratory, protocol: str) -> None:
    reason = fails(lab, protocol, lambda: cut(lab))
    assert re.fullmatch(r"node client: no answer from node server \([\d.]+\) for \d+\.\d s", reason), reason


@needs_guests
@by_protocol
def test_a_machine_that_serves_and_is_killed_is_the_reason_of_the_failure(lab: Laboratory, protocol: str) -> None:
    assert fails(lab, protocol, lambda: kill_guest(lab, "server")) == "node server: QEMU was killed by SIGKILL"


@needs_guests
def test_requests_to_a_disk_that_has_a_slash_in_its_name_are_counted_at_both_ends(lab: Laboratory) -> None:
    """``/dev/etherd/e0.0``, which sysfs calls ``etherd!e0.0``."""
    writes = study("aoe", "dd if=/dev/zero of=$target bs=8k count=64 oflag=direct conv=fsync status=none")
    lab.execute(writes.replace("[probes]\n", '[probes]\nalignment = { at = "each" }\n'), unconfined=True)
    assert endings(lab) == [("done", None)]
    metrics = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_not_null())
    found = {(node, name): value for node, name, value in metrics.select("node", "metric", "value").rows()}
    assert (found["client", "write.requests"], found["client", "write.bytes"]) == (64, 64 * 8192)
    assert found["server", "write.requests"] >= 512, "one for each frame of 1024 bytes, and each that was sent again"
    assert lab.leftovers() == []
