"""Studies of ZFS that ship, their cells and what is refused.

``zfs-allocators`` with each profile, --set and --only; ``zfs-perf``, whose jobs are those of OpenZFS's tests/perf, to
the option; and ``zfs-versions`` and ``zfs-async-dio``: builds of ZFS of one's own, as cells.

``golden/openzfs-perf.json`` has the options in the suite's ``fio/*.fio``, the same in 2.3.2 and 2.4: their names and
values. Where ``STORLAB_OPENZFS`` names a source tree, its own files are read as well.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from laboratory.samples import sample
from laboratory.studies import parsed
from storlab.base.errors import StudyError
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.nodes.needs import untraceable
from storlab.probes.locks.metrics import group_of
from storlab.probes.locks.probe import LocksProbe
from storlab.run.planning.checks import group_needs
from storlab.run.planning.metrics import metrics_of_study, refuse_unknown_metrics
from storlab.study.cells import Cell
from storlab.study.study import Study, find_study, load_study, preset_studies
from storlab.workloads.fio.options import sections_of, text
from storlab.workloads.fio.workload import FioWorkload

NAME = "zfs-allocators"


def allocators(*overrides: str, only: tuple[str, ...] = ()) -> Study:
    return load_study(find_study(NAME), overrides, only)


def pool_of(cell: Cell) -> ZpoolLayer:
    (pool,) = [layer for chain in cell.chains for layer in chain.layers if isinstance(layer, ZpoolLayer)]
    return pool


def fio_of(cell: Cell) -> dict[str, object]:
    (load,) = cell.loads
    return dict(load.workload.__pydantic_extra__ or {})


def disks_of(cell: Cell) -> int:
    return next(chain.count for chain in cell.chains if chain.name == "d")


def test_by_default_it_asks_about_one_allocator_or_four_by_threads() -> None:
    cells = allocators().cells
    asked = {(c.levels["allocators"], c.levels["threads"], c.levels["sync"]) for c in cells}
    assert asked == {(a, t, "async") for a in "14" for t in "28"} and len(cells) == 4
    for cell in cells:
        module = {"spa_num_allocators": int(cell.levels["allocators"]), "spa_cpus_per_allocator": 1}
        assert pool_of(cell).module == module and disks_of(cell) == 4 and fio_of(cell)["sync"] is False
        assert (cell.nodes["vm"].cpus, cell.nodes["vm"].sockets) == (4, 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("profile", "cells", "load", "threads", "bs", "cpus"),
    [
        ("seed", 12, "sequential", {"1", "8", "32"}, "128k", 24),
        ("overwrite", 2, "overwrite", {"12"}, "32k", 64),
        ("random", 2, "random", {"12"}, "4k", 64),
        ("zvols", 4, "random", {"12"}, "16k", 64),
    ],
)
def test_a_profile_is_the_load_that_was_published(
    profile: str, cells: int, load: str, threads: set[str], bs: str, cpus: int
) -> None:
    found = allocators(f"profile={profile}").cells
    assert len(found) == cells and {cell.levels["threads"] for cell in found} == threads
    assert {cell.loads[0].name for cell in found} == {load} and {fio_of(cell)["bs"] for cell in found} == {bs}
    assert {cell.nodes["vm"].cpus for cell in found} == {cpus}  # type: ignore[attr-defined]
    assert {disks_of(cell) for cell in found} == {8}
    assert all(fio_of(cell)["sync"] is (cell.levels["sync"] == "sync") for cell in found)


def test_only_takes_levels_that_are_not_run_by_default() -> None:
    found = allocators(only=("place=zvols", "fill=almost-full", "threads=8")).cells
    assert {(cell.levels["place"], cell.levels["fill"]) for cell in found} == {("zvols", "almost-full")}
    assert all(fio_of(cell)["direct"] is True and fio_of(cell)["filename_format"] == "$jobnum" for cell in found)
    (each,) = {str(fio_of(cell)["filename_format"]) for cell in allocators(only=("place=a-file-system-each",)).cells}
    assert each == "$jobnum/data"


def test_set_takes_any_other_tunable_and_any_number_of_allocators_and_the_seeds_guest_has_two_nodes() -> None:
    found = allocators("nodes.vm.stack.0.module.zfs_active_allocator=cursor", "spa_num_allocators=[1, 2, 4, 8]").cells
    assert len(found) == 8
    assert all(pool_of(cell).module["zfs_active_allocator"] == "cursor" for cell in found)
    guest = allocators("profile=seed").cells[0].nodes["vm"]
    assert (guest.sockets, guest.numa_nodes, guest.is_copied) == (2, 2, False)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "group"),
    [  # as callers of tracepoints in a guest, and as in OpenZFS 2.3.2
        ("metaslab_alloc_dva", "metaslab"), ("zio_dva_throttle", "metaslab"),
        ("zio_allocate_dispatch", "metaslab"), ("vdev_queue_io", "vdev-queue"),
        ("dsl_dir_willuse_space", "dsl"), ("dsl_pool_dirty_space", "dsl"), ("dmu_tx_delay", "dsl"),
        ("dmu_tx_hold_write", "dmu"), ("zil_itx_assign", "zil"), ("zfs_rangelock_enter_impl", "other"),
        ("vfs_write", None),
    ],
)  # fmt: skip
def test_waits_are_added_up_by_the_locks_that_functions_of_zfs_take(function: str, group: str | None) -> None:
    probe = allocators().cells[0].probes["locks"]
    assert isinstance(probe, LocksProbe) and group_of(function, probe.groups) == group


@pytest.mark.parametrize("profile", ["", "seed", "overwrite", "random", "zvols"])
def test_its_claims_ask_only_for_what_its_loads_and_probes_yield(profile: str) -> None:
    found = allocators(*([f"profile={profile}"] if profile else []))
    refuse_unknown_metrics(found)
    asked = {claim.metric for claim in found.model.claim if claim.metric and "locks" in claim.metric}
    shares = {f"probe:locks:{name}" for name in ("waits-share.dsl", "waits-share.metaslab", "wait-time-share.dsl")}
    assert asked == {*shares, "probe:locks:waits-per-operation.metaslab"}
    # Emulated, another caller may lead than on the machines that the claims are about.
    assert {claim.metric for claim in found.model.claim if claim.native} >= shares


def test_probes_ask_of_the_guests_kernel_what_its_release_tells_before_anything_boots(tmp_path: Path) -> None:
    needs = group_needs(allocators().cells[0], "vm")
    assert {"locks", "profile"} <= set(needs.agent)
    packed = tmp_path / "vmlinuz"  # whose types can't be read
    packed.write_bytes(b"MZ" + bytes(4096))
    assert untraceable(packed, "5.15.0-9-amd64", needs) and not untraceable(packed, "6.12.41+deb13-amd64", needs)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("spa_num_allocators=[1, 0]", "spa_num_allocators = 0 is out of range: write a whole number from 1 to"),
        ("nodes.vm.stack.0.module.Spa-x=1", '"Spa-x" is not among parameters of ZFS'),
        ("nodes.vm.stack.0.module.zio_dva_throttle_enabled=3", "zio_dva_throttle_enabled = 3 is out of range"),
        ("disk_counts=[65]", "at most 64"),
        ("nodes.vm.sockets=3", "sockets = 3 does not divide cpus = 4 evenly: write a divisor of it"),
        ("nodes.vm.numa_nodes=5", "numa_nodes = 5 is more than cpus = 4: each node needs a CPU"),
        ("probes.locks.groups.zil=zil", "probes.locks.groups.zil"),
        ("profile=sead", "unknown profile 'sead'"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_runs(override: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        allocators(override)


MANY = sample(__file__, "cases/many-disks.toml")


def test_more_disks_than_a_guest_has_room_for_are_refused() -> None:
    with pytest.raises(StudyError, match=r"121 disks and shares are more than the 120 devices that a virtual machine"):
        parsed(MANY)
    assert parsed(MANY.replace("57", "56")).cells


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
    "sequential_writes": ("16 32", "8k 1m", "0 1"), "sequential_reads": ("8 16", "128k 1m", "1"),
    "sequential_reads_arc_cached": ("64 128", "128k", "1"),
    "sequential_reads_arc_cached_clone": ("64 128", "128k", "1"),
    "sequential_reads_dbuf_cached": ("64", "64k", "1"), "random_reads": ("16 32", "8k", "1"),
    "random_writes": ("32 128", "8k", "0 1"), "random_readwrite": ("32 64", "bssplit", "1"),
    "random_writes_zil": ("1 16 64", "8k", "1"), "random_readwrite_fixed": ("64 128", "8k", "0 1"),
}  # fmt: skip
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
def openzfs_perf() -> Study:
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
    assert {cell.levels["test"] for cell in openzfs_perf().cells} == wanted
    by_default = [cell.levels["test"] for cell in load_study(PRESET).cells if cell.levels["layout"] == "stripe"]
    assert sorted(told(test)[0] for test in by_default) == sorted(SETTINGS)


def test_over_nfs_another_guest_has_the_pool_and_its_disks() -> None:
    chosen = ["layout=stripe", "test=random_writes-async-8k-32"]
    here, there = load_study(PRESET, ['places=["dataset", "nfs"]'], chosen).cells
    assert {*here.nodes} == {"vm"} and {*there.nodes} == {"vm", "server"}
    for cell, group in ((here, "vm"), (there, "server")):
        chain = cell.chain("vm")
        assert chain is not None and chain.links[0].layer.chains() == ("d",)
        assert chain.stands_on(chain.links[0]) == group and cell.chain(group, "d")
    with pytest.raises(StudyError, match="zpool is set up on server, and the chain d ends on the nodes vm"):
        load_study(PRESET, ['places=["nfs"]', "nodes.server.extra={}"], chosen)


@pytest.mark.parametrize("number", range(32))
def test_a_job_has_the_options_of_the_suite_s_own_and_no_other(number: int) -> None:
    cell = openzfs_perf().cells[number]
    test = cell.levels["test"]
    name = told(test)[0]
    assert job_of(cell) == filled(GOLDEN[SCRIPTS.get(name, name)], test)


@pytest.mark.parametrize("number", range(32))
def test_files_are_laid_out_and_the_arc_is_cleared_as_the_suite_does_it(number: int) -> None:
    cell = openzfs_perf().cells[number]
    name, _, _, _ = told(cell.levels["test"])
    commands = [list(each) for each in cell.trial.prepare]
    if name.endswith(("writes", "zil")):
        assert commands == [] and not cell.trial.settle.drop_caches
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
    assert cell.trial.settle.drop_caches is not any(word in name for word in NOT_CLEARED)
    assert ZpoolLayer.drop == ("zinject", "-a")


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


VERSIONS, ASYNC = (preset_studies()[name] for name in ("zfs-versions", "zfs-async-dio"))


def guest_of(cell: Cell) -> VmKind:
    spec = cell.nodes["vm"].spec()
    assert isinstance(spec, VmKind)
    return spec


@pytest.mark.parametrize("settings", [(), ("profile=full",)])
def test_versions_differ_in_their_tree_and_in_nothing_else(settings: tuple[str, ...]) -> None:
    cells = load_study(VERSIONS, ["old=/srv/zfs-2.2.8", "new=/srv/zfs-2.3.4", *settings]).cells
    assert len(cells) == 16
    trees = {"old": "/srv/zfs-2.2.8", "new": "/srv/zfs-2.3.4"}
    of: dict[str, list[tuple[object, ...]]] = {}
    for cell in cells:
        spec = guest_of(cell)
        assert spec.zfs_tree == trees[cell.levels["version"]]
        same = spec.model_copy(update={"zfs_tree": None}), cell.chains[-1].layers, fio_of(cell)
        of.setdefault(cell.levels["version"], []).append(same)
    assert of["old"] == of["new"]


def test_each_way_to_write_and_read_is_with_and_without_direct_io_and_compression() -> None:
    for cell in load_study(VERSIONS).cells:
        fio, levels = fio_of(cell), cell.levels
        assert (fio["rw"], fio["direct"]) == (levels["load"], levels["access"] == "direct")


def test_asynchronous_requests_are_a_parameter_of_one_tree() -> None:
    cells = load_study(ASYNC, ["tree=/srv/zfs"]).cells
    assert {guest_of(cell).zfs_tree for cell in cells} == {"/srv/zfs"} and len(cells) == 8
    for cell in cells:
        assert pool_of(cell).module == {
            "zfs_dio_enabled": 1,
            "zfs_async_dio_enabled": int(cell.levels["async"] == "on"),
        }
        assert (fio_of(cell)["direct"], str(fio_of(cell)["iodepth"])) == (True, cell.levels["depth"])


@pytest.mark.parametrize("path", [VERSIONS, ASYNC])
def test_their_claims_are_about_what_they_measure(path: Path) -> None:
    study = load_study(path)
    refuse_unknown_metrics(study)
    assert all(claim.native or claim.at for claim in study.model.claim) and study.model.claim
    assert {"probe:locks", "probe:profile", "probe:zfs"} <= set(metrics_of_study(study))


def test_a_claim_by_a_group_of_locks_that_nobody_declared_is_refused() -> None:
    study = load_study(ASYNC, ['claim.2.metric="probe:locks:waits.metaslab"'])
    with pytest.raises(StudyError, match=r"unknown metric 'probe:locks:waits\.metaslab'"):
        refuse_unknown_metrics(study)
