"""The workload files: what may be asked for, and what it means in bytes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storlab.nodes.agent.binary import agent_path
from storlab.workloads.files.options import MOST_DIRECTORIES, Directories
from storlab.workloads.files.workload import FilesWorkload

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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STORMS, st.integers(0, 2**63 - 1))
def test_whatever_a_study_may_say_the_agent_does(tmp_path: Path, keys: dict[str, Any], seed: int) -> None:
    workload = files(**keys)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(workload.spec(str(tmp_path / "storm"), seed)))
    ended = subprocess.run([agent_path(), "files", spec], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    phases = {phase["phase"]: phase for phase in json.loads(ended.stdout)["phases"]}
    assert phases["delete"]["files"] == workload.files
    assert phases["mkdir"]["files"] == workload.directories.count(workload.workers)
    assert list(tmp_path.iterdir()) == [spec]


@pytest.mark.parametrize(
    ("size", "mean"),
    [
        ("4k", 4096),
        ({"exactly": "4k"}, 4096),
        ({"min": "1k", "max": "3k"}, 2048),
        ([{"size": "1k", "weight": 3}, {"size": "5k", "weight": 1}], 2048),
        ({"median": 1000, "sigma": 0}, 1000),
        ({"median": 1000, "sigma": 1.0}, pytest.approx(1000 * 2.718281828**0.5)),
    ],
)
def test_the_mean_of_sizes_is_known(size: Any, mean: float) -> None:
    assert files(size=size).size.mean() == mean


@pytest.mark.parametrize(
    ("keys", "space"),
    [
        ({}, 1000 * 4096),
        ({"size": 1}, 1000),
        ({"size": 0}, 0),
        ({"files": 10**9, "size": "1M"}, 10**9 * 2**20),
        ({"files": 10**9, "phase_limit": "1s"}, 0),
    ],
)
def test_the_space_is_what_is_written(keys: dict[str, Any], space: int) -> None:
    assert files(**keys).space() == space


@pytest.mark.parametrize(
    "size",
    [
        {"median": 4000, "sigma": 1.0, "max": "1M"},
        {"median": 4000, "sigma": 1.0, "min": 3000, "max": 5000},
        {"median": 4000, "sigma": 2.0, "min": 4000, "max": "32k"},
    ],
)
def test_the_mean_of_a_lognormal_distribution_is_that_of_the_files_really_made(
    tmp_path: Path, size: dict[str, Any]
) -> None:
    workload = files(files=3000, size=size, phases=["create"], end_sync=False)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(workload.spec(str(tmp_path / "storm"), 1)))
    ended = subprocess.run([agent_path(), "files", spec], capture_output=True, check=True)
    made = {phase["phase"]: phase["bytes"] for phase in json.loads(ended.stdout)["phases"]}["create"]
    assert workload.space() == pytest.approx(made, rel=0.1)


def test_it_lasts_as_long_as_the_machine_takes_and_needs_root_for_the_caches_alone() -> None:
    assert files().duration(0.0) is None
    assert not files().needs().root
    assert files(drop_caches=True).needs().root


def test_true_and_false_stand_for_the_file_and_nothing() -> None:
    assert [files(fsync=fsync).fsync for fsync in (False, True)] == ["none", "file"]


@given(st.integers(0, 3), st.integers(1, 20), st.booleans(), st.integers(1, 5))
def test_directories_are_counted_level_by_level(depth: int, fan_out: int, shared: bool, workers: int) -> None:
    counted = Directories(depth=depth, fan_out=fan_out, shared=shared).count(workers)
    below = sum(fan_out**level for level in range(1, depth + 1))
    assert counted == (below if shared else (1 + below) * workers)


def test_a_tree_of_the_most_directories_is_taken() -> None:
    assert files(directories={"depth": 1, "fan_out": MOST_DIRECTORIES, "shared": True}).directories
