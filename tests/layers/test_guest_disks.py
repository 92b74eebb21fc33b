"""Disks of real guests: what is attached is found there by its serial number, holds the data, and says how it syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storlab.errors import Unsupported
from storlab.layers.resources import Disk, Resource
from storlab.nodes.node import Node

from .guests import guest, image_with
from .sites import Ground, ground_in
from .test_attachments import attach_layer

CLONE = {"layer": "image-clone", "base": {"size": "64M", "written": "4M"}}
CASES = [
    ("virtio-blk", [CLONE], {"cache": "none", "aio": "native"}),
    ("virtio-blk", [CLONE, {"layer": "nbd-export"}], {"cache": "writethrough", "logical_block_size": "4k"}),
    ("virtio-scsi", [CLONE], {"cache": "directsync", "physical_block_size": "16k", "discard": False}),
    ("nvme", [CLONE], {"cache": "unsafe", "aio": "io_uring"}),
]


async def seen(ground: Ground, node: Node, kind: str, fields: Mapping[str, Any], below: Resource) -> dict[str, Any]:
    """The facts of the attachment, once the disk was written, flushed and read back."""
    layer = attach_layer(kind, **fields)
    context = ground.context(node=node)
    disk = await layer.set_up(below, context)
    assert isinstance(disk, Disk)
    assert (disk.node, disk.size, disk.ours) == ("vm-1", 64 * 1024**2, True)
    head = await node.output("sh", "-c", f"head -c 4M {disk.path} | sha256sum")
    await node.run(["dd", "if=/dev/urandom", f"of={disk.path}", "bs=1M", "seek=8", "count=1", "conv=fsync"])
    assert await node.output("sh", "-c", f"head -c 4M {disk.path} | sha256sum") == head
    return await layer.facts(disk, context)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stack", "fields"), CASES, ids=["virtio-blk", "virtio-blk over NBD", "virtio-scsi", "nvme"]
)
def test_a_guest_finds_its_disk_and_says_how_it_syncs(
    short_path: Path, kind: str, stack: list[dict[str, Any]], fields: dict[str, Any]
) -> None:
    image = image_with()

    async def check() -> None:
        async with ground_in(short_path) as ground:
            below = (await ground.set_up(*stack, owner="vm-1")).resource
            assert below is not None
            disk = attach_layer(kind, **fields).demands(below, "disk0").devices
            async with guest(ground.node, image, "vm-1", [disk], "512M") as running:
                facts = await seen(ground, running.node, kind, fields, below)
        inside = facts["guest"]
        assert facts["qemu"]["cache"] == fields["cache"]
        assert inside["logical_block_size"] == (4096 if "logical_block_size" in fields else 512)
        assert inside["physical_block_size"] == (
            16384 if "physical_block_size" in fields else 4096 if "logical_block_size" in fields else 512
        )
        # NVMe's controller always says that it has one.
        assert (inside["write_cache"] == "write back") is (kind == "nvme" or facts["qemu"]["write_cache"])
        assert (inside["discard_granularity"] == 0) is (fields.get("discard") is False)

    asyncio.run(check())


@pytest.mark.slow
def test_sectors_that_the_guests_kernel_does_not_take_are_unsupported(short_path: Path) -> None:
    image = image_with()
    layer = attach_layer("virtio-blk", logical_block_size="16k")

    async def check() -> None:
        async with ground_in(short_path) as ground:
            below = (await ground.set_up({"layer": "file", "size": "64M"})).resource
            assert below is not None
            async with guest(ground.node, image, "vm-1", [layer.demands(below, "disk0").devices], "512M") as running:
                with pytest.raises(Unsupported, match=r"kernels before 6\.15 take no sectors of 16k"):
                    await layer.set_up(below, ground.context(node=running.node))

    asyncio.run(check())
