"""What a guest is made of, once everything about it is decided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from storlab.images.image import Image
from storlab.nodes.vm.devices import NO_DEVICES, Devices, Nic
from storlab.nodes.vm.hardware import Hardware

Accelerator = Literal["kvm", "tcg"]

HOTPLUG_PORTS = 8  # on machines whose root bus takes no device while they run
LAYER_SERIAL = "storlab-layer-"
PORT = "storlab.agent"


@dataclass(frozen=True)
class GuestSpec:
    """One guest. ``devices`` are its own (its disk), beyond what every guest has; ``initrd`` holds the agent.

    ``netns``: the network namespace that QEMU runs in, where there is a network among the nodes.
    """

    name: str
    hardware: Hardware
    image: Image
    initrd: Path
    accelerator: Accelerator
    devices: Devices = NO_DEVICES
    nic: Nic | None = None
    netns: str | None = None
    qemu: str = ""  # its version, for the records

    @property
    def cpu(self) -> str:
        """QEMU's CPU model."""
        return self.hardware.cpu or ("host" if self.accelerator == "kvm" else "max")

    @property
    def all_devices(self) -> Devices:
        """Its own devices and its network card."""
        return self.devices + (self.nic.devices() if self.nic else Devices())
