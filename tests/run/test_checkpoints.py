"""Checkpoints while a load runs: marked on its chart, and their dip measured; without one, that is said."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, wait_until
from laboratory.databases import laboratory_of_databases

STUDY = """
primary = "tps"
stack = [{ layer = "directory" }, { layer = "postgresql", pool = "32M", data = { tables = 1, rows = 1000 } }]
repeat = { until = "max", min = 2, max = 2 }
workload.oltp.sysbench = { threads = 2, runtime = "10s", test = "oltp_update_non_index" }
probes.server = { interval = "500ms" }
"""


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with laboratory_of_databases(monkeypatch) as made:
        yield made


def force_one(lab: Laboratory) -> None:
    """A checkpoint in the midst of the first trial."""
    assert wait_until(lambda: any("--histogram=on" in words for words in lab.commands().values()))
    time.sleep(5)  # of the 10 s
    (socket,) = (each for each in Path("/tmp").glob(f"storlab-{lab.identity}*/**/.s.PGSQL.*") if each.is_socket())
    where = [f"--host={socket.parent}", f"--port={socket.suffix[1:]}", "--username=storlab", "--dbname=storlab"]
    subprocess.run(["psql", "--no-psqlrc", *where, "-c", "CHECKPOINT"], check=True, stdout=subprocess.DEVNULL)


def test_a_forced_checkpoint_is_marked_and_has_a_dip_and_a_trial_without_one_says_so(lab: Laboratory) -> None:
    forcing = threading.Thread(target=force_one, args=(lab,))
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
    assert len(values) == 4 and 0 <= values["checkpoint.dip.depth.max"] <= 1
    assert metrics.filter(pl.col("metric").str.starts_with("checkpoint.dip."), trial=2).is_empty()
    assert lab.storlab("report", lab.out, "--format", "html").status == 0
    page = (lab.out / "report.html").read_text()
    assert "triangles are checkpoints" in page and "1 checkpoint of" in page
    assert "no checkpoint began while the load ran" in page
    assert lab.leftovers() == []
