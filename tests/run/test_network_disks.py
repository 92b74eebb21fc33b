"""Disks over the network in runs: each transport measured, and what is reported if server, network or room is gone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.guests import BEGUN, WhenBegun, endings, kill_guest
from laboratory.samples import sample
from storlab.records.derive import derive
from storlab.report.language.say import say
from storlab.study.study import load_study, shipped_studies

LAYERS = {"nbd": "nbd-export", "iscsi": "iscsi-target", "nvme-tcp": "nvme-target", "aoe": "aoe-target"}
GIVE_UP = 6.0  # s
BEYOND = 20.0
READS = "while dd if=$target of=/dev/null bs=64k count=16 iflag=direct; do :; done; exit 1"
LOAD = f'echo "{BEGUN}" > /dev/console; {READS}'


def study(protocols: Iterable[str], load: str = LOAD, probes: str = "probes = {}") -> str:
    """A load on a disk that one server serves, over one protocol after the other."""
    level = 'factors.protocol.{0} = [{{ layer = "{1}" }}, {{ layer = "{0}", give_up = "{2:g}s" }}]\n'
    levels = "".join(level.format(name, LAYERS[name], GIVE_UP) for name in protocols)
    return sample(__file__, "cases/network-disks.toml", probes=probes, levels=levels, load=load)


def cut(lab: Laboratory) -> None:
    """Take the last card of the run's network, which is a client's, off it."""
    inside = ["ip", "netns", "exec", f"storlab-{lab.identity}", "ip"]
    listed = subprocess.run([*inside, "-oneline", "link"], check=True, capture_output=True, text=True).stdout
    cards = [line.split(": ")[1] for line in listed.splitlines() if " master " in line]
    subprocess.run([*inside, "link", "set", cards[-1], "down"], check=True)


def each_trial_fails(lab: Laboratory, protocols: Iterable[str], action: Callable[[], None]) -> dict[str, str]:
    """Do this whenever the load works: protocol → why its trial failed, in time, nothing being left."""
    fates = WhenBegun(lab, ("client",), lambda _: action())
    lab.execute(study(protocols), fates, unconfined=True)
    assert fates.errors == []
    for record in lab.records():
        assert record.status == "failed" and record.lost_after is not None, record
        assert (record.reason or "").endswith(f" ({record.lost_after:.1f} s into the load)")
        assert record.phases["measure"] < GIVE_UP + BEYOND and record.phases["tear down"] < BEYOND
        assert [warning for warning in record.warnings if "torn down" in say(warning)] == []
    assert lab.leftovers() == []
    reasons = (reason or "" for _, reason in endings(lab))
    return dict(zip((record.levels["protocol"] for record in lab.records()), reasons, strict=True))


FULL = sample(__file__, "cases/full-server.toml")


@pytest.mark.needs("root")
def test_a_trial_whose_target_is_full_fails_and_says_whose_it_is(lab: Laboratory) -> None:
    lab.execute(FULL)
    ((status, reason),) = endings(lab)
    assert status == "failed" and (reason or "").startswith("node client: qemu-io ended with status 1: ")
    assert (reason or "").endswith("No space left on device (what server serves is full)")
    assert lab.run_folder.metrics.is_empty()


# What each protocol does without its server is tested in tests/layers/test_block_faults.py.
@pytest.mark.needs("guests")
def test_a_network_that_is_cut_under_load_is_the_reason_of_the_failure(lab: Laboratory) -> None:
    reasons = each_trial_fails(lab, ("nbd", "iscsi"), lambda: cut(lab))
    no_answer = re.compile(r"node client: no answer from node server \([\d.]+\) for \d+\.\d s")
    assert reasons.keys() == {"nbd", "iscsi"} and all(map(no_answer.fullmatch, reasons.values())), reasons


@pytest.mark.needs("guests")
def test_a_machine_that_serves_and_is_killed_is_the_reason_of_the_failure(lab: Laboratory) -> None:
    reasons = each_trial_fails(lab, ("nvme-tcp", "aoe"), lambda: kill_guest(lab, "server"))
    assert reasons == dict.fromkeys(("nvme-tcp", "aoe"), "node server: QEMU was killed by SIGKILL")


@pytest.mark.needs("guests")
def test_requests_to_a_disk_that_has_a_slash_in_its_name_are_counted_at_both_ends(lab: Laboratory) -> None:
    """``/dev/etherd/e0.0``, which sysfs calls ``etherd!e0.0``."""
    load = "dd if=/dev/zero of=$target bs=8k count=64 oflag=direct conv=fsync status=none"
    lab.succeed(study(["aoe"], load, 'probes.alignment = { at = "each" }'), unconfined=True)
    metrics = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_not_null())
    found = {(node, name): value for node, name, value in metrics.select("node", "metric", "value").rows()}
    assert (found["client", "write.requests"], found["client", "write.bytes"]) == (64, 64 * 8192)
    assert found["server", "write.requests"] >= 512, "one for each frame of 1024 bytes, and each that was sent again"


BLOCK = shipped_studies()["network-block"]
# One server for all, and Bonnie++'s tests of data alone: most of the time is that of guests that start.
SMALL = (
    *("size=1M", "seeks=4", "files=0", "disk=32M", "nodes.server.keep=run", "nodes.server.memory=256M"),
    *("nodes.client.memory=256M", 'compare.1.metrics=["seek.rate"]', "claim.18.metric=seek.rate"),
)
# One of each kind: a program serves, behind a relay that does all that relays can; the kernel; a share; and nobody.
TCP = {"dst", "iscsi", "nvme", "nfs"}


def test_the_published_machines_are_a_profile_of_it() -> None:
    cells = load_study(BLOCK, ["profile=seed"]).cells
    assert [cell.levels["transport"] for cell in cells] == ["local", "nfs", "aoe", "dst", "dst-nosack", "dst-2"]
    (bonnie,) = {cell.loads[0].workload.model_dump_json() for cell in cells}
    assert '"size":17179869184' in bonnie and '"fast":false' in bonnie and '"number":16' in bonnie
    assert [cell.nodes["client"].tcp.sack for cell in cells if cell.nodes["client"].tcp] == [True] * 4 + [False, True]
    chosen = load_study(BLOCK, ["profile=seed"], ["transport=iscsi"]).cells
    assert [cell.levels["transport"] for cell in chosen] == ["iscsi"], "what --only names counts more than the profile"


@pytest.mark.needs("guests")
def test_transports_of_each_kind_run_to_the_report(lab: Laboratory) -> None:
    transports = TCP | {"local"}
    settings = [word for each in SMALL for word in ("--set", each)]
    only = ("--only", f"transport={','.join(sorted(transports))}")
    words = ("--out", lab.out, "--rounds", "1", "--quiet")
    lab.storlab("run", BLOCK, *words, *only, *settings, timeout=500).with_status(0)
    ends = {record.levels["transport"]: (record.status, record.reason) for record in lab.records()}
    assert ends == dict.fromkeys(transports, ("done", None))
    acks = by_transport(lab, "probe:tcp", "acks.per-request")
    assert acks.keys() == TCP - {"nfs"}, "NFS has no disk whose requests could be counted"
    # 128 KiB in segments of 1448 bytes are 90.5, two or more of which are acknowledged at once.
    assert 0 < min(acks.values()) <= acks["iscsi"] <= 60
    # Sockets of the kernel, which no process has, are seen at both ends: initiators, NFS's client and server.
    received = by_transport(lab, "probe:tcp", "bytes.received")
    sent = by_transport(lab, "probe:tcp@server", "bytes.sent")
    assert min(received.values()) > 1024 * 1024 and received.keys() == TCP
    assert [sent[each] / received[each] for each in ("iscsi", "nvme", "nfs")] == pytest.approx([1] * 3, rel=0.05)
    assert (lab.out / "report.html").stat().st_size > 10_000


def by_transport(lab: Laboratory, source: str, metric: str) -> dict[str, float]:
    found = lab.run_folder.metrics.filter(pl.col("node").is_null(), source=source, metric=metric)
    levels = {record.trial: record.levels["transport"] for record in lab.records()}
    return {levels[trial]: value for trial, value in found.select("trial", "value").iter_rows()}
