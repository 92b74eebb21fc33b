"""Where disks are made: here where this machine has all that they need, else on a guest that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from storlab.layers.loop import LoopLayer
from storlab.layers.nbd_export import NbdExportLayer
from storlab.layers.virtio_blk import VirtioBlkLayer
from storlab.nodes.local import local_node
from storlab.run.assembly import shared_layers
from storlab.run.placement import Placed, on_storage, place
from storlab.study.cells import Cell
from storlab.study.study import Study, load_study, parse_study, shipped_studies

HEAD = b"""
title = "placement"
[workload.w]
command = { argv = ["true"] }
[nodes.vm]
kind = "vm"
disk_on = "storage"
"""


def _study(rest: bytes) -> Study:
    return parse_study(HEAD + rest, "study.toml", lambda name: "")


def _place(study: Study) -> Placed:
    async def look() -> Placed:
        async with local_node("host") as host:
            return await place(study, host)

    return asyncio.run(look())


def _names(cell: Cell, group: str) -> list[str]:
    return [layer.layer for layer in cell.disks[group].layers]


def _vm_backing(only: Sequence[str] = ()) -> Study:
    return load_study(shipped_studies()["vm-backing"], only=only)


@pytest.fixture
def without_zfs() -> None:
    with open("/proc/filesystems") as filesystems:  # noqa: PTH123
        if "zfs" in filesystems.read():
            pytest.skip("this machine has ZFS itself")


@pytest.mark.usefixtures("without_zfs")
def test_disks_that_this_machine_can_not_make_are_made_on_a_guest_and_served_over_nbd() -> None:
    placed = _place(_vm_backing())
    for cell in placed.study.cells:
        assert cell.nodes["storage"].kind == "vm"
        assert _names(cell, "vm")[-2:] == ["nbd-export", "virtio-blk"]
        assert _names(cell, "storage") == ["file", "virtio-blk"]
    (note,) = placed.notes
    assert note.startswith("storage: the disks are made on a virtual machine and served over NBD, since ")
    assert "zfs" in note


@pytest.mark.usefixtures("without_zfs")
def test_one_level_that_needs_the_guest_takes_all_the_others_there() -> None:
    """A disk that was made here, beside one that was made in a guest, would tell the places apart, not the disks."""
    placed = _place(_vm_backing(only=["backing=raw-file,zvol-clone"]))
    assert {cell.nodes["storage"].kind for cell in placed.study.cells} == {"vm"}


@pytest.mark.root
def test_disks_that_this_machine_can_make_are_made_here_and_used_directly() -> None:
    placed = _place(_vm_backing(only=["backing=raw-file,qcow2-clone"]))
    for cell in placed.study.cells:
        assert cell.nodes["storage"].kind == "local"
        assert "storage" not in cell.disks
        assert [layer.layer for layer in cell.stacks["storage"]] == ["file", "loop"], "a file becomes a disk by a loop"
        assert isinstance(cell.stacks["storage"][-1], LoopLayer)
        assert _names(cell, "vm")[-2:] in (["image-copy", "virtio-blk"], ["image-clone", "virtio-blk"])
    assert placed.notes == ("storage: the disks are made on this machine, which has all that they need",)


def test_the_server_of_a_disk_has_the_cache_mode_that_its_attachment_asks_for() -> None:
    placed = _place(
        _study(
            b"""
            disk = [{ layer = "file", size = "64M" }, { layer = "virtio-blk", cache = "writethrough" }]
            [nodes.storage]
            kind = "vm"
            disk = { layer = "file", size = "1G" }
            stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
            """
        )
    )
    export, attachment = placed.study.cells[0].disks["vm"].layers[-2:]
    assert isinstance(export, NbdExportLayer) and isinstance(attachment, VirtioBlkLayer)
    assert export.cache == attachment.cache == "writethrough"


def test_an_export_that_the_study_writes_itself_is_left_as_it_is() -> None:
    placed = _place(
        _study(
            b"""
            disk = [{ layer = "file", size = "64M" }, { layer = "nbd-export", cache = "unsafe" }]
            [nodes.storage]
            kind = "vm"
            disk = { layer = "file", size = "1G" }
            stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
            """
        )
    )
    assert _names(placed.study.cells[0], "vm") == ["file", "nbd-export", "virtio-blk"]
    export = placed.study.cells[0].disks["vm"].layers[1]
    assert isinstance(export, NbdExportLayer) and export.cache == "unsafe"


@pytest.mark.parametrize(
    ("backing", "shared"),
    [
        ("zvol-clone", ["zpool"]),
        ("file-on-zfs", ["zpool", "zfs"]),
        ("raw-file", ["mkfs", "mount"]),
        ("qcow2-clone", ["mkfs", "mount"]),
    ],
)
def test_pools_and_directories_stand_once_for_all_guests_and_disks_once_for_each(
    backing: str, shared: list[str]
) -> None:
    cell = _vm_backing(only=[f"backing={backing}", "bs=4k"]).cells[0]
    layers = on_storage(cell.disks["vm"])
    assert [layer.layer for layer in layers[: shared_layers(layers)]] == shared
