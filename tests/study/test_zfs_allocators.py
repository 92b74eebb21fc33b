"""The study ``zfs-allocators``: its cells with each profile, what --set and --only choose, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.errors import StudyError
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.locks.groups import group_of
from storlab.nodes.needs import untraceable
from storlab.probes.locks import LocksProbe
from storlab.run.planning.checks import group_needs
from storlab.run.planning.metrics import refuse_unknown_metrics
from storlab.study.cells import Cell
from storlab.study.study import Study, find_study, load_study

NAME = "zfs-allocators"


def study(*overrides: str, only: tuple[str, ...] = ()) -> Study:
    return load_study(find_study(NAME), overrides, only)


def pool_of(cell: Cell) -> ZpoolLayer:
    (pool,) = [layer for chain in cell.chains for layer in chain.layers if isinstance(layer, ZpoolLayer)]
    return pool


def fio_of(cell: Cell) -> dict[str, object]:
    (load,) = cell.loads
    return dict(load.workload.__pydantic_extra__ or {})


def disks_of(cell: Cell) -> int:
    return next(chain.count for chain in cell.chains if chain.name == "d")


def test_by_default_it_asks_about_one_allocator_or_four_by_threads_and_by_kind_of_write() -> None:
    cells = study().cells
    asked = {(c.levels["allocators"], c.levels["threads"], c.levels["sync"]) for c in cells}
    assert asked == {(a, t, s) for a in "14" for t in "28" for s in ("async", "sync")} and len(cells) == 8
    for cell in cells:
        module = {"spa_num_allocators": int(cell.levels["allocators"]), "spa_cpus_per_allocator": 1}
        assert pool_of(cell).module == module and disks_of(cell) == 4
        assert fio_of(cell)["sync"] is (cell.levels["sync"] == "sync")
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
    found = study(f"profile={profile}").cells
    assert len(found) == cells and {cell.levels["threads"] for cell in found} == threads
    assert {cell.loads[0].name for cell in found} == {load} and {fio_of(cell)["bs"] for cell in found} == {bs}
    assert {cell.nodes["vm"].cpus for cell in found} == {cpus}  # type: ignore[attr-defined]
    assert {disks_of(cell) for cell in found} == {8}


def test_the_seeds_guest_has_two_nodes_and_is_booted_each_time() -> None:
    guest = study("profile=seed").cells[0].nodes["vm"]
    assert (guest.sockets, guest.numa_nodes, guest.is_copied) == (2, 2, False)  # type: ignore[attr-defined]


def test_only_takes_levels_that_are_not_run_by_default() -> None:
    found = study(only=("place=zvols", "fill=almost-full", "threads=8")).cells
    assert {(cell.levels["place"], cell.levels["fill"]) for cell in found} == {("zvols", "almost-full")}
    assert all(fio_of(cell)["direct"] is True and fio_of(cell)["filename_format"] == "$jobnum" for cell in found)
    (each,) = {str(fio_of(cell)["filename_format"]) for cell in study(only=("place=a-file-system-each",)).cells}
    assert each == "$jobnum/data"


def test_set_takes_any_other_tunable_and_any_number_of_allocators() -> None:
    found = study("nodes.vm.stack.0.module.zfs_active_allocator=cursor", "spa_num_allocators=[1, 2, 4, 8]").cells
    assert len(found) == 16
    assert all(pool_of(cell).module["zfs_active_allocator"] == "cursor" for cell in found)


@pytest.mark.parametrize(
    ("function", "group"),
    [  # as callers of tracepoints in a guest, and as in OpenZFS 2.3.2
        ("metaslab_alloc_dva", "metaslab"),
        ("zio_dva_throttle", "metaslab"),
        ("zio_allocate_dispatch", "metaslab"),
        ("vdev_queue_io", "vdev-queue"),
        ("dsl_dir_willuse_space", "dsl"),
        ("dsl_pool_dirty_space", "dsl"),
        ("dmu_tx_delay", "dsl"),
        ("dmu_tx_hold_write", "dmu"),
        ("zil_itx_assign", "zil"),
        ("zfs_rangelock_enter_impl", "other"),
        ("vfs_write", None),
    ],
)
def test_waits_are_added_up_by_the_locks_that_functions_of_zfs_take(function: str, group: str | None) -> None:
    probe = study().cells[0].probes["locks"]
    assert isinstance(probe, LocksProbe) and group_of(function, probe.groups) == group


@pytest.mark.parametrize("profile", ["", "seed", "overwrite", "random", "zvols"])
def test_its_claims_ask_only_for_what_its_loads_and_probes_yield(profile: str) -> None:
    found = study(*([f"profile={profile}"] if profile else []))
    refuse_unknown_metrics(found)
    asked = {claim.metric for claim in found.model.claim if claim.metric and "locks" in claim.metric}
    shares = {f"probe:locks:{name}" for name in ("waits-share.dsl", "waits-share.metaslab", "wait-time-share.dsl")}
    assert asked == {*shares, "probe:locks:waits-per-operation.metaslab"}


def test_probes_ask_of_the_guests_kernel_what_its_release_tells_before_anything_boots(tmp_path: Path) -> None:
    needs = group_needs(study().cells[0], "vm")
    assert {"locks", "profile"} <= set(needs.agent)
    packed = tmp_path / "vmlinuz"  # whose types can't be read
    packed.write_bytes(b"MZ" + bytes(4096))
    assert untraceable(packed, "5.15.0-9-amd64", needs) and not untraceable(packed, "6.12.41+deb13-amd64", needs)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("spa_num_allocators=[1, 0]", "spa_num_allocators = 0 is out of range: write a whole number from 1 to"),
        ("nodes.vm.stack.0.module.Spa-x=1", "module: Spa-x is not a valid name of a parameter"),
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
        study(override)


MANY = """
title = "t"
[nodes.vm]
kind = "vm"
stack = [{ layer = "zpool", vdevs = ["a", "b"] }, { layer = "zfs" }]
extra.a = { count = 64, stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }] }
extra.b = { count = 57, stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }] }
[workload.w]
fio = { rw = "write", size = "1M" }
"""


def test_more_disks_than_a_guest_has_room_for_are_refused() -> None:
    from storlab.study.study import parse_study

    def read(name: str) -> str:
        raise AssertionError(name)

    with pytest.raises(StudyError, match=r"121 disks and shares are more than the 120 devices that a virtual machine"):
        parse_study(MANY.encode(), "many.toml", read)
    assert parse_study(MANY.replace("57", "56").encode(), "many.toml", read).cells
