"""Layer ``device``: a block device that exists already, with safeguards. All data on it will be lost.

It is refused while anything uses it (mounts in any mount namespace, swap, device-mapper, md, open partitions) and
while it carries a signature (file system, partition table, RAID or LVM member), unless the study names it a
second time in ``wipe``.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.errors import SafetyError, UserError
from storlab.layers.base import Layer, Site
from storlab.layers.block import queue_facts
from storlab.layers.resources import Disk, Resource
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node


class DeviceLayer(Layer):
    """A block device of this machine. The study names it; nothing else is ever touched."""

    layer: Literal["device"] = "device"
    path: str = Field(description="The device: /dev/nvme1n1, or a stable name under /dev/disk/by-id.")
    wipe: str | None = Field(None, description="The same path again, to allow that existing data are destroyed.")

    takes: ClassVar = (None,)
    gives: ClassVar = Disk

    def label(self) -> str:
        return self.path

    def needs(self) -> Needs:
        return Needs(programs=("blkid", "wipefs", "blockdev"), root="a block device")

    async def check_node(self, node: Node) -> None:
        if not (await node.run(["test", "-b", self.path], check=False)).ok:
            raise UserError(f"node {node.name}: there is no block device {self.path}")
        if self.wipe is not None and self.wipe != self.path:
            raise SafetyError(
                f"wipe names {self.wipe} but the device is {self.path}: write the same path twice, or no wipe"
            )
        await self._refuse_if_in_use(node)
        signatures = await _signatures(node, self.path)
        if signatures and self.wipe is None:
            raise SafetyError(
                f"node {node.name}: {self.path} carries {' and '.join(signatures)}: its data would be lost. "
                f'Write wipe = "{self.path}" beside its path if that is what you want'
            )

    async def _refuse_if_in_use(self, node: Node) -> None:
        device = (await node.output("readlink", "--canonicalize", self.path)).strip()
        numbers = await _numbers_with_partitions(node, device)
        for name, number in numbers.items():
            users = await node.run(
                [
                    "find",
                    "/proc",
                    "-maxdepth",
                    "2",
                    "-name",
                    "mountinfo",
                    "-exec",
                    "grep",
                    "-h",
                    "-F",
                    f" {number} ",
                    "{}",
                    "+",
                ],
                check=False,
            )
            if users.stdout:
                where = users.stdout.decode(errors="replace").split()[4]
                raise SafetyError(f"node {node.name}: {name} is mounted on {where}: Storlab does not touch it")
            holders = await node.run(["ls", f"/sys/class/block/{name}/holders"], check=False)
            if holders.stdout.strip():
                holder = holders.stdout.decode().split()[0]
                raise SafetyError(f"node {node.name}: {name} is in use by {holder}: Storlab does not touch it")
        swaps = [
            line.split()[0].removeprefix("/dev/") for line in (await node.read_text("/proc/swaps")).splitlines()[1:]
        ]
        for name in numbers:
            if name in swaps:
                raise SafetyError(f"node {node.name}: {name} is in use as swap: Storlab does not touch it")

    async def put_up(self, below: Resource | None, site: Site) -> Disk:
        await self.check_node(site.node)  # again: much may have happened since the run was planned
        if self.wipe is not None:
            # wipefs opens the device exclusively, and so refuses one that came into use this very moment.
            await site.node.run(["wipefs", "--all", "--quiet", self.path])
        size = int(await site.node.output("blockdev", "--getsize64", self.path))
        device = (await site.node.output("readlink", "--canonicalize", self.path)).strip()
        return Disk(site.node.name, device, size, ours=False)

    async def facts(self, resource: Resource, site: Site) -> dict[str, Any]:
        assert isinstance(resource, Disk)
        return {"device": resource.path, "size": resource.size, **await queue_facts(site.node, resource.name)}


async def _numbers_with_partitions(node: Node, device: str) -> dict[str, str]:
    """Kernel name → ``major:minor``, of the device and of all its partitions."""
    name = device.rpartition("/")[2]
    listing = await node.output("find", f"/sys/class/block/{name}/", "-maxdepth", "2", "-name", "dev")
    found = {}
    for path in listing.split():
        owner = path.split("/")[-2] or name
        found[owner] = (await node.read_text(path)).strip()
    return found


async def _signatures(node: Node, path: str) -> list[str]:
    """What lies on the device, in words: ``an ext4 signature``; partitions' contents count through their table."""
    listing = await node.output("wipefs", "--no-act", "--json", path)
    rows = json.loads(listing)["signatures"] if listing.strip() else []
    return [f"a signature of {row['type']}" for row in rows]
