"""Disks underneath nodes' disks, and guests' processes, in real trials: counted until all is down, and recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from laboratory import Laboratory
from storlab.probes.sampling import read_samples
from storlab.probes.subject import ProcessGroup, Subject, read_subject
from storlab.records.run_folder import RunFolder
from storlab.run.trial import measure as measuring

STUDY = """
primary = "bandwidth"
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = true, drop_caches = false } }
probes = { host-load = {}, stalls = {}, processes = { interval = "100ms" } }
[nodes.n]
count = 2
[workload.load]
fio = { rw = "write", bs = "64k", ioengine = "psync", size = "8M", end_fsync = 0, fallocate = "none" }
"""
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """One run for all tests here: the nodes' own disks are taken for those underneath, this process for their QEMUs."""
    real = measuring.measure

    async def measure(record: Any, places: Any, probes: Any, subjects: Any, session: Any, *rest: Any) -> Any:
        nodes = [name for name in subjects if name != "host"]
        disks = tuple(disk for name in nodes for disk in subjects[name].disks)
        processes = {name: ProcessGroup(role="guest", pid=os.getpid()) for name in nodes}
        host = Subject(group="host", end="below", above=tuple(nodes), disks=disks, processes=processes)
        return await real(record, places, probes, {**subjects, "host": host}, session, *rest)

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("backing")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr("storlab.run.trial.trial.measure", measure)
        lab = Laboratory(folder)
        lab.execute(STUDY)
        assert lab.leftovers() == []
        yield lab.run_folder


def values(run: RunFolder, source: str) -> dict[str, float]:
    """Of all nodes together."""
    rows = run.metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), source=source)
    return dict(rows.select("metric", "value").iter_rows())


def backing_folder(run: RunFolder) -> Path:
    return run.trial_folder(1) / "host" / "probe-backing"


@pytest.mark.root
def test_both_ends_have_numbers_of_their_own(run: RunFolder) -> None:
    rows = run.metrics.filter(pl.col("node").is_not_null(), metric="stall.longest")
    ends = {(node, source) for node, source in rows.select("node", "source").iter_rows() if source != "load"}
    assert ends == {("n-1", "probe:stalls"), ("n-2", "probe:stalls"), ("host", "probe:stalls@host")}


@pytest.mark.root
def test_what_waited_in_the_page_cache_is_counted_underneath(run: RunFolder) -> None:
    (record,) = run.records()
    assert record.status == "done", record.reason
    found = values(run, "backing@host")
    assert found["backing.write.bytes"] >= 2 * 8 * MIB
    assert 1.0 <= found["write.amplification.backing"] < 1.5
    looks = read_samples(backing_folder(run))
    assert found["backing.drain"] == pytest.approx(looks[-1].t - record.nodes["host"].end)
    assert found["backing.drain"] > 0.0


@pytest.mark.root
def test_the_counters_are_kept_as_they_were_read(run: RunFolder) -> None:
    (record,) = run.records()
    disks = [disk for name in ("n-1", "n-2") for disk in record.nodes[name].disks]
    assert len(set(disks)) == 2
    assert read_subject(backing_folder(run)).disks == tuple(disks)
    before, after = read_samples(backing_folder(run))
    for look in (before, after):
        assert [len(look.texts[f"/sys/class/block/{disk}/stat"].split()) >= 11 for disk in disks] == [True, True]


@pytest.mark.root
def test_what_nodes_share_comes_with_its_fairness_and_how_far_apart_they_started(run: RunFolder) -> None:
    assert 0.5 <= values(run, "load")["write.bandwidth.fairness"] <= 1.0
    (record,) = run.records()
    assert values(run, "nodes") == {"start.skew": record.start_skew}


@pytest.mark.root
def test_guests_processes_are_watched_on_the_host(run: RunFolder) -> None:
    (record,) = run.records()
    assert record.probes["processes"] == ["host"]
    found = values(run, "probe:processes@host")
    assert found["guest.n-1.memory"] > MIB
    assert found["guests.cpu"] == pytest.approx(found["guest.n-1.cpu"] + found["guest.n-2.cpu"])
