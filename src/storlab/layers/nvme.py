"""Layer ``nvme``: an emulated NVMe controller with one namespace, see docs/system/devices/nvme.rst of QEMU."""

from __future__ import annotations

from typing import Literal

from storlab.layers.attachment import AttachmentLayer
from storlab.layers.blockdev import Json


class NvmeLayer(AttachmentLayer):
    """An NVMe disk of a virtual machine. QEMU passes I/O errors on to the guest, for it can't stop one at them."""

    layer: Literal["nvme"] = "nvme"

    def devices(self, name: str, serial: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        device: Json = {
            "driver": "nvme",
            "id": f"{name}-device",
            **self.disk_properties(name, serial),
            **({} if self.discard else {"discard_granularity": 0}),
            **({"max_ioqpairs": self.queues} if self.queues else {}),
        }
        return (), (device,)
