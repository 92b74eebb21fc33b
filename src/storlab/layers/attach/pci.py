"""Layers ``pci`` and ``vfio``: a disk's whole controller, passed to a guest (VFIO).

``pci`` takes the device from its driver on the guest's machine, and gives it back; ``vfio`` is the crossing. See
Documentation/driver-api/vfio.rst and Documentation/ABI/testing/sysfs-bus-pci in the kernel's sources. No part of QEMU's
block layer is between the guest and its disk.

Refused is what would take a device from somebody: one whose disk is mounted, in use, or carries data; one that shares
its IOMMU group with others, which would all be the guest's; and all where no IOMMU keeps a guest within its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from pydantic import Field

from storlab.base.errors import SafetyError, StorlabError, TrialError, UserError
from storlab.base.reach import Device
from storlab.layers.attach.attachment import disk_with_serial
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.block.device import refuse_used
from storlab.layers.block.identity import DeviceIdentity, identify
from storlab.layers.block.queue import queue_facts
from storlab.layers.resources import Disk, PciDevice
from storlab.nodes.agent import steps
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import undo

_DRIVER = "vfio-pci"
_STORAGE, _BRIDGE = "0x01", "0x0604"  # the first digits of a class, include/linux/pci_ids.h
_PATIENCE = 20.0  # s, until a driver has found its disk again, or a guest its own
_LOOK = 0.2
_SECTOR = 512

# Each line is a key and its value. Disks have the device's folder in theirs.
_FIND = r"""
export LC_ALL=C
cd "/sys/bus/pci/devices/$1" 2>/dev/null || exit 3
name() { [ ! -e "$1" ] || basename "$(readlink -f "$1")"; }
echo "class $(cat class)"
echo "driver $(name driver)"
echo "group $(name iommu_group)"
for other in iommu_group/devices/*; do
    [ ! -e "$other" ] || [ "${other##*/}" = "$1" ] || echo "other ${other##*/} $(cat "$other/class")"
done
here=$(readlink -f .)
for block in /sys/block/*; do
    case $(readlink -f "$block") in "$here"/*)
        # With multipath, the kernel's own, what is below an NVMe controller is a hidden path of the disk.
        disk=/sys/block/$(basename "$block" | sed 's/^\(nvme[0-9]*\)c[0-9]*n/\1n/')
        serial=$(cat "$disk/serial" "$disk/device/serial" 2>/dev/null | head -n 1)
        echo "disk ${disk##*/} $(cat "$disk/size") $serial" ;;
    esac
done
"""

_Address = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]

_Driver = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


@undo("pci.give-back")
async def give_back(node: Node, address: _Address, driver: _Driver) -> str | None:
    folder = f"/sys/bus/pci/devices/{address}"
    try:
        found = await _find(node, address)
    except UserError:  # unplugged
        return None
    (override,) = await node.texts(f"{folder}/driver_override")
    if override != _DRIVER or found.driver not in (_DRIVER, ""):  # it is somebody else's by now, or was never taken
        return None
    leave = [steps.write(f"{folder}/driver/unbind", address)] if found.driver else []
    # An override that is empty is none (driver_override_store in drivers/pci/pci-sysfs.c).
    await node.carry_out(*leave, steps.write(f"{folder}/driver_override", "\n"))
    await node.carry_out(steps.write("/sys/bus/pci/drivers_probe", address), go_on=True)
    for _ in range(int(_PATIENCE / _LOOK)):
        if (now := (await _find(node, address)).driver) == driver:
            return f"gave {address} back to {driver}"
        await asyncio.sleep(_LOOK)
    raise StorlabError(f"{address} has {now or 'no driver'} now, and not {driver}: `echo {address} > "
                       f"/sys/bus/pci/drivers/{driver}/bind` gives it back")  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A PCI device as sysfs has it. ``others``: address → class, of its IOMMU group. ``disks``: name, bytes, serial."""

    kind: str
    driver: str
    group: str
    others: Mapping[str, str] = field(default_factory=dict)
    disks: tuple[tuple[str, int, str], ...] = ()


def read_found(text: str) -> Found:
    one: dict[str, str] = {}
    others: dict[str, str] = {}
    disks = []
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "other":
            address, _, kind = value.partition(" ")
            others[address] = kind
        elif key == "disk":
            name, size, serial = [*value.split(" ", 2), "", ""][:3]
            disks.append((name, int(size or 0) * _SECTOR, serial.strip()))
        else:
            one[key] = value.strip()
    return Found(one.get("class", ""), one.get("driver", ""), one.get("group", ""), others, tuple(disks))


def refusal(address: str, found: Found) -> str | None:
    """Why a device can't be passed to a guest, as far as sysfs tells; ``None`` where nothing speaks against it."""
    if not found.kind.startswith(_STORAGE):
        return f"{address} is no storage controller (its class is {found.kind}): name the address of a disk's"
    if found.driver == _DRIVER:
        return f"{address} is in use: something has bound it to {_DRIVER} already"
    if not found.driver or not found.disks:
        return f"{address} has no disk: no driver of this machine has found one on it"
    if len(found.disks) > 1:
        names = ", ".join(name for name, _, _ in found.disks)
        return f"{address} has several disks ({names}): take a controller with one"
    if not found.disks[0][2]:
        return f"the disk {found.disks[0][0]} of {address} has no serial number, by which a guest's is found"
    return None


