"""Attachments: crossings by which a file, a disk or an export becomes a disk of a QEMU guest.

What stands below is opened by QEMU, on the machine that runs it; the layer's resource is in the guest. See
hw/block/virtio-blk.c and hw/scsi/scsi-disk.c in QEMU's sources, and docs/system/devices/nvme.rst.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import TrialError, Unsupported
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.attach.blockdev import (
    AIO_HELP,
    CACHE_HELP,
    Aio,
    Cache,
    Json,
    blockdev,
    cache_facts,
    check_aio,
    has_write_cache,
)
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.block.loop import LoopLayer
from storlab.layers.block.queue import put, queue_facts, queue_folder
from storlab.layers.fs.files import disks_of
from storlab.layers.fs.image_base import Base
from storlab.layers.fs.mount import mount_facts
from storlab.layers.net.connect import refused_by_qemu
from storlab.layers.net.nbd_export import NbdExportLayer
from storlab.layers.resources import Dir, Disk, Export, File, LoggedFile
from storlab.nodes.agent import steps
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.node import Node

_DISK = re.compile(r"vd[a-z]+|sd[a-z]+|nvme\d+n\d+")
_PAGE_HEADER = 4  # bytes before the serial in a SCSI vital product data page, SPC-4 7.8.15


async def disk_with_serial(node: Node, serial: str) -> str | None:
    for disk in await block_devices(node):
        if _DISK.fullmatch(disk) and await _serial(node, disk) == serial:
            return disk
    return None


async def block_devices(node: Node) -> list[str]:
    """The kernel's names of all disks and partitions. Read by the agent itself: in a guest, a command costs time."""
    rows = (line.split() for line in (await node.read_text("/proc/partitions")).splitlines()[1:])
    return [row[3] for row in rows if len(row) == 4]


async def _serial(node: Node, disk: str) -> str | None:
    for name in ("serial", "device/serial", "device/vpd_pg80"):  # virtio-blk, NVMe, SCSI
        try:
            content = await node.read(f"/sys/block/{disk}/{name}")
        except FileNotFoundError:
            continue
        return serial_text(content[_PAGE_HEADER:] if name.endswith("vpd_pg80") else content)
    return None


def serial_text(content: bytes) -> str:
    """NVMe pads with blanks, SCSI with zeros, sysfs ends a line."""
    return content.decode("ascii", errors="replace").strip("\0 \n")


_LONGEST_SERIAL = 20  # bytes, of virtio-blk and NVMe
_UNTIL_FOUND = 10.0  # s; a guest without hardware virtualisation takes about one
_LOOK = 0.1
_SECTOR = 512
_Block = Annotated[Size, power_of_two("size of a block", 512, 64 * 1024)]
_PAGE = 4096  # bytes: the largest sector of kernels before 6.15


def serial_of(name: str) -> str:
    serial = f"storlab-{name}"
    assert len(serial) <= _LONGEST_SERIAL, f"{serial} is longer than QEMU allows"
    return serial


