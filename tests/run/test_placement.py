"""Where disks are made: here where this machine has all that they need, else on a guest that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from storlab.errors import StudyError
from storlab.nodes.kinds.local import local_node
from storlab.run.setup.placement import place
from storlab.run.setup.units import layers_on
from storlab.study.cells import Cell
from storlab.study.study import Study, load_study, parse_study, shipped_studies


def _place(study: Study) -> Study:
    async def look() -> Study:
        async with local_node("host") as host:
            return await place(study, host)

    return asyncio.run(look())


def _names(cell: Cell, group: str) -> list[str]:
    chain = cell.chain(group)
    assert chain is not None
    return [link.layer.layer for link in chain.links]


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
    for cell in placed.cells:
        assert cell.nodes["storage"].kind == "vm"
        assert _names(cell, "vm")[-4:] == ["nbd-export", "virtio-blk", "mkfs", "mount"]
        assert _names(cell, "storage") == ["file", "virtio-blk"]
    (note,) = placed.notes
    assert note.startswith("storage: the disks are made on a virtual machine and served over NBD, since ")
    assert "zfs" in note


@pytest.mark.usefixtures("without_zfs")
def test_one_level_that_needs_the_guest_takes_all_the_others_there() -> None:
    """A disk that was made here, beside one that was made in a guest, would tell the places apart, not the disks."""
    placed = _place(_vm_backing(only=["backing=raw-file,zvol-clone"]))
    assert {cell.nodes["storage"].kind for cell in placed.cells} == {"vm"}


@pytest.mark.root
def test_disks_that_this_machine_can_make_are_made_here_and_used_directly() -> None:
    placed = _place(_vm_backing(only=["backing=raw-file,qcow2-clone"]))
    for cell in placed.cells:
        assert cell.nodes["storage"].kind == "local"
        assert _names(cell, "storage") == ["file", "loop"], "a file becomes a disk by a loop"
        assert _names(cell, "vm")[2] in ("image-copy", "image-clone")
        assert _names(cell, "vm")[3:] == ["virtio-blk", "mkfs", "mount"], "and QEMU opens it here"
    assert placed.notes == ("storage: the disks are made on this machine, which has all that they need",)


@pytest.mark.root
def test_what_stands_on_a_node_that_was_placed_here_is_set_up_here() -> None:
    (cell,) = _place(_vm_backing(only=["backing=raw-file", "bs=4k"])).cells
    names = [layer.layer for layer in layers_on(cell, "storage")]
    assert names == ["file", "loop", "mkfs", "mount", *["image-copy"] * 4]
    assert not cell.networked("storage")


@pytest.mark.root
def test_a_chain_that_this_machine_cannot_end_is_refused_where_it_was_written() -> None:
    """This machine has all that the layers need; but an export is no disk of it without a crossing by the network."""
    study = b"""title = "x"
        [nodes.storage]
        kind = "vm"
        placement = "auto"
        stack = [{ layer = "file", size = "64M" }, { layer = "nbd-export" }, { layer = "virtio-blk" }]
        [workload.w]
        on = "storage"
        command = { argv = ["true"] }
    """
    found = r"line 5: nodes\.storage\.stack\[2\]: layer virtio-blk cannot be left out on this machine"
    with pytest.raises(StudyError, match=found):
        _place(parse_study(study, "study.toml", lambda name: ""))


@pytest.mark.parametrize(
    ("backing", "shared"),
    [
        ("zvol-clone", ["zpool"]),
        ("file-on-zfs", ["zpool", "zfs"]),
        ("raw-file", ["mkfs", "mount"]),
        ("qcow2-clone", ["mkfs", "mount"]),
    ],
)
def test_pools_and_directories_are_set_up_once_for_all_guests_and_disks_once_for_each(
    backing: str, shared: list[str]
) -> None:
    chain = _vm_backing(only=[f"backing={backing}", "bs=4k"]).cells[0].chain("vm")
    assert chain is not None
    assert [link.layer.layer for link in chain.below if link.once] == shared
