"""Layer ``virtio-scsi``: a SCSI disk at a paravirtual adapter, see hw/scsi/scsi-disk.c in QEMU's sources."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from storlab.layers.attachment import AttachmentLayer
from storlab.layers.blockdev import Json


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