class AttachmentLayer(Crossing[File | Disk | Export, Disk]):
    """What all attachments have in common."""

    cache: Cache = Field("none", description=CACHE_HELP + " Of an NBD export, the server's own mode counts, too.")
    aio: Aio = Field("threads", description=AIO_HELP + " Of an NBD export, the server's counts.")
    queues: int | None = Field(None, ge=1, le=64, description="Request queues; without it, QEMU's choice.")
    logical_block_size: _Block = Field(
        512, description="The guest's sectors: a power of two from 512 to 64k; kernels before 6.15 take 4k at most."
    )
    physical_block_size: _Block | None = Field(
        None, description="The physical block size that the disk reports; by default the logical one."
    )
    discard: bool = Field(True, description="The guest can discard, and discards are passed on.")

    compared: ClassVar = ("qemu.*",)
    transport: ClassVar = "hypervisor"

    drivers: ClassVar[tuple[str, ...]]
    """Modules of the guest's kernel."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_aio(self.cache, self.aio)
        if self.physical_block_size is not None and self.physical_block_size < self.logical_block_size:
            raise ValueError(
                f"physical_block_size ({size_text(self.physical_block_size)}) is less than logical_block_size "
                f"({size_text(self.logical_block_size)})"
            )
        return self

    def label(self) -> str:
        return f"{self.layer} {self.cache}"

    def demands(self, below: File | Disk | Export, slot: str) -> Demands:
        """What makes ``below`` a disk of a guest; ``slot`` is the block node's name, and part of all other names."""
        objects, devices = self.devices(slot, serial_of(slot))
        node = blockdev(below, slot, self.cache, self.aio, self.discard)
        if isinstance(below, LoggedFile) and devices[0]["driver"].startswith("virtio-blk"):
            # It joins requests up to as many pieces as the host takes: that of the log would be one too many.
            devices = (devices[0] | {"request-merging": False},)
        reached = isinstance(below, Export) and below.server["type"] == "inet"
        return Demands(Devices(objects=objects, blockdevs=(node,), devices=devices), reaches_network=reached)

    def check_above(self, below: Layer | None) -> str | None:
        return refused_by_qemu(below)

    def exported(self) -> Layer | None:
        return NbdExportLayer(cache=self.cache, aio=self.aio, discard=self.discard)

    def at_home(self, below: Layer) -> tuple[Layer, ...] | None:
        if issubclass(below.gives, Export):
            return None
        return (LoopLayer(sector_size=self.logical_block_size),) if issubclass(below.gives, File) else ()

    @abstractmethod
    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        """Objects and devices. The first device is the one that sits in a PCI slot."""

    def disk_properties(self, name: str, serial: str) -> Json:
        """Properties of every kind of disk, see hw/block/block.h in QEMU's sources."""
        return {
            "id": f"{name}-device",
            "drive": name,
            "serial": serial,
            "write-cache": "on" if has_write_cache(self.cache) else "off",
            "logical_block_size": self.logical_block_size,
            "physical_block_size": self.physical_block_size or self.logical_block_size,
        }

    async def set_up(self, below: File | Disk | Export, context: LayerContext) -> Disk:
        """Find the disk in the guest, to which it was attached already; ``context`` is the guest's."""
        serial = serial_of(context.slot)
        await self._load_drivers(context.node)
        for attempt in range(int(_UNTIL_FOUND / _LOOK)):
            await asyncio.sleep(_LOOK if attempt else 0)
            disk = await disk_with_serial(context.node, serial)
            sectors = int(await context.node.read_text(f"/sys/block/{disk}/size")) if disk is not None else 0
            if disk is not None and sectors:
                if isinstance(below, LoggedFile):
                    # No page may change while it is being written: QEMU reads it twice, for the image and for the log.
                    # File systems look at this when they are mounted. Kernels before 5.10 lack it.
                    await put(context.node, queue_folder(disk), {"stable_writes": "1"})
                return Disk(context.node.name, f"/dev/{disk}", sectors * _SECTOR, ours=True)
        large = self.logical_block_size > _PAGE
        raise (Unsupported if large else TrialError)(
            f"node {context.node.name}: its disk (serial {serial}) did not appear within {_UNTIL_FOUND:g} s: "
            + (
                f"kernels before 6.15 take no sectors of {size_text(self.logical_block_size)}, only up to 4k"
                if large
                else f"does its kernel have the drivers {' and '.join(self.drivers)}?"
            )
        )

    async def _load_drivers(self, node: Node) -> None:
        """No udev does that in a guest. One that can't be loaded may be part of the kernel."""
        loaded = {line.partition(" ")[0] for line in (await node.read_text("/proc/modules")).splitlines()}
        for driver in self.drivers:
            if driver not in loaded:
                await node.run(["modprobe", driver], check=False)

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        qemu = cache_facts(self.cache, self.aio, self.discard)
        guest = await queue_facts(context.node, resource)
        return {"device": resource.path, "size": resource.size, "qemu": qemu, "guest": guest}


_STOP: Json = {"werror": "stop", "rerror": "stop"}
"""At an error the guest stands still, and QEMU tells the reason by an event."""


def _iothread(name: str, wanted: bool) -> tuple[tuple[Json, ...], Json]:
    thread = f"{name}-thread"
    return (({"qom-type": "iothread", "id": thread},), {"iothread": thread}) if wanted else ((), {})


class VirtioBlkLayer(AttachmentLayer):
    """A virtio disk of a virtual machine. What a machine gets where nothing else is named."""

    layer: Literal["virtio-blk"] = "virtio-blk"
    iothread: bool = Field(False, description="A thread of its own for its requests, instead of QEMU's main loop.")

    drivers: ClassVar = ("virtio_blk",)

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        threads, used = _iothread(name, self.iothread)
        queues = {"num-queues": self.queues} if self.queues else {}
        disk = self.disk_properties(name, serial) | {"discard": self.discard, **_STOP, **queues, **used}
        return threads, ({"driver": "virtio-blk-pci", **disk},)


