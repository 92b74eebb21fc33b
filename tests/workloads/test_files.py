"""The workload files: what may be asked for, what it means in bytes, and what the agent prints of it, as metrics."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.fio.samples import ANY_FOLDER
from storlab.base.errors import CommandFailed, DiskFull, TimedOut
from storlab.base.programs import agent_path
from storlab.measurements import HISTOGRAM_COLUMNS, METRIC_COLUMNS, SERIES_COLUMNS, Measurements
from storlab.nodes.process import ExitRecord
from storlab.records.stacked import across_nodes
from storlab.tools.fio import histogram
from storlab.workloads.files.options import MOST_DIRECTORIES, Directories, declared
from storlab.workloads.files.report import measurements, read_document
from storlab.workloads.files.workload import FilesWorkload
from workloads import DONE, FAILED, KILLED, LIMITED, ended, left

SIZES = st.one_of(
    st.integers(0, 20_000),
    st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)).map(lambda pair: {"min": min(pair), "max": max(pair)}),
    st.builds(
        lambda median, sigma: {"median": median, "sigma": sigma, "max": max(median, 30_000)},
        st.integers(0, 9_000),
        st.floats(0, 3),
    ),
    st.lists(
        st.fixed_dictionaries({"size": st.integers(0, 9_000), "weight": st.floats(0.1, 9)}), min_size=1, max_size=4
    ),
)
STORMS = st.fixed_dictionaries(
    {
        "files": st.integers(5, 60),
        "size": SIZES,
        "directories": st.fixed_dictionaries(
            {
                "depth": st.integers(0, 2),
                "fan_out": st.integers(1, 4),
                "shared": st.booleans(),
                "spread": st.sampled_from(["sequential", "round-robin"]),
            }
        ),
        "workers": st.integers(1, 4),
        "order": st.sampled_from(["same", "random"]),
        "fsync": st.sampled_from([False, True, "none", "data", "file", "directory"]),
        "end_sync": st.just(False),  # it would wait for all that others write
        "block_size": st.sampled_from([8, 4096, 65536]),
        "round_to": st.sampled_from([None, 1, 512, 4096]),
    }
)


def files(**keys: Any) -> FilesWorkload:
    return FilesWorkload.model_validate({"files": 1000, **keys})


def phases_of(workload: FilesWorkload, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
    """What the agent says of each phase."""
    spec = folder / "spec.json"
    spec.write_text(json.dumps(workload.spec(str(folder / "storm"), seed)))
    ran = subprocess.run([agent_path(), "files", spec], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return {phase["phase"]: phase for phase in json.loads(ran.stdout)["phases"]}


@settings(ANY_FOLDER, max_examples=60)
@given(STORMS, st.integers(0, 2**63 - 1))
def test_whatever_a_study_may_say_the_agent_does(tmp_path: Path, keys: dict[str, Any], seed: int) -> None:
    workload = files(**keys)
    phases = phases_of(workload, tmp_path, seed)
    assert phases["delete"]["files"] == workload.files
    assert phases["mkdir"]["files"] == workload.directories.count(workload.workers)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.json"]


def test_it_lasts_as_long_as_the_machine_takes_and_its_space_is_what_is_written() -> None:
    for size, mean in (
        ("4k", 4096),
        ({"exactly": "4k"}, 4096),
        ({"min": "1k", "max": "3k"}, 2048),
        ([{"size": "1k", "weight": 3}, {"size": "5k", "weight": 1}], 2048),
        ({"median": 1000, "sigma": 0}, 1000),
        ({"median": 1000, "sigma": 1.0}, pytest.approx(1000 * 2.718281828**0.5)),
    ):
        assert files(size=size).size.mean() == mean
    for keys, space in (
        ({}, 1000 * 4096),
        ({"size": 1}, 1000),
        ({"size": 0}, 0),
        ({"files": 10**9, "size": "1M"}, 10**9 * 2**20),
        ({"files": 10**9, "phase_limit": "1s"}, 0),
    ):
        assert files(**keys).space() == space
    assert files().duration(0.0) is None and not files().needs().root and files(drop_caches=True).needs().root
    assert [files(fsync=fsync).fsync for fsync in (False, True)] == ["none", "file"]
    assert files(directories={"depth": 1, "fan_out": MOST_DIRECTORIES, "shared": True}).directories


def test_the_mean_of_a_lognormal_distribution_is_that_of_the_files_really_made(tmp_path: Path) -> None:
    for size in (
        {"median": 4000, "sigma": 1.0, "max": "1M"},
        {"median": 4000, "sigma": 1.0, "min": 3000, "max": 5000},
        {"median": 4000, "sigma": 2.0, "min": 4000, "max": "32k"},
    ):
        workload = files(files=3000, size=size, phases=["create", "delete"], end_sync=False)
        assert workload.space() == pytest.approx(phases_of(workload, tmp_path, 1)["create"]["bytes"], rel=0.1)


@given(st.integers(0, 3), st.integers(1, 20), st.booleans(), st.integers(1, 5))
def test_directories_are_counted_level_by_level(depth: int, fan_out: int, shared: bool, workers: int) -> None:
    counted = Directories(depth=depth, fan_out=fan_out, shared=shared).count(workers)
    below = sum(fan_out**level for level in range(1, depth + 1))
    assert counted == (below if shared else (1 + below) * workers)


GOLDEN = Path(__file__).parent / "golden"


def golden(name: str = "files.json") -> bytes:
    return (GOLDEN / name).read_bytes()


def values(measured: Measurements, job: str | None = None) -> dict[str, float]:
    rows = measured.metrics.select("job", "metric", "value").iter_rows()
    return {metric: value for of, metric, value in rows if of == job}


def parsed(tmp_path: Path, stdout: bytes, record: ExitRecord = DONE, stderr: bytes = b"") -> Measurements:
    return files().parse(left(tmp_path, record, stdout=stdout, stderr=stderr))


def test_metrics_are_those_of_the_golden_file_in_their_columns_with_bins_of_fio(tmp_path: Path) -> None:
    lines = [
        f"{metric}{f' [{job}]' if job else ''} {value:.6g} {unit} {better} {across}"
        for job, metric, value, unit, better, across in parsed(tmp_path, golden()).metrics.iter_rows()
    ]
    assert lines == (GOLDEN / "files.metrics").read_text().splitlines()
    measured = parsed(tmp_path, golden())
    assert (dict(measured.metrics.schema), dict(measured.series.schema)) == (METRIC_COLUMNS, SERIES_COLUMNS)
    assert dict(measured.histograms.schema) == HISTOGRAM_COLUMNS
    edges = set(zip(histogram.LOWER.tolist(), histogram.UPPER.tolist(), strict=True))
    assert set(measured.histograms.select("lower", "upper").iter_rows()) <= edges


def test_a_durable_file_is_dearer_than_one_that_is_only_created_and_parts_of_a_creation_add_up_to_it() -> None:
    found = values(measurements(read_document(golden(), "x")))
    assert found["durable.rate"] == pytest.approx(300 / (found["create.time"] + found["create.syncfs.time"]))
    assert found["write.bandwidth"] == pytest.approx(found["write.bytes"] / found["create.time"])
    assert found["write.bytes"] == found["read.bytes"]
    parts = ("open", "write", "sync", "sync-directory", "close")
    total = sum(found[f"{part}.latency.mean"] * found[f"{part}.ios"] for part in parts)
    assert total == pytest.approx(found["create.latency.mean"] * found["create.files"])


def test_two_nodes_are_added_and_a_rate_is_over_the_slot_that_ends_at_its_time() -> None:
    one = replace(measurements(read_document(golden(), "x")), declared=declared())
    together = dict(across_nodes([one, one]).select("metric", "value").iter_rows())
    alone = values(one)
    assert together["create.rate"] == pytest.approx(2 * alone["create.rate"])
    for same in ("create.latency.p99", "create.latency.mean", "write.latency.mean", "create.time", "stat.latency.max"):
        assert together[same] == pytest.approx(alone[same]), same
    assert together["create.rate.fairness"] == 1
    # Of the last slot it is not known how long it was.
    found = measurements(read_document(golden(), "x")).series
    assert (set(found["metric"]), found["value"].to_list()) == ({"create.rate"}, [97 / 0.2, 157 / 0.2])
    assert found["t"].to_list() == pytest.approx([0.208224712, 0.408224712])


def test_what_ends_at_a_limit_is_a_warning_and_an_end_without_a_document_an_error(tmp_path: Path) -> None:
    document = json.loads(golden())
    document["phases"][1]["limited"] = True
    measured = parsed(tmp_path, json.dumps(document).encode())
    assert measured.warnings == ("create was ended at its limit of time, after 300 files",)
    (tmp_path / "notes").write_text("it is full moon\n")
    assert parsed(tmp_path, golden()).warnings == ("it is full moon",)
    with pytest.raises(TimedOut, match="stopped at the time-out"):
        parsed(tmp_path, b"", LIMITED)
    with pytest.raises(CommandFailed, match="ended with SIGKILL: no message"):
        parsed(tmp_path, b"", KILLED)
    with pytest.raises(CommandFailed, match="status 2: storlab-agent: what"):
        parsed(tmp_path, b"", ended(2), b"storlab-agent: what\n")


def test_a_full_file_system_and_other_errors_are_told_with_path_and_cause(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=r"files: create: \w+ /tmp/full/storm/w\d/d\d/f\d+: no space .*ENOSPC"):
        parsed(tmp_path, golden("files-full.json"), FAILED)
    document = json.loads(golden("files-full.json"))
    document["error"]["errno"] = "EIO"
    with pytest.raises(CommandFailed, match=r"files: create: .*: EIO"):
        parsed(tmp_path, json.dumps(document).encode(), FAILED)
    del document["error"]["errno"]
    document["error"]["mismatch"] = "byte 7 is not what was written there"
    with pytest.raises(CommandFailed, match=r"f\d+: byte 7 is not"):
        parsed(tmp_path, json.dumps(document).encode(), FAILED)
