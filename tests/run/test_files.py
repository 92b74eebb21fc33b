"""Loads that work on files, in whole studies: storms of small ones, Bonnie++, the checks of the workload posix."""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, ended, kill, wait_for
from laboratory.devices import sh
from laboratory.guests import EXT4, guests
from laboratory.samples import sample
from laboratory.studies import ON_LOOP, directory
from storlab.records.derive import derive
from storlab.report.language.say import said, say
from storlab.report.model.conformance import OUTCOMES
from storlab.workloads.posix.checks.table import CHECKS


def mounted(load: str, size: str = "64M", rest: str = "") -> str:
    """As ``directory``, on a file system of its own."""
    return directory(load, rest=rest, stack=f"[{ON_LOOP}]".replace("64M", size))


def metrics(lab: Laboratory, source: str = "load") -> dict[str, float]:
    """Of the only trial, all nodes together."""
    found = derive(lab.run_folder).frame("metrics")
    found = found.filter(pl.col("source") == source, pl.col("node").is_null(), pl.col("job").is_null())
    return dict(found.select("metric", "value").iter_rows())


def test_a_storm_in_a_directory_has_rates_and_latencies_and_leaves_nothing(lab: Laboratory) -> None:
    storm = 'files = { files = 1000, size = { min = "1k", max = "8k" }, workers = 2, fsync = "file", order = "random" }'
    result = lab.run(directory(storm).replace('primary = "elapsed"', 'primary = "create.rate"')).with_status(0)
    assert "create.rate: load" in result.stdout
    found = metrics(lab)
    for phase in ("create", "read", "stat", "delete"):
        assert found[f"{phase}.files"] == 1000
        assert found[f"{phase}.rate"] == pytest.approx(1000 / found[f"{phase}.time"])
        assert 0 < found[f"{phase}.latency.p50"] <= found[f"{phase}.latency.p99.9"]
        assert found[f"{phase}.latency.p99.9"] <= found[f"{phase}.latency.max"] * 1.01
    assert found["sync.ios"] == 1000 and 4.4e6 < found["write.bytes"] < 4.8e6
    assert found["read.bytes"] == found["write.bytes"]
    series = derive(lab.run_folder).frame("series").filter(pl.col("source") == "load")
    phases = ("mkdir", "create", "read", "stat", "delete", "rmdir")  # of those that took long enough for a slot
    assert set(series["metric"].unique()) <= {f"{phase}.rate" for phase in phases}


def test_without_create_the_files_are_made_before(lab: Laboratory) -> None:
    lab.succeed(directory('files = { files = 300, workers = 3, phases = ["read"], order = "random" }'))
    found = metrics(lab)
    assert found["read.files"] == 300 and "create.rate" not in found


def test_the_same_round_has_the_same_files_in_every_cell(lab: Laboratory) -> None:
    load = 'files = { files = 100, size = { median = "4k", sigma = 2.0 }, workers = "{workers}" }'
    lab.execute(directory(load, rounds=2, rest="[factors]\nworkers = [1, 3]"))
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("metric") == "write.bytes", pl.col("node").is_null())
    by_round = found.group_by("round").agg(pl.col("value").n_unique())
    assert by_round["value"].to_list() == [1, 1] and found["value"].n_unique() == 2


def test_a_warm_up_is_left_out_and_that_is_said(lab: Laboratory) -> None:
    lab.execute(directory("files = { files = 20 }", trial='warm_up = "1s"'))
    (warning,) = said(derive(lab.run_folder).warnings())
    assert warning == "load on host: warm_up is left out: files are made once, and all are measured"


@pytest.mark.needs("root")
def test_what_reaches_the_disk_is_counted_for_each_byte_of_the_files(lab: Laboratory) -> None:
    lab.succeed(mounted("files = { files = 2000 }").replace("[probes]", "[probes]\nhost-load = {}"))
    # All that was written, since a syncfs comes after it, with inodes, directories and the journal.
    assert 1.0 < metrics(lab, "storage")["write.amplification"] < 5.0


