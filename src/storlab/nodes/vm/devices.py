"""Devices that a guest gets, in QEMU's own terms (QAPI, as JSON): for the command line, or plugged in over QMP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

Arguments = Mapping[str, Any]

_PCI = ("-pci", "nvme", "virtio-net")


@dataclass(frozen=True)
class Devices:
    """``objects`` for object-add, ``blockdevs`` for blockdev-add, ``devices`` for device_add; each in its order.

    ``netdevs`` for netdev_add.
    """

    objects: tuple[Arguments, ...] = ()
    blockdevs: tuple[Arguments, ...] = ()
    netdevs: tuple[Arguments, ...] = ()
    devices: tuple[Arguments, ...] = ()

    def __add__(self, other: Devices) -> Devices:
        return Devices(
            self.objects + other.objects,
            self.blockdevs + other.blockdevs,
            self.netdevs + other.netdevs,
            self.devices + other.devices,
        )

    def on_ports(self, ports: Iterable[str]) -> Devices:
        """Each PCI device on a port of its own, for machines whose root bus takes none while they run."""
        free = iter(ports)
        return replace(self, devices=tuple({**d, "bus": next(free)} if _is_pci(d) else d for d in self.devices))

    @property
    def pci(self) -> int:
        """How many PCI slots they take."""
        return sum(_is_pci(device) for device in self.devices)

    def command_line(self) -> list[str]:
        """As arguments of QEMU."""
        kinds = (
            ("-object", self.objects),
            ("-blockdev", self.blockdevs),
            ("-netdev", self.netdevs),
            ("-device", self.devices),
        )
        return [word for option, all_ in kinds for each in all_ for word in (option, orjson.dumps(dict(each)).decode())]

    def commands(self) -> list[tuple[str, dict[str, Any]]]:
        """As QMP commands, in the order in which they can be carried out."""
        kinds = (
            ("object-add", self.objects),
            ("blockdev-add", self.blockdevs),
            ("netdev_add", self.netdevs),
            ("device_add", self.devices),
        )
        return [(command, dict(each)) for command, all_ in kinds for each in all_]


NO_DEVICES = Devices()


def _is_pci(device: Arguments) -> bool:
    driver = str(device["driver"])
    return "bus" not in device and (driver.endswith(_PCI[0]) or driver in _PCI)


@dataclass(frozen=True)
class Nic:
    """A network card: the tap on the host that it is connected to, its MAC and its address among the nodes."""

    tap: str
    mac: str
    address: str
    prefix: int = field(default=24)

    def devices(self) -> Devices:
        """The card in QEMU's terms."""
        netdev = {"type": "tap", "id": "net0", "ifname": self.tap, "script": "no", "downscript": "no"}
        return Devices(
            netdevs=(netdev,), devices=({"driver": "virtio-net-pci", "netdev": "net0", "mac": self.mac, "id": "nic0"},)
        )
