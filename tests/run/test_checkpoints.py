"""Checkpoints while a load runs: marked on its chart, and their dip measured; without one, that is said."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, needs_root, wait_until
from laboratory.databases import laboratory_of_databases

BLKIO = Path("/sys/fs/cgroup/blkio")
STUDY = """
primary = "tps"
stack = [
  { layer = "file", size = "512M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
  { layer = "postgresql", pool = "64M", full_page_writes = false, data = { tables = 1, rows = 50000 } },
]
repeat = { until = "max", min = 2, max = 2 }
workload.oltp.sysbench = { threads = 4, rate = 40, runtime = "12s", test = "oltp_write_only", distribution = "uniform" }
probes.server = { interval = "500ms" }
"""


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with laboratory_of_databases(monkeypatch) as made:
        yield made


@pytest.fixture
def slow() -> Iterator[Path]:
    """A cgroup for whose processes loop devices write two megabytes a second: those that there are, and new ones."""
    if not (BLKIO / "blkio.throttle.write_bps_device").exists():
        pytest.skip("this machine has no cgroups of blkio, version 1, to slow a disk down with")
    folder = BLKIO / f"test-checkpoints-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            (BLKIO / "cgroup.procs").write_text(pid)
        folder.rmdir()


def force_one(lab: Laboratory, slow: Path) -> None:
    """A checkpoint in the midst of the first trial, on a disk that is slow for commits and checkpoints alike."""
    assert wait_until(lambda: any("--histogram=on" in words for words in lab.commands().values()))
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    (disk,) = (number for _, _, number, _, where, *_ in mounts if lab.identity in where)
    (slow / "blkio.throttle.write_bps_device").write_text(f"{disk} 2000000")
    # A process that was just forked still has the server's command line.
    servers = {pid for pid, words in lab.commands().items() if words[0].endswith("/postgres")}
    (server,) = (pid for pid in servers if not servers & {_parent(pid)})
    (slow / "cgroup.procs").write_text(str(server))  # first, so that no client's process is forked outside
    for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        (slow / "cgroup.procs").write_text(pid)
    time.sleep(6)  # of the 12 s
    (socket,) = (each for each in Path("/tmp").glob(f"storlab-{lab.identity}*/**/.s.PGSQL.*") if each.is_socket())
    where = [f"--host={socket.parent}", f"--port={socket.suffix[1:]}", "--username=storlab", "--dbname=storlab"]
    subprocess.run(["psql", "--no-psqlrc", *where, "-c", "CHECKPOINT"], check=True, stdout=subprocess.DEVNULL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


@needs_root
def test_a_checkpoint_on_a_slow_disk_is_marked_and_has_a_dip_and_a_trial_without_one_says_so(
    lab: Laboratory, slow: Path
) -> None:
    forcing = threading.Thread(target=force_one, args=(lab, slow))
    forcing.start()
    ran = lab.run(STUDY)
    forcing.join()
    assert ran.status == 0, ran
    series = pl.read_parquet(lab.out / "tables" / "series.parquet").filter(metric="checkpoint")
    assert series["trial"].to_list() == [1]
    assert 2 < series["t"][0] < 10 and series["value"][0] < 5
    metrics = pl.read_parquet(lab.out / "tables" / "metrics.parquet")
    found = metrics.filter(pl.col("metric").str.starts_with("checkpoint.dip."), trial=1)
    values = dict(found.select("metric", "value").iter_rows())
    assert len(values) == 4 and 0.3 < values["checkpoint.dip.depth.max"] <= 1
    assert values["checkpoint.dip.length.max"] >= 1
    assert metrics.filter(pl.col("metric").str.starts_with("checkpoint.dip."), trial=2).is_empty()
    assert lab.storlab("report", lab.out, "--format", "html").status == 0
    page = (lab.out / "report.html").read_text()
    assert "triangles are checkpoints" in page and "1 checkpoint of" in page
    assert "no checkpoint began while the load ran" in page
    assert lab.leftovers() == []