BONNIE = r"node host: target full: bonnie\+\+"
FULL = r"node host: files: create: .*/storm-load/w.*\(ENOSPC\)"
MANY_FILES = "files = 50000, size = 0, workers = 2, directories = { depth = 0 }"
with_bonnie = pytest.mark.needs("bonnie++")


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("load", "reason", "note"),
    [
        ('files = { files = 60, size = "1M", workers = 2 }', FULL, "the files take up 60M, but only"),
        ('files = { files = 60, size = "1M", phases = ["read"] }', r".*files: create: .*\(ENOSPC\)", ""),
        (f"files = {{ {MANY_FILES} }}", FULL, "inodes are free: they may not fit"),
        pytest.param('bonnie = { size = "60M", fast = true }', rf"{BONNIE} writes 60M, and", "", marks=with_bonnie),
        pytest.param("bonnie = { size = 0, files = 20 }", rf"{BONNIE} creates 20480 files, and", "", marks=with_bonnie),
    ],
    ids=["space", "before the load", "inodes", "space for bonnie", "files of bonnie"],
)
def test_a_full_file_system_fails_the_trial_and_is_named(load: str, reason: str, note: str, lab: Laboratory) -> None:
    assert lab.execute(mounted(load)).ending == "failures"
    (record,) = lab.records()
    assert record.status == "failed" and re.match(reason, record.reason or "", re.DOTALL), record.reason
    assert note in record.detail


@pytest.mark.needs("root")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_storm_that_is_interrupted_leaves_nothing(lab: Laboratory, number: signal.Signals) -> None:
    process = lab.start_run(mounted("files = { files = 100000000, size = 0, workers = 2 }", size="512M"))
    wait_for(process, lambda: storms(lab))
    kill(process, number)
    assert ended(process).status == (130 if number == signal.SIGINT else -9)
    assert lab.storlab("clean", lab.out).status == 0


def storms(lab: Laboratory) -> list[Path]:
    """The directories with files of all storms that are on."""
    mounts = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [path for mount in mounts if str(lab.folder) in str(mount) for path in mount.glob("storm-load/w*/d*")]


def test_a_storm_needs_no_more_memory_for_more_files(lab: Laboratory) -> None:
    if sh("stat", "--file-system", "--format=%T", "/dev/shm").strip() != "tmpfs":
        pytest.skip("there is no tmpfs at /dev/shm, and disks take too long for so many files")
    study = directory('files = { files = "{files}", size = 0, phases = ["create", "delete"], end_sync = false }')
    study = study.replace('"directory"', '"directory", path = "/dev/shm"')
    lab.execute(study + "[factors]\nfiles = [1000, 200000]")
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("metric") == "max_rss", pl.col("node").is_null())
    few, many = found.sort("cell")["value"].to_list()
    assert many < few + 2**20


@pytest.mark.needs("guests")
def test_storms_and_bonnie_run_in_guests_and_storms_there_are_fair_or_not(lab: Laboratory) -> None:
    study = guests("", stack=EXT4)
    storm = 'files = { files = 200, workers = 2, fsync = "file", drop_caches = true }\n'
    bonnie = 'on = ["vm"]\nbonnie = { size = "2M", fast = true, seeks = 64, seekers = 2, direct = true, files = 1 }\n'
    study = study[: study.index("command = ")] + storm + "[workload.bonnie]\n" + bonnie
    study = study.replace("trial = {", 'trial = { workloads = ["{load}"],')
    lab.succeed(f'compare = []\n{study}[factors]\nload = ["load", "bonnie"]\n', trials=2)
    found = metrics(lab)
    assert found["create.files"] == 400 and 0.5 <= found["create.rate.fairness"] <= 1
    assert 0 < metrics(lab, "bonnie")["write.block.latency.max"] < 60


@pytest.mark.needs("root", "bonnie++")
def test_on_ext4_it_measures_what_was_asked_for_and_leaves_nothing(lab: Laboratory) -> None:
    load = 'bonnie = { size = "4M", per_character = "2M", files = { number = 1, max = "4k", directories = 2 } }'
    lab.succeed(mounted(load))
    found = metrics(lab)
    assert 1e4 < found["write.char.bandwidth"] < 1e8  # a system call for each byte: never under 500 ms
    assert 0 < found["seek.latency.max"] < found["elapsed"]
    assert 0 < found["random.delete.latency.max"] < found["elapsed"]
    (warning,) = derive(lab.run_folder).warnings()
    assert "which ended in under 500 ms" in say(warning)
    assert found.get("read.char.cpu", 0) > 0 or "read.char" in say(warning), warning


