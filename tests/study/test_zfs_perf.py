"""The study ``zfs-perf``: its jobs are those of OpenZFS's tests/perf, to the option.

``golden/openzfs-perf.json`` has the options in the suite's ``fio/*.fio``, the same in 2.3.2 and 2.4: their names and
values. Where ``STORLAB_OPENZFS`` names a source tree, its own files are read as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from storlab.study.cells import Cell
from storlab.study.study import Study, load_study, preset_studies
from storlab.workloads.fio.options import sections_of, text
from storlab.workloads.fio.workload import FioWorkload

GOLDEN: Mapping[str, Mapping[str, str]] = json.loads(
    (Path(__file__).parent / "golden" / "openzfs-perf.json").read_text()
)
PRESET = preset_studies()["zfs-perf"]
SOURCES = os.environ.get("STORLAB_OPENZFS", "")
OURS = {"directory"}
"""What Storlab gives fio itself."""
# do_fio_run_impl in perf.shlib gives these names to the suite's variables.
NAMES = {
    "RUNTIME": "180s", "RANDSEED": "1234", "COMPPERCENT": "66", "COMPCHUNK": "4096", "DIRECT": "0", "FILESIZE": "4M",
}  # fmt: skip
SETTINGS = {  # threads, sizes, kinds of I/O: PERF_NTHREADS, PERF_IOSIZES, PERF_SYNC_TYPES of each .ksh
    "sequential_writes": ("16 32", "8k 1m", "0 1"),
    "sequential_reads": ("8 16", "128k 1m", "1"),
    "sequential_reads_arc_cached": ("64 128", "128k", "1"),
    "sequential_reads_arc_cached_clone": ("64 128", "128k", "1"),
    "sequential_reads_dbuf_cached": ("64", "64k", "1"),
    "random_reads": ("16 32", "8k", "1"),
    "random_writes": ("32 128", "8k", "0 1"),
    "random_readwrite": ("32 64", "bssplit", "1"),
    "random_writes_zil": ("1 16 64", "8k", "1"),
    "random_readwrite_fixed": ("64 128", "8k", "0 1"),
}
SCRIPTS = {
    "sequential_reads_arc_cached": "sequential_reads",
    "sequential_reads_arc_cached_clone": "sequential_reads",
    "sequential_reads_dbuf_cached": "sequential_reads",
    "random_writes_zil": "random_writes",
}
"""The job file of a test that is not called as the test."""
NOT_CLEARED = ("cached", "clone", "writes")
"""Tests that don't throw out the ARC: do_fio_run's third argument."""


@cache
def study() -> Study:
    return load_study(PRESET, ["profile=seed"])


def told(test: str) -> tuple[str, str, str, str]:
    name, sync, size, threads = test.split("-")
    return name, "1" if sync == "sync" else "0", size, threads


def job_of(cell: Cell) -> dict[str, str]:
    (load,) = cell.loads
    assert isinstance(load.workload, FioWorkload)
    (job,) = load.workload._jobs()
    return {key: text(value) for key, value in job.options.items()}


def filled(options: Mapping[str, str], test: str) -> dict[str, str]:
    """As fio fills in what the suite exports."""
    _, sync, size, threads = told(test)
    names = {**NAMES, "SYNC_TYPE": sync, "BLOCKSIZE": size, "NUMJOBS": threads}
    return {
        key: names.get(value.removeprefix("${").removesuffix("}"), value)
        for key, value in options.items()
        if key not in OURS
    }


def test_all_settings_of_the_ten_tests_are_cells() -> None:
    wanted = {
        f"{name}-{'sync' if sync == '1' else 'async'}-{size}-{threads}"
        for name, (each, sizes, syncs) in SETTINGS.items()
        for threads in each.split()
        for size in sizes.split()
        for sync in syncs.split()
    }
    assert {cell.levels["test"] for cell in study().cells} == wanted
    by_default = [cell.levels["test"] for cell in load_study(PRESET).cells if cell.levels["layout"] == "stripe"]
    assert sorted(told(test)[0] for test in by_default) == sorted(SETTINGS)


@pytest.mark.parametrize("number", range(32))
def test_a_job_has_the_options_of_the_suite_s_own_and_no_other(number: int) -> None:
    cell = study().cells[number]
    test = cell.levels["test"]
    name = told(test)[0]
    assert job_of(cell) == filled(GOLDEN[SCRIPTS.get(name, name)], test)


@pytest.mark.parametrize("number", range(32))
def test_files_are_laid_out_and_the_arc_is_cleared_as_the_suite_does_it(number: int) -> None:
    cell = study().cells[number]
    name, _, _, _ = told(cell.levels["test"])
    commands = [list(each) for each in cell.trial.prepare]
    if name.endswith(("writes", "zil")):
        assert commands == []
        return
    fio, options = commands[0][0], dict(word.removeprefix("--").split("=", 1) for word in commands[0][1:])
    assert fio == "fio" and options.pop("name") == "job" and options.pop("directory") == "{target}"
    most = max(SETTINGS[name][0].split(), key=int)
    sizes = {options.pop("filesize")}
    assert sizes <= {"4M", "1M", "96k"}
    theirs = {key: value for key, value in GOLDEN["mkfiles"].items() if key not in {*OURS, "filesize"}}
    names = {"${NUMJOBS}": most, "${PERF_RANDSEED}": "1234", "${PERF_COMPPERCENT}": "66", "${PERF_COMPCHUNK}": "4096"}
    if "dbuf" in name:  # whose files are smaller than the suite's blocks
        assert (options.pop("bs"), theirs.pop("bs")) == ("32k", "1024k")
    assert options == {key: names.get(value, value) for key, value in theirs.items()}
    assert (["zinject", "-a"] in commands) is not any(word in name for word in NOT_CLEARED)
    assert not cell.trial.settle.drop_caches


def test_what_is_to_stay_in_caches_is_as_large_as_the_suite_makes_it() -> None:
    parameters = load_study(PRESET).model.parameters
    arc = parameters["arc"]
    assert isinstance(arc, int)
    assert arc // 2 == 128 * 1024**2, "128 files of 1M"
    assert arc // 32 * 3 // 4 == 64 * 96 * 1024, "64 files of 96k"


@pytest.mark.skipif(not SOURCES, reason="STORLAB_OPENZFS names no source tree of OpenZFS")
@pytest.mark.parametrize("name", GOLDEN)
def test_the_options_are_those_of_a_source_tree(name: str) -> None:
    file = Path(SOURCES) / "tests" / "zfs-tests" / "tests" / "perf" / "fio" / f"{name}.fio"
    ((_, options), (job, none)) = sections_of(file.read_text())
    assert (job, none) == ("job", {}) and options == GOLDEN[name]
