"""Attachments: what QEMU is given is what it takes, whatever lies underneath and in every mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from laboratory import needs_root
from storlab.layers.attach.attachment import AttachmentLayer, serial_of, serial_text
from storlab.layers.resources import Dir, Disk, File, LoggedFile, Resource
from storlab.layers.stack import type_errors

from .qemu import arguments_of, standing_qemu
from .sites import ground_in, parse
from .test_nbd_export import MODES

SLOT = "disk0"
KINDS = ["virtio-blk", "virtio-scsi", "nvme"]
FILE = {"layer": "file", "size": "16M"}
BELOW: dict[str, list[dict[str, Any]]] = {
    "raw file": [FILE],
    "qcow2": [{"layer": "qcow2", "size": "16M"}],
    "qcow2 clone": [{"layer": "image-clone", "base": {"size": "16M", "written": "1M"}}],
    "export": [FILE, {"layer": "nbd-export", "shared": 8}],
    "disk": [FILE, {"layer": "loop"}],
}


def attach_layer(kind: str, **fields: Any) -> AttachmentLayer:
    (layer,) = parse([{"layer": kind, **fields}])
    assert isinstance(layer, AttachmentLayer)
    return layer


@asynccontextmanager
async def standing(folder: Path, stack: list[dict[str, Any]]) -> AsyncIterator[Resource]:
    async with ground_in(folder) as ground:
        resource = (await ground.set_up(*stack)).resource
        assert resource is not None
        yield resource


def taken(folder: Path, layer: AttachmentLayer, below: Resource) -> dict[str, Any]:
    """Attach it to a real QEMU, plugged in and from the command line; its block node as QEMU knows it."""
    devices = layer.demands(below, SLOT).devices
    with standing_qemu(folder, *arguments_of(devices)):
        pass
    with standing_qemu(folder) as qemu:
        qemu.attach(devices)
        nodes: list[dict[str, Any]] = qemu.ask("query-named-block-nodes", flat=True)
        inserted = next(device for device in qemu.ask("query-block") if "inserted" in device)
        assert inserted["inserted"]["node-name"] == SLOT
        node = next(node for node in nodes if node["node-name"] == SLOT)
        return {**node, "all": nodes, "writeback": inserted["inserted"]["cache"]["writeback"]}


@needs_root
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("below", BELOW)
def test_qemu_takes_every_cache_mode_and_kind_of_aio(short_path: Path, kind: str, below: str) -> None:
    async def check() -> None:
        async with standing(short_path, BELOW[below]) as resource:
            for cache, aio in MODES:
                node = await asyncio.to_thread(taken, short_path, attach_layer(kind, cache=cache, aio=aio), resource)
                assert node["image"]["virtual-size"] == 16 * 1024**2
                flags = {key: node["cache"][key] for key in ("direct", "no-flush")}
                assert flags == {"direct": cache in ("none", "directsync"), "no-flush": cache == "unsafe"}
                assert node["writeback"] is (cache in ("none", "writeback", "unsafe"))

    asyncio.run(check())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("discard", [True, False])
def test_qemu_takes_queues_block_sizes_threads_and_discard(short_path: Path, kind: str, discard: bool) -> None:
    more = {} if kind == "nvme" else {"iothread": True}
    fields = {"queues": 3, "logical_block_size": "4k", "physical_block_size": "16k", "discard": discard, **more}

    async def check() -> None:
        async with standing(short_path, [FILE]) as resource:
            node = await asyncio.to_thread(taken, short_path, attach_layer(kind, **fields), resource)
            assert node["detect_zeroes"] == "off"

    asyncio.run(check())


@pytest.mark.parametrize("kind", KINDS)
def test_the_base_of_a_clone_is_opened_in_the_same_mode_and_never_written(short_path: Path, kind: str) -> None:
    async def check() -> None:
        async with standing(short_path, BELOW["qcow2 clone"]) as resource:
            assert isinstance(resource, File)
            layer = attach_layer(kind, cache="directsync", aio="native")
            node = await asyncio.to_thread(taken, short_path, layer, resource)
            bases = [
                each for each in node["all"] if resource.backing in each["file"] and each["drv"] in ("raw", "file")
            ]
            assert {each["drv"] for each in bases} == {"raw", "file"}
            assert all(each["ro"] and each["cache"]["direct"] for each in bases)

    asyncio.run(check())


def test_requests_are_joined_but_not_above_a_log_of_writes() -> None:
    (layer,) = parse([{"layer": "virtio-blk"}])
    assert isinstance(layer, AttachmentLayer)
    logged = LoggedFile("host", "/image", 2**20, log="/log", start="/start")
    (device,) = layer.demands(logged, "disk0").devices.devices
    assert device["request-merging"] is False
    (device,) = layer.demands(File("host", "/image", 2**20), "disk0").devices.devices
    assert "request-merging" not in device


def test_errors_stop_the_guest_where_qemu_can_do_that() -> None:
    below = File("host", "/a", 4096)
    for kind in ("virtio-blk", "virtio-scsi"):
        disk = attach_layer(kind).demands(below, SLOT).devices.devices[-1]
        assert (disk["werror"], disk["rerror"]) == ("stop", "stop")


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_first_device_sits_in_a_slot_and_the_names_come_from_the_disks(kind: str) -> None:
    devices = attach_layer(kind).demands(File("host", "/a", 4096), "disk1").devices
    assert devices.pci == 1
    assert "bus" not in devices.devices[0]
    assert all("bus" in device for device in devices.devices[1:])
    assert devices.devices[-1]["serial"] == serial_of("disk1")
    names = [str(each.get("id", each.get("node-name"))) for each in (*devices.blockdevs, *devices.devices)]
    assert all(name.startswith("disk1") for name in names)
    assert len(set(names)) == len(names)


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"logical_block_size": "3k"}, "a power of two from 512 to 64k"),
    ({"logical_block_size": "4k", "physical_block_size": "512"}, r"physical_block_size \(512\) is less than"),
    ({"queues": 0}, "greater than or equal to 1"),
    ({"cache": "some"}, "'none', 'writeback'"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_what_can_not_be_is_refused_with_its_reason(kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        attach_layer(kind, **fields)


def test_a_directory_can_not_be_attached() -> None:
    ((position, message),) = type_errors(parse([{"layer": "directory"}, {"layer": "virtio-blk"}]), [Disk, Dir])
    message_wanted = "layer virtio-blk takes a File or Disk or Export, but layer directory gives a Dir"
    assert (position, message) == (1, message_wanted)


def test_serial_numbers_are_read_from_all_three_kinds() -> None:
    assert serial_text(b"storlab-disk0") == "storlab-disk0"
    assert serial_text(b"storlab-disk0       \n") == "storlab-disk0"
    assert serial_text(b"storlab-disk0\0") == "storlab-disk0"