def refusal_of_group(address: str, found: Found) -> str | None:
    """Why its guest could not be kept from other memory, or other devices from the guest."""
    if not found.group:
        return (
            f"{address} is in no IOMMU group, so nothing would keep the guest's device out of this machine's memory: "
            "switch the IOMMU on in the firmware, and boot with intel_iommu=on (or amd_iommu=on)"
        )
    shared = [other for other, kind in found.others.items() if not kind.startswith(_BRIDGE)]
    if shared:
        return (
            f"{address} shares IOMMU group {found.group} with {', '.join(shared)}, which the guest would get as well: "
            "put the disk into another slot"
        )
    return None


async def _find(node: Node, address: str) -> Found:
    found = await node.run(["sh", "-c", _FIND, "find", address], check=False)
    if not found.ok:
        raise UserError(f"node {node.name}: there is no PCI device {address}: see `lspci -D`", ("address",))
    return read_found(found.stdout.decode(errors="replace"))


class PciLayer(Layer[None, PciDevice]):
    """A disk's controller, taken from its driver on the machine that runs the guest. All data on it may be lost."""

    layer: Literal["pci"] = "pci"
    address: Device = Field(
        pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$",
        description="The device: domain, bus, slot, function, as `lspci -D` has them: 0000:03:00.0",
    )
    wipe: Device | None = Field(None, description="The same address again, to allow that existing data are destroyed.")

    undoes: ClassVar = (give_back,)
    serves_one: ClassVar = True

    def label(self) -> str:
        return f"pci {self.address}"

    def needs(self) -> Needs:
        return Needs(programs=("blkid", "wipefs", "flock", "modprobe"), root="a PCI device")

    def claims(self) -> str | None:
        return self.address

    async def check_node(self, node: Node) -> None:
        await self._checked(node)

    async def _checked(self, node: Node) -> tuple[Found, DeviceIdentity]:
        """The device, free for use. Raises ``UserError``, of which ``SafetyError`` is one."""
        found = await _find(node, self.address)
        if self.wipe not in (None, self.address):
            said = f"wipe names {self.wipe} but the device is {self.address}"
            raise SafetyError(f"{said}: write the same address twice, or no wipe")
        if (why := refusal(self.address, found)) is not None:
            raise SafetyError(f"node {node.name}: {why}")
        path = f"/dev/{found.disks[0][0]}"
        disk = await identify(node, path)
        wanted = f'Write wipe = "{self.address}" as well' if self.wipe is None else None
        await refuse_used(node, path, disk, wanted)
        if (why := refusal_of_group(self.address, found)) is not None:
            raise SafetyError(f"node {node.name}: {why}")
        return found, disk

    async def set_up(self, below: None, context: LayerContext) -> PciDevice:
        node, folder = context.node, f"/sys/bus/pci/devices/{self.address}"
        _, disk = await self._checked(node)
        await context.claim(node, disk)
        found, disk = await self._checked(node)  # again, now that no other run can have it
        (_, size, serial) = found.disks[0]
        await context.register_undo("pci.give-back", address=self.address, driver=found.driver)
        if self.wipe is not None:
            await node.run(["wipefs", "--all", "--quiet", disk.path])
        await node.run(["modprobe", _DRIVER])
        await node.carry_out(
            steps.write(f"{folder}/driver_override", _DRIVER),
            steps.write(f"{folder}/driver/unbind", self.address),
            steps.write("/sys/bus/pci/drivers_probe", self.address),
        )
        if (now := (await _find(node, self.address)).driver) != _DRIVER:
            raise TrialError(
                f"node {node.name}: {self.address} has {now or 'no driver'} after it was given to {_DRIVER}"
            )
        return PciDevice(node.name, self.address, serial, size)

    async def facts(self, resource: PciDevice, context: LayerContext) -> dict[str, Any]:
        found = await _find(context.node, self.address)
        return {"address": self.address, "serial": resource.serial, "group": found.group, "size": resource.size}


class VfioLayer(Crossing[PciDevice, Disk]):
    """A PCI device that is a guest's own: no emulation, no cache of QEMU's between guest and disk."""

    layer: Literal["vfio"] = "vfio"

    transport: ClassVar = "hypervisor"

    def demands(self, below: PciDevice, slot: str) -> Demands:
        device = {"driver": "vfio-pci", "id": f"{slot}-device", "host": below.address}
        # All of its memory is pinned for the device, so it can be no copy of a guest that was saved.
        return Demands(Devices(devices=(device,)), cold=True)

    async def set_up(self, below: PciDevice, context: LayerContext) -> Disk:
        node = context.node
        await node.run(["modprobe", "nvme"], check=False)  # no udev does that in a guest
        for attempt in range(int(_PATIENCE / _LOOK)):
            await asyncio.sleep(_LOOK if attempt else 0)
            if (name := await disk_with_serial(node, below.serial)) is not None:
                sectors = int(await node.read_text(f"/sys/block/{name}/size"))
                return Disk(node.name, f"/dev/{name}", sectors * _SECTOR, ours=False)
        raise TrialError(
            f"node {node.name}: the disk of {below.address} (serial {below.serial}) did not appear within "
            f"{_PATIENCE:g} s: has its kernel a driver for it?"
        )

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        return {"device": resource.path, "size": resource.size, "guest": await queue_facts(context.node, resource)}
