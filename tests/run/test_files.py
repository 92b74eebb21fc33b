"""Storms of many small files in whole studies: measured, ended by a full file system, interrupted."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, ended, kill, needs_root, wait_for
from laboratory.guests import EXT4, guests, needs_guests
from laboratory.studies import directory
from storlab.records.derive import derive

MOUNTED = """[
  { layer = "file", size = "SIZE" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]"""


def mounted(load: str, size: str = "64M", rest: str = "") -> str:
    """As ``directory``, on a file system of its own."""
    return directory(load, rest=rest).replace('[{ layer = "directory" }]', MOUNTED.replace("SIZE", size))


def metrics(lab: Laboratory, source: str = "load") -> dict[str, float]:
    """Of the only trial, all nodes together."""
    found = derive(lab.run_folder).frame("metrics")
    found = found.filter(pl.col("source") == source, pl.col("node").is_null(), pl.col("job").is_null())
    return dict(found.select("metric", "value").iter_rows())


def test_a_storm_in_a_directory_has_rates_and_latencies_and_leaves_nothing(lab: Laboratory) -> None:
    storm = 'files = { files = 1000, size = { min = "1k", max = "8k" }, workers = 2, fsync = "file", order = "random" }'
    result = lab.run(directory(storm).replace('primary = "elapsed"', 'primary = "create.rate"'))
    assert result.status == 0, str(result)
    assert "create.rate: load" in result.stdout
    found = metrics(lab)
    for phase in ("create", "read", "stat", "delete"):
        assert found[f"{phase}.files"] == 1000
        assert found[f"{phase}.rate"] == pytest.approx(1000 / found[f"{phase}.time"])
        assert 0 < found[f"{phase}.latency.p50"] <= found[f"{phase}.latency.p99.9"]
        assert found[f"{phase}.latency.p99.9"] <= found[f"{phase}.latency.max"] * 1.01
    assert found["sync.ios"] == 1000
    assert 4.4e6 < found["write.bytes"] < 4.8e6
    assert found["read.bytes"] == found["write.bytes"]
    series = derive(lab.run_folder).frame("series").filter(pl.col("source") == "load")
    phases = ("mkdir", "create", "read", "stat", "delete", "rmdir")  # of those that took long enough for a slot
    assert set(series["metric"].unique()) <= {f"{phase}.rate" for phase in phases}
    assert lab.leftovers() == []


def test_without_create_the_files_are_made_before(lab: Laboratory) -> None:
    lab.execute(directory('files = { files = 300, workers = 3, phases = ["read"], order = "random" }'))
    assert [record.status for record in lab.records()] == ["done"]
    found = metrics(lab)
    assert found["read.files"] == 300
    assert "create.rate" not in found
    assert lab.leftovers() == []


def test_the_same_round_has_the_same_files_in_every_cell(lab: Laboratory) -> None:
    study = directory(
        'files = { files = 100, size = { median = "4k", sigma = 2.0 }, workers = "{workers}" }',
        rounds=2,
        rest="[factors]\nworkers = [1, 3]",
    )
    lab.execute(study)
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("metric") == "write.bytes", pl.col("node").is_null())
    by_round = found.group_by("round").agg(pl.col("value").n_unique())
    assert by_round["value"].to_list() == [1, 1]
    assert found["value"].n_unique() == 2


def test_a_warm_up_is_left_out_and_that_is_said(lab: Laboratory) -> None:
    lab.execute(directory("files = { files = 20 }", trial='warm_up = "1s"'))
    assert derive(lab.run_folder).warnings() == (
        "load on host: warm_up is left out: files are made once, and all are measured",
    )


@needs_root
def test_what_reaches_the_disk_is_counted_for_each_byte_of_the_files(lab: Laboratory) -> None:
    lab.execute(mounted("files = { files = 2000 }").replace("[probes]", "[probes]\nhost-load = {}"))
    assert [record.status for record in lab.records()] == ["done"]
    # All that was written, since a syncfs comes after it, with inodes, directories and the journal.
    assert 1.0 < metrics(lab, "storage")["write.amplification"] < 5.0
    assert lab.leftovers() == []


@needs_root
@pytest.mark.parametrize(
    ("storm", "note"),
    [
        ('{ files = 60, size = "1M", workers = 2 }', "the files take up 60M, but only"),
        ("{ files = 50000, size = 0, workers = 2, directories = { depth = 0 } }", "inodes are free: they may not fit"),
    ],
)
def test_a_full_file_system_fails_the_trial_with_the_path(lab: Laboratory, storm: str, note: str) -> None:
    outcome = lab.execute(mounted(f"files = {storm}"))
    assert outcome.ending == "failures"
    (record,) = lab.records()
    assert record.reason is not None
    assert record.reason.startswith("node host: files: create: ")
    assert "/storm-load/w" in record.reason
    assert "(ENOSPC)" in record.reason
    assert note in record.detail
    assert lab.leftovers() == []


@needs_root
def test_files_that_do_not_fit_into_a_layout_fail_the_trial_too(lab: Laboratory) -> None:
    lab.execute(mounted('files = { files = 60, size = "1M", phases = ["read"] }'))
    (record,) = lab.records()
    assert "files: create: " in (record.reason or "")
    assert "(ENOSPC)" in (record.reason or "")


@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_storm_that_is_interrupted_leaves_nothing(lab: Laboratory, number: signal.Signals) -> None:
    process = lab.start_run(mounted("files = { files = 100000000, size = 0, workers = 2 }", size="512M"))
    wait_for(process, lambda: storms(lab))
    kill(process, number)
    assert ended(process).status == (130 if number == signal.SIGINT else -9)
    assert lab.storlab("clean", lab.out).status == 0
    assert lab.leftovers() == []


def storms(lab: Laboratory) -> list[Path]:
    """The directories with files of all storms that are on."""
    mounts = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [path for mount in mounts if str(lab.folder) in str(mount) for path in mount.glob("storm-load/w*/d*")]


def test_a_storm_needs_no_more_memory_for_more_files(lab: Laboratory) -> None:
    kind = subprocess.run(
        ["stat", "--file-system", "--format=%T", "/dev/shm"], capture_output=True, text=True, check=False
    )
    if kind.stdout.strip() != "tmpfs":
        pytest.skip("there is no tmpfs at /dev/shm, and disks take too long for so many files")
    study = directory('files = { files = "{files}", size = 0, phases = ["create", "delete"], end_sync = false }')
    study = study.replace('"directory"', '"directory", path = "/dev/shm"')
    lab.execute(study + "[factors]\nfiles = [1000, 200000]")
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("metric") == "max_rss", pl.col("node").is_null())
    few, many = found.sort("cell")["value"].to_list()
    assert many < few + 2**20


@needs_guests
def test_a_storm_in_guests_is_the_agents_own_program_there_and_is_fair_or_not(lab: Laboratory) -> None:
    study = guests("", stack=EXT4)
    load = 'files = { files = 200, workers = 2, fsync = "file", drop_caches = true }\n'
    lab.execute(study[: study.index("command = ")] + load)
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    found = metrics(lab)
    assert found["create.files"] == 400
    assert 0.5 <= found["create.rate.fairness"] <= 1
    assert lab.leftovers() == []
