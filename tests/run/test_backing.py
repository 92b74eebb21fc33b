"""Disks beneath nodes' disks, and guests' processes, in real trials: counted until all is down, and taken note of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from laboratory import Laboratory
from storlab.nodes.local import local_node
from storlab.nodes.node import Node
from storlab.records.run_folder import RunFolder
from storlab.run import measure as measuring
from storlab.run.backing import Backing, drain

STUDY = """
primary = "bandwidth"
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = true, drop_caches = false } }
probes = { host-load = {}, stalls = {}, guests = { interval = "100ms" } }
[nodes.n]
count = 2
[workload.load]
fio = { rw = "write", bs = "64k", ioengine = "psync", size = "8M", end_fsync = 0, fallocate = "none" }
"""
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """One run for all tests here: each node's own disk is taken for the disk beneath, and this process for its QEMU."""
    real = measuring.measure

    async def measure(places: Any, probes: Any, disks: Any, session: Any, folder: Path, **_: Any) -> Any:
        backings = [Backing(session.host, disk, (node,)) for node, disk in disks.items()]
        processes = {node: os.getpid() for node in disks}
        return await real(places, probes, disks, session, folder, backings=backings, processes=processes)

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("backing")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr("storlab.run.trial.measure", measure)
        lab = Laboratory(folder)
        lab.execute(STUDY)
        assert lab.leftovers() == []
        yield lab.run_folder


def values(run: RunFolder, source: str) -> dict[str, float]:
    """Of all nodes together."""
    rows = run.metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), source=source)
    return dict(rows.select("metric", "value").iter_rows())


@pytest.mark.root
def test_what_waited_in_the_page_cache_is_counted_beneath(run: RunFolder) -> None:
    (record,) = run.records()
    assert record.status == "done", record.reason
    found = values(run, "storage")
    assert found["backing.write.bytes"] >= 2 * 8 * MIB
    assert 1.0 <= found["write.amplification.backing"] < 1.5
    assert found["backing.drain"] == max(backing.drain for backing in record.backings) > 0.0


@pytest.mark.root
def test_the_counters_are_kept_as_they_were_read(run: RunFolder) -> None:
    (record,) = run.records()
    assert len(record.backings) == 2
    for backing in record.backings:
        for when in ("before", "after"):
            raw = run.trial_folder(1) / "host" / f"backing-{backing.disk}" / f"{when}.stat"
            assert len(raw.read_text().split()) >= 11


@pytest.mark.root
def test_what_nodes_share_comes_with_its_fairness_and_how_far_apart_they_started(run: RunFolder) -> None:
    assert 0.5 <= values(run, "load")["write.bandwidth.fairness"] <= 1.0
    (record,) = run.records()
    assert values(run, "nodes") == {"start.skew": record.start_skew}


@pytest.mark.root
def test_guests_processes_are_watched_on_the_host(run: RunFolder) -> None:
    (record,) = run.records()
    assert record.probes["guests"] == ["host"]
    found = values(run, "probe:guests")
    assert found["guest.n-1.memory"] > MIB
    assert found["guests.cpu"] == pytest.approx(found["guest.n-1.cpu"] + found["guest.n-2.cpu"])


def test_a_disk_that_is_not_there_leaves_no_counters_and_no_harm(tmp_path: Path) -> None:
    async def one(node: Node) -> None:
        async with drain([Backing(node, "no-such-disk", ("a",))], tmp_path) as beneath:
            await beneath.before()
            beneath.load_ended()
            (record,) = await beneath.records()
        assert (record.node, record.disk, record.beneath) == ("host", "no-such-disk", ["a"])
        assert record.drain >= 0.0

    asyncio.run(on_host(one))
    assert (tmp_path / "host" / "backing-no-such-disk" / "after.stat").read_bytes() == b""


def test_a_drain_that_is_abandoned_leaves_nothing_running(tmp_path: Path) -> None:
    async def one(node: Node) -> None:
        before = len(asyncio.all_tasks())
        with pytest.raises(ZeroDivisionError):
            async with drain([Backing(node, "no-such-disk", ())], tmp_path) as beneath:
                beneath.load_ended()
                raise ZeroDivisionError
        assert len(asyncio.all_tasks()) == before

    asyncio.run(on_host(one))


async def on_host(use: Any) -> None:
    async with local_node("host") as node:
        await use(node)
