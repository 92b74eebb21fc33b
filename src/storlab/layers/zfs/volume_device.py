"""Finding the device of a volume of ZFS: a guest runs no udev, which would make links in /dev/zvol."""

from __future__ import annotations

import asyncio
import re

from storlab.errors import TrialError
from storlab.layers.attach.guest_disk import block_devices
from storlab.nodes.node import Node

ZVOL_ID = "/lib/udev/zvol_id"  # of zfsutils-linux: prints the name of a device's volume

_VOLUME = re.compile(r"zd\d+")  # not zd0p1
_UNTIL_THERE = 30.0  # s; devices are made after the command is done
_LOOK = 0.1


async def volume_device(node: Node, volume: str) -> str:
    """The device of a volume, such as ``/dev/zd16``. Raises ``TrialError`` where none appears."""
    for attempt in range(int(_UNTIL_THERE / _LOOK)):
        await asyncio.sleep(_LOOK if attempt else 0)
        volumes = [name for name in await block_devices(node) if _VOLUME.fullmatch(name)]
        for name in sorted(volumes, key=lambda name: -int(name[2:])):  # most likely it is the newest
            if await volume_of(node, f"/dev/{name}") == volume:
                return f"/dev/{name}"
    raise TrialError(f"node {node.name}: no device of the volume {volume} appeared within {_UNTIL_THERE:g} s")


async def volume_of(node: Node, device: str) -> str | None:
    """The volume that a device is of; ``None`` where that has just gone."""
    named = await node.run([ZVOL_ID, device], check=False)
    return named.stdout.decode(errors="replace").strip() if named.ok else None
