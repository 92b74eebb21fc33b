"""Whole PCI devices, for a guest: what is refused, and that a device comes back to its driver.

The machines are guests with emulated controllers and an emulated IOMMU: this machine may have neither. That a guest in
one of them then works with the device would take a guest within a guest, and is not tried.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storlab.base.errors import SafetyError
from storlab.layers.attach.pci import Found, PciLayer, VfioLayer, give_back, refusal, refusal_of_group
from storlab.layers.resources import PciDevice
from storlab.nodes.demands import Devices
from storlab.nodes.node import Node

from .sites import Ground, guest

_IOMMU = ("-device", "intel-iommu")
_ADDRESS = "0000:03:00.0"
_DISK = ("nvme0n1", 64 * 1024**2, "S1")
FREE = Found("0x010802", "nvme", "7", {}, (_DISK,))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(FREE, kind="0x020000"), "no storage controller"),
        (replace(FREE, driver="vfio-pci", disks=()), "in use: something has bound it to vfio-pci already"),
        (replace(FREE, driver="", disks=()), "has no disk"),
        (replace(FREE, disks=(_DISK, ("nvme0n2", 1, "S1"))), "has several disks"),
        (replace(FREE, disks=(("vdb", 1, ""),)), "no serial number"),
        (replace(FREE, group=""), "boot with intel_iommu=on"),
        (replace(FREE, others={"0000:03:00.1": "0x020000"}), "shares IOMMU group 7 with 0000:03:00.1"),
        (replace(FREE, others={"0000:00:1c.0": "0x060400"}), None),
        (FREE, None),
    ],
)
def test_a_device_is_refused_for_one_reason_that_says_which(found: Found, why: str | None) -> None:
    said = refusal(_ADDRESS, found) or refusal_of_group(_ADDRESS, found)
    assert (said is None) if why is None else (said is not None and why in said and _ADDRESS in said)


def test_a_guest_with_a_device_of_its_own_boots_and_is_no_copy() -> None:
    demands = VfioLayer().demands(PciDevice("host", _ADDRESS, "S1", 1), "disk0")
    assert demands.cold and demands.devices.pci == 1
    assert demands.devices.devices[0]["host"] == _ADDRESS


async def test_this_machine_keeps_its_own_disks(ground: Ground) -> None:
    """Whatever devices there are: what holds the root file system, and what is no disk, is refused."""
    for device in sorted(Path("/sys/bus/pci/devices").iterdir()):
        mounted = any(
            Path(f"/sys/block/{line.split()[0].removeprefix('/dev/')}").resolve().is_relative_to(device.resolve())
            for line in Path("/proc/mounts").read_text().splitlines()
            if line.startswith("/dev/")
        )
        storage = (device / "class").read_text().startswith("0x01")
        if mounted or not storage:
            with pytest.raises(SafetyError, match=r"mounted|in use|no storage controller|several disks|no serial"):
                await PciLayer(address=device.name).check_node(ground.node)


async def _controllers(node: Node) -> list[str]:
    listed = await node.output("sh", "-c", "grep -l ^0x0108 /sys/bus/pci/devices/*/class")
    return [line.split("/")[5] for line in listed.splitlines()]


@pytest.mark.needs("guests")
@pytest.mark.parametrize("iommu", [False, True])
async def test_a_device_is_bound_and_comes_back_and_none_without_an_iommu(
    ground: Ground, tmp_path: Path, iommu: bool
) -> None:
    image = tmp_path / "disk.img"
    image.touch()
    image.write_bytes(bytes(1024**2))
    blockdev = {"driver": "file", "node-name": "b0", "filename": str(image)}
    nvme = {"driver": "nvme", "id": "n0", "serial": "S-1", "drive": "b0"}
    words = {"qemu_args": _IOMMU, "kernel_args": "intel_iommu=on", "start": "cold"} if iommu else {}
    own = Devices(blockdevs=(blockdev,), devices=(nvme,))
    async with guest(ground.node, "vm-1", [own], memory="256M", hardware=words) as running:
        node, context = running.node, ground.context(node=running.node)
        await node.run(["modprobe", "nvme"])
        (address,) = await _controllers(node)
        layer = PciLayer(address=address)
        if not iommu:
            with pytest.raises(SafetyError, match="no IOMMU group"):
                await layer.check_node(node)
            return
        await node.run(["mkfs.ext4", "-q", "/dev/nvme0n1"])
        with pytest.raises(SafetyError, match="carries a signature of ext4"):
            await layer.check_node(node)
        await node.run(["sh", "-c", "mkdir /m && mount /dev/nvme0n1 /m"])
        with pytest.raises(SafetyError, match="mounted on /m"):
            await PciLayer(address=address, wipe=address).check_node(node)
        await node.run(["umount", "/m"])
        given = await PciLayer(address=address, wipe=address).set_up(None, context)
        assert isinstance(given, PciDevice) and (given.address, given.serial) == (address, "S-1")
        assert not await node.output("sh", "-c", "ls -d /sys/block/nvme* || true")
        with pytest.raises(SafetyError, match="in use"):
            await layer.check_node(node)
        bound = {"address": address, "driver": "nvme"}
        assert await give_back.function(node, **bound) == f"gave {address} back to nvme"
        assert await give_back.function(node, **bound) is None
        await layer.check_node(node)  # its disk is there again, and empty
