"""What the probe ``alignment`` counts of a trial: the requests of its load, and none of those that prepared it."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from laboratory import Laboratory, needs_root
from laboratory.studies import directory
from storlab.records.derive import derive

pytestmark = [pytest.mark.root]

WRITES = 700
LENGTH = 16384
LOAD = f'rw = "randwrite", bs = "16k", size = "32M", direct = 1, ioengine = "psync", number_ios = {WRITES}'
DISK = '[{ layer = "file", size = "64M" }, { layer = "loop" }]'
XFS = '[{ layer = "file", size = "320M" }, { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]'


def study(stack: str, load: str, trial: str = "") -> str:
    """One trial of this load, watched by ``alignment`` and ``host-load``."""
    probes = "[probes]\nalignment = {}\nhost-load = {}\n"
    text = directory(f"fio = {{ {load} }}", trial=trial).replace('[{ layer = "directory" }]', stack)
    return text.replace("[probes]", probes).replace("settle = { sync = false, drop_caches = false }, ", "")


def writes(lab: Laboratory) -> Counter[int]:
    """Length → requests that wrote data, and not the file system's own."""
    frame = derive(lab.run_folder).frame("requests")
    data = frame.filter(pl.col("operation") == "write", ~pl.col("flags").str.split("+").list.contains("meta"))
    sums = data.group_by("length").agg(pl.col("count").sum())
    return Counter(dict(sums.select("length", "count").iter_rows()))


def metrics(lab: Laboratory) -> dict[tuple[str, str], float]:
    """Of the only trial: source and metric → value."""
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_null(), pl.col("job").is_null())
    return {(source, metric): value for source, metric, value in found.select("source", "metric", "value").iter_rows()}


@needs_root
def test_on_a_disk_every_write_of_the_load_is_counted_and_none_of_what_went_before(lab: Laboratory) -> None:
    prepare = '[["dd", "if=/dev/zero", "of={target}", "bs=64k", "count=50", "oflag=direct", "status=none"]]'
    before = '{ fio = { rw = "write", bs = "4k", size = "2M", direct = 1, ioengine = "psync" } }'
    lab.execute(study(DISK, LOAD, f"prepare = {prepare}, precondition = {before}"))
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    assert writes(lab) == {LENGTH: WRITES}
    assert metrics(lab)["probe:alignment", "write.requests"] == WRITES
    assert metrics(lab)["storage", "write.amplification"] == 1.0
    assert lab.leftovers() == []


@needs_root
def test_files_that_fio_lays_out_before_are_not_counted(lab: Laboratory) -> None:
    lab.execute(study(XFS, f"{LOAD}, overwrite = 1"))
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    assert writes(lab) == {LENGTH: WRITES}
    assert lab.leftovers() == []


@needs_root
def test_a_warm_up_is_among_the_counts_and_no_amplification_is_made_of_it(lab: Laboratory) -> None:
    load = LOAD.replace(f"number_ios = {WRITES}", 'rate_iops = 200, runtime = "1s", time_based = true')
    lab.execute(study(DISK, load, 'warm_up = "500ms"'))
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    found = metrics(lab)
    assert found["probe:alignment", "write.requests"] > found["load", "write.ios"]
    assert ("storage", "write.amplification") not in found
    assert lab.leftovers() == []
