"""A disk that answers no flush for seconds, underneath a database: a stall of both, and none where it does answer."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, needs_root, wait_until
from laboratory.databases import laboratory_of_databases

FROZEN = 4.0  # s

# The file system below the disk under test is frozen, so that the disk's own requests wait.
STUDY = """
primary = "tps"
stack = [
  { layer = "file", size = "900M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
  { layer = "file", size = "600M" }, { layer = "loop", direct_io = false }, { layer = "mkfs", type = "ext4" },
  { layer = "mount" }, { layer = "mariadb", pool = "32M", log_size = "16M", data = { tables = 1, rows = 1000 } },
]
repeat = { until = "max", min = 2, max = 2 }
workload.oltp.sysbench = { threads = 2, runtime = "12s", test = "oltp_update_non_index" }
probes = { stalls = {} }
"""


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with laboratory_of_databases(monkeypatch) as made:
        yield made


def mounts(lab: Laboratory) -> list[str]:
    """Those of the laboratory, the lowest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted((path for line in lines if str(lab.folder) in (path := line.split()[4])), key=len)


def freeze(lab: Laboratory) -> None:
    assert wait_until(lambda: any("--histogram=on" in words for words in lab.commands().values()))
    time.sleep(4)
    lowest = mounts(lab)[0]
    subprocess.run(["fsfreeze", "--freeze", lowest], check=True)
    time.sleep(FROZEN)
    subprocess.run(["fsfreeze", "--unfreeze", lowest], check=True)


@needs_root
def test_a_disk_that_answers_no_flush_is_a_stall_and_one_that_does_is_not(lab: Laboratory) -> None:
    freezing = threading.Thread(target=freeze, args=(lab,))
    freezing.start()
    ran = lab.run(STUDY)
    freezing.join()
    assert ran.status == 0, ran
    found = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("job").is_null())
    worst = {trial: dict(found.filter(trial=trial).select("metric", "value").iter_rows()) for trial in (1, 2)}
    for metric in ("stall.longest", "tps.longest_stall"):
        assert worst[1][metric] > FROZEN - 2, metric
        assert worst[2][metric] < FROZEN - 2, metric
    assert worst[1]["stall.count"] >= 1 and worst[2]["stall.count"] == 0
    assert lab.leftovers() == []
