"""Layer ``virtio-blk``: a paravirtual disk, see hw/block/virtio-blk.c in QEMU's sources."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from storlab.layers.attachment import AttachmentLayer
from storlab.layers.blockdev import Json


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