SHARES = sample(__file__, "cases/posix-on-shares.toml")


def outcomes(lab: Laboratory) -> dict[tuple[int, str], tuple[str, str]]:
    """Cell and check → the worst outcome of any node, and its reason."""
    rows = derive(lab.run_folder).frame("checks").select("cell", "check", "outcome", "reason").rows()
    rows.sort(key=lambda row: OUTCOMES.index(row[2]), reverse=True)
    return {(cell, check): (outcome, reason) for cell, check, outcome, reason in rows}


@pytest.mark.needs("root")
def test_on_ext4_everything_is_there_for_a_confined_load_and_nothing_is_left(lab: Laboratory) -> None:
    lab.succeed(mounted("posix = {}"))
    found = outcomes(lab)
    assert {check: said for (_, check), said in found.items() if said[0] == "fail"} == {}
    assert sorted(check for _, check in found) == sorted(CHECKS)
    assert found[1, "rename-exchange"] == found[1, "acl-access"] == found[1, "owners"] == ("pass", "")


@pytest.fixture
def near_lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """One with a short path, as the socket of virtiofsd must have: 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        monkeypatch.setattr(Laboratory, "scratch", property(lambda lab: lab.folder))
        with contextlib.closing(Laboratory(Path(folder))) as made:
            yield made


@pytest.mark.needs("guests")
def test_two_guests_say_what_virtiofs_and_9p_have_and_lack_and_no_trial_fails_for_that(near_lab: Laboratory) -> None:
    lab = near_lab
    lab.succeed(SHARES, trials=2)
    found = outcomes(lab)
    own = ("rename-over-open", "rename-exchange", "mmap-shared-write", "xattr-user", "flock", "fsync")
    assert {check: found[1, check] for check in own} == dict.fromkeys(own, ("pass", ""))
    assert found[2, "mmap-shared-write"] == ("unsupported", "mmap: EINVAL")
    assert found[2, "rename-exchange"] == ("unsupported", "renameat2: EINVAL")
    assert found[2, "rename-over-open"] == ("fail", "fstat of the replaced file gives 1 links, not 0")
    assert found[2, "flock"] == found[2, "fsync"] == ("pass", "")
    for cell in (1, 2):  # what each sees of the other, and the host of both
        assert found[cell, "nodes-create"] == found[cell, "nodes-write-close-open"] == ("pass", "")
        assert found[cell, "nodes-lock-records"][0] == found[cell, "nodes-flock"][0] == "fail"
        assert found[cell, "fsync-reaches-server"][0] == "pass"
    late = "what another node stored and synced is in the mapping not within 3 s"
    assert found[1, "nodes-mmap-load"] == ("fail", late)
    assert found[2, "nodes-mmap-load"] == found[2, "nodes-mmap-read"] == ("unsupported", "mmap: EINVAL")
    assert found[2, "nodes-write-while-open"] == ("pass", "")  # virtiofs: late, by up to a second
    report = lab.storlab("report", lab.run_folder.path)
    assert "Conformance" in report.stdout, str(report)


VERIFY = 'verify = { posix = { checks = ["flock", "fsync"] } }'


def test_a_directory_is_verified_after_its_load_and_the_results_are_the_runs(lab: Laboratory) -> None:
    load = directory('command = { argv = ["touch", "{target}/made-by-the-load"] }', trial=VERIFY)
    lab.execute(load.replace('"elapsed"', '"verify:posix.failed"'))
    (record,) = lab.records()
    assert (record.status, record.loads) == ("done", {"load": ["host"], "verify": ["host"]})
    assert outcomes(lab) == {(1, "flock"): ("pass", ""), (1, "fsync"): ("pass", "")}
    metrics = derive(lab.run_folder).frame("metrics").filter(source="verify")
    counts = {"posix.passed": 2.0, "posix.failed": 0.0, "posix.unsupported": 0.0}
    assert dict(metrics.select("metric", "value").iter_rows()) == counts
    report = lab.storlab("report", lab.run_folder.path).stdout
    assert "Conformance" in report and "2 other checks" in report, report