class VirtioScsiLayer(AttachmentLayer):
    """A SCSI disk of a virtual machine, at a virtio adapter of its own."""

    layer: Literal["virtio-scsi"] = "virtio-scsi"
    iothread: bool = Field(False, description="A thread of its own for its requests, instead of QEMU's main loop.")

    drivers: ClassVar = ("virtio_scsi", "sd_mod")

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        threads, used = _iothread(name, self.iothread)
        adapter = {"id": f"{name}-adapter", **({"num_queues": self.queues} if self.queues else {}), **used}
        discard = {} if self.discard else {"discard_granularity": 0}
        disk = {"bus": f"{name}-adapter.0", **self.disk_properties(name, serial), **discard, **_STOP}
        return threads, ({"driver": "virtio-scsi-pci", **adapter}, {"driver": "scsi-hd", **disk})


class NvmeLayer(AttachmentLayer):
    """An NVMe disk of a virtual machine. I/O errors are passed on to the guest.

    QEMU can't stop a guest at them here, and its controller always offers a write cache and discards, whatever the
    mode; discards are then ignored, and each write is flushed all the same. As of 10.0 it also offers writes with FUA
    and does not carry them out (``nvme_blk_write`` in hw/nvme/ctrl.c): what was acknowledged may be lost.
    """

    layer: Literal["nvme"] = "nvme"
    atomic: Annotated[Size, power_of_two("size of an atomic write", 512, 1024**2)] | None = Field(
        None,
        description="Up to which size the disk says that it writes all or nothing (AWUN, AWUPF), so that programs may "
        "ask for it with RWF_ATOMIC: a power of two from 512 to 1M. Needs QEMU 10, and Linux 6.11 in the guest.",
    )

    drivers: ClassVar = ("nvme",)

    @model_validator(mode="after")
    def _whole_blocks(self) -> Self:
        if self.atomic is not None and self.atomic < self.logical_block_size:
            raise ValueError(
                f"atomic ({size_text(self.atomic)}) is less than logical_block_size "
                f"({size_text(self.logical_block_size)})"
            )
        return self

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        queues = {"max_ioqpairs": self.queues} if self.queues else {}
        blocks = (self.atomic or 0) // self.logical_block_size - 1  # NVMe counts from 0
        atomic = {"atomic.awun": blocks, "atomic.awupf": blocks} if self.atomic else {}
        return (), ({"driver": "nvme", **self.disk_properties(name, serial), **queues, **atomic},)

    async def _load_drivers(self, node: Node) -> None:
        if self.atomic is not None:  # before 6.13, the disk that the driver puts above all paths hides what they offer
            await node.run(["modprobe", "nvme_core", "multipath=N"], check=False)
        await super()._load_drivers(node)

    async def set_up(self, below: File | Disk | Export, context: LayerContext) -> Disk:
        disk = await super().set_up(below, context)
        (unit,) = await context.node.texts(f"/sys/block/{disk.name}/queue/atomic_write_unit_max_bytes")
        if self.atomic is not None and unit != str(self.atomic):
            found = "knows no atomic writes: Linux does from 6.11 on" if unit is None else f"takes {unit} B at once"
            asked = f"atomic writes of {size_text(self.atomic)} were asked for"
            raise Unsupported(f"node {context.node.name}: {asked}, and its kernel {found}")
        return disk


# Layer ``root``: the machine runs from the disk under test, so that its own reads and writes go there as well.


class RootLayer(Layer[Disk, Dir]):
    """The virtual machine's own root file system is on the disk, and the load works in a directory on it.

    The disk begins as a `base` with `system = true`. Such machines boot; they are no copies of a saved one.
    """

    layer: Literal["root"] = "root"

    compared: ClassVar = ("filesystem", "options")

    def boots(self, slot: str) -> str:
        return serial_of(slot)

    def check_above(self, below: Layer | None) -> str | None:
        if isinstance(below, VirtioBlkLayer):
            return None
        return 'a virtual machine boots from a disk of virtio-blk: put { layer = "virtio-blk" } right below it'

    def check_chain(self, below: Sequence[Layer], main: bool) -> str | None:
        if not main:
            return "a machine has one root, in its own stack: leave it out of further chains"
        bases = [base for layer in below if isinstance(base := getattr(layer, "base", None), Base)]
        if any(base.system for base in bases):
            return None
        return 'the disk below it holds no system: give its layer base = { system = true, size = "4G" }'

    async def set_up(self, below: Disk, context: LayerContext) -> Dir:
        """Nothing but a folder: the machine was booted from the disk."""
        if below.name not in await disks_of(context.node, "/"):
            raise TrialError(f"node {context.node.name}: its root file system is not on {below.path}")
        path = context.path("load")
        await context.node.carry_out(steps.make_directory(path, parents=True))
        return Dir(context.node.name, path, disks=(below.name,))

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await mount_facts(context.node, "/")
