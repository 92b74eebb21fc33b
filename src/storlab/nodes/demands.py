"""What the crossings that end on a node demand of it before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import orjson

Arguments = Mapping[str, Any]

_PCI = ("-pci", "nvme", "virtio-net")


@dataclass(frozen=True)
class Devices:
    """Devices in QEMU's own terms (QAPI, as JSON), for the command line, or plugged in over QMP; each in its order.

    ``objects`` for object-add, ``blockdevs`` for blockdev-add, ``netdevs`` for -netdev, ``devices`` for device_add.
    ``chardevs`` maps an id to the path of a Unix socket on which another program listens. ``fsdevs`` are folders for 9p
    (``fsdriver``, ``id``, ``path``, ``security_model`` …), which QEMU takes on its command line only.
    """

    objects: tuple[Arguments, ...] = ()
    blockdevs: tuple[Arguments, ...] = ()
    netdevs: tuple[Arguments, ...] = ()
    devices: tuple[Arguments, ...] = ()
    chardevs: tuple[tuple[str, str], ...] = ()
    fsdevs: tuple[Arguments, ...] = ()

    def __add__(self, other: Devices) -> Devices:
        return Devices(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def on_ports(self, ports: Iterable[str]) -> Devices:
        """Each PCI device on a port of its own, for machines whose root bus takes none while they run."""
        free = iter(ports)
        return replace(self, devices=tuple({**d, "bus": next(free)} if _is_pci(d) else d for d in self.devices))

    @property
    def pci(self) -> int:
        return sum(_is_pci(device) for device in self.devices)

    def command_line(self, json: bool = True) -> list[str]:
        """As arguments of QEMU, in JSON; its ``-chardev`` and ``-fsdev`` take none, nor most in old ones."""
        words = self.early_arguments(json)
        for name, path in self.chardevs:
            words += ["-chardev", f"socket,id={name},path={escaped(path)}"]
        for kind in ("object", "blockdev", "device"):
            written = (_written(each, json or kind == "blockdev") for each in getattr(self, f"{kind}s"))
            words += [word for each in written for word in (f"-{kind}", each)]
        return words

    def early_arguments(self, json: bool = True) -> list[str]:
        """What QEMU takes on its command line only (folders for 9p), or has no privileges for later (taps)."""
        options = (",".join(f"{key}={escaped(str(value))}" for key, value in each.items()) for each in self.fsdevs)
        words = [word for option in options for word in ("-fsdev", option)]
        return words + [word for each in self.netdevs for word in ("-netdev", _written(each, json))]

    def commands(self) -> list[tuple[str, dict[str, Any]]]:
        """As QMP commands, in the order in which they can be carried out; without ``early_arguments``."""
        addresses = {name: {"type": "unix", "data": {"path": path}} for name, path in self.chardevs}
        sockets = [
            {"id": name, "backend": {"type": "socket", "data": {"addr": address, "server": False}}}
            for name, address in addresses.items()
        ]
        kinds: tuple[tuple[str, Iterable[Arguments]], ...] = (
            ("object-add", self.objects),
            ("chardev-add", sockets),
            ("blockdev-add", self.blockdevs),
            ("device_add", self.devices),
        )
        return [(command, dict(each)) for command, all_ in kinds for each in all_]


def _written(arguments: Arguments, json: bool) -> str:
    """As JSON, or else as ``driver,key=value``: the first key has no name there."""
    if json:
        return orjson.dumps(arguments).decode()
    first = next(key for key in ("driver", "qom-type", "type") if key in arguments)
    values = {key: ("off", "on")[value] if isinstance(value, bool) else value for key, value in arguments.items()}
    return ",".join([values.pop(first), *(f"{key}={escaped(str(value))}" for key, value in values.items())])


def _is_pci(device: Arguments) -> bool:
    driver = str(device["driver"])
    return "bus" not in device and (driver.endswith(_PCI[0]) or driver in _PCI)


def escaped(path: str) -> str:
    """QEMU takes a doubled comma in an option's value for one that belongs to it."""
    return path.replace(",", ",,")


NO_DEVICES = Devices()


@dataclass(frozen=True)
class Demands:
    """All that the crossings of a node's chains, and those of other nodes that start there, demand of it together.

    ``devices`` of its machine, where that is QEMU's. ``network``: an address in the run's network; ``reaches_network``:
    its machine opens something over that network, before it has an address there itself. ``shared_memory``: another
    program maps its memory. ``cold``: it must boot, and can't be a copy of a guest that was saved. ``root``: the serial
    number of the disk that holds its root file system, if that is one of ``devices``.
    """

    devices: Devices = NO_DEVICES
    network: bool = False
    reaches_network: bool = False
    shared_memory: bool = False
    cold: bool = False
    root: str = ""

    def __or__(self, other: Demands) -> Demands:
        flags = [each.name for each in fields(self) if each.name != "devices"]
        return Demands(self.devices + other.devices, *(getattr(self, name) or getattr(other, name) for name in flags))


NO_DEMANDS = Demands()
