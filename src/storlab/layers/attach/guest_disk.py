"""Finding a disk in a guest by its serial number: no udev runs there that would make links for it."""

from __future__ import annotations

import re

from storlab.nodes.node import Node

_DISK = re.compile(r"vd[a-z]+|sd[a-z]+|nvme\d+n\d+")
_PAGE_HEADER = 4  # bytes before the serial in a SCSI vital product data page, SPC-4 7.8.15


async def disk_with_serial(node: Node, serial: str) -> str | None:
    """The kernel's name of the disk; ``None`` while there is none."""
    for disk in await block_devices(node):
        if _DISK.fullmatch(disk) and await _serial(node, disk) == serial:
            return disk
    return None


async def block_devices(node: Node) -> list[str]:
    """The kernel's names of all disks and partitions. Read by the agent itself: in a guest, a command costs time."""
    rows = (line.split() for line in (await node.read_text("/proc/partitions")).splitlines()[1:])
    return [row[3] for row in rows if len(row) == 4]


async def _serial(node: Node, disk: str) -> str | None:
    for name in ("serial", "device/serial", "device/vpd_pg80"):  # virtio-blk, NVMe, SCSI
        try:
            content = await node.read(f"/sys/block/{disk}/{name}")
        except FileNotFoundError:
            continue
        return serial_text(content[_PAGE_HEADER:] if name.endswith("vpd_pg80") else content)
    return None


def serial_text(content: bytes) -> str:
    """NVMe pads with blanks, SCSI with zeros, sysfs ends a line."""
    return content.decode("ascii", errors="replace").strip("\0 \n")
