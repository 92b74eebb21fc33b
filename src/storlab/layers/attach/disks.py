"""Layers ``virtio-blk``, ``virtio-scsi`` and ``nvme``: disks of virtual machines.

See hw/block/virtio-blk.c and hw/scsi/scsi-disk.c in QEMU's sources, and docs/system/devices/nvme.rst.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from storlab.layers.attach.attachment import AttachmentLayer
from storlab.layers.attach.blockdev import Json


class VirtioBlkLayer(AttachmentLayer):
    """A virtio disk of a virtual machine. What a machine gets where nothing else is named."""

    layer: Literal["virtio-blk"] = "virtio-blk"
    iothread: bool = Field(False, description="A thread of its own for its requests, instead of QEMU's main loop.")

    drivers: ClassVar = ("virtio_blk",)

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        thread = f"{name}-thread"
        device: Json = {
            "driver": "virtio-blk-pci",
            "id": f"{name}-device",
            **self.disk_properties(name, serial),
            "discard": self.discard,
            "werror": "stop",  # the guest stands still, and QEMU tells the reason by an event
            "rerror": "stop",
            **({"num-queues": self.queues} if self.queues else {}),
            **({"iothread": thread} if self.iothread else {}),
        }
        return (({"qom-type": "iothread", "id": thread},) if self.iothread else ()), (device,)


class VirtioScsiLayer(AttachmentLayer):
    """A SCSI disk of a virtual machine, at a virtio adapter of its own."""

    layer: Literal["virtio-scsi"] = "virtio-scsi"
    iothread: bool = Field(False, description="A thread of its own for its requests, instead of QEMU's main loop.")

    drivers: ClassVar = ("virtio_scsi", "sd_mod")

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        thread, adapter = f"{name}-thread", f"{name}-adapter"
        controller: Json = {
            "driver": "virtio-scsi-pci",
            "id": adapter,
            **({"num_queues": self.queues} if self.queues else {}),
            **({"iothread": thread} if self.iothread else {}),
        }
        disk: Json = {
            "driver": "scsi-hd",
            "id": f"{name}-device",
            "bus": f"{adapter}.0",
            **self.disk_properties(name, serial),
            **({} if self.discard else {"discard_granularity": 0}),
            "werror": "stop",  # the guest stands still, and QEMU tells the reason by an event
            "rerror": "stop",
        }
        return (({"qom-type": "iothread", "id": thread},) if self.iothread else ()), (controller, disk)


class NvmeLayer(AttachmentLayer):
    """An NVMe disk of a virtual machine. I/O errors are passed on to the guest.

    QEMU can't stop a guest at them here, and its controller always offers a write cache and discards, whatever the
    mode; discards are then ignored, and each write is flushed all the same.
    """

    layer: Literal["nvme"] = "nvme"

    drivers: ClassVar = ("nvme",)

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        device: Json = {
            "driver": "nvme",
            "id": f"{name}-device",
            **self.disk_properties(name, serial),
            **({"max_ioqpairs": self.queues} if self.queues else {}),
        }
        return (), (device,)
