"""Layer ``nvme``: an emulated NVMe controller with one namespace, see docs/system/devices/nvme.rst of QEMU."""

from __future__ import annotations

from typing import ClassVar, Literal

from storlab.layers.attachment import AttachmentLayer
from storlab.layers.blockdev import Json


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
