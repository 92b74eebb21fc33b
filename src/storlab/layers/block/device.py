"""Layer ``device``: a block device that exists already, with safeguards. All data on it will be lost.

It is refused while anything uses it (mounts in any mount namespace, swap, device-mapper, md, a loop device, a process
that has it open, anything that holds it exclusively, another run) and while it carries a signature (file system,
partition table, RAID or LVM member), unless the study names it a second time in ``wipe``. What the name leads to is
found out once, when the run is planned, and must stay that device to the end. Its queue stays as its user has set it,
and is put back to that where the study's commands change it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import CommandFailed, SafetyError, Unsupported, UserError
from storlab.base.reach import Device, OwnName
from storlab.base.units import Size
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.identity import DeviceIdentity, identify, refuse_another
from storlab.layers.block.loop import signatures
from storlab.layers.block.queue import queue_facts, remember
from storlab.layers.block.use import user_of
from storlab.layers.resources import Disk
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.privileges import on_device
from storlab.nodes.settings import restore

OF_LAB = "@lab"
"""In place of a device's path: the one that the lab names for each host."""


class HostDisk(Model):
    """The device of one host. ``wipe``: the same path again, where existing data may be destroyed."""

    path: Device = Field(description="The device, as the lab names it.")
    wipe: Device | None = Field(None, description="The same path again, where its data may be destroyed.")


class DeviceLayer(Layer[None, Disk]):
    """A block device. The study names it, or leaves that to the lab; nothing else is ever touched."""

    layer: Literal["device"] = "device"
    path: Device = Field(
        description="The device: /dev/nvme1n1, or a stable name under /dev/disk/by-id. `@lab`: the one that the lab "
        "names for each host."
    )
    wipe: Device | None = Field(None, description="The same path again, to allow that existing data are destroyed.")
    purge: Literal["discard", "secure-discard", "zeroes"] | None = Field(
        None,
        description="With `wipe`: empty all of it first. `discard` (TRIM) and `secure-discard`: tell it that no block "
        "is in use, which makes a flash disk as close to new as it can. `zeroes`: write zeroes.",
    )
    disks: dict[OwnName, HostDisk] = Field(
        {}, description='The devices of the lab that `path = "@lab"` stands for, by host.'
    )

    undoes: ClassVar = (restore,)

    @model_validator(mode="after")
    def _wiped_by_its_owner(self) -> Self:
        if self.wipe == OF_LAB:
            raise ValueError("whether a host's disk may be wiped is said by the lab: write wipe beside its disk there")
        return self

    def label(self) -> str:
        return self.path

    def on(self, node: Node) -> Self:
        """The same with what the lab says of this host. Raises ``UserError`` where it names no disk for it."""
        if self.path != OF_LAB:
            return self
        host = node.identity.address.partition(" ")[0]  # what follows is how the agent becomes root there
        named = self.disks.get(host)
        if named is None:
            raise UserError(f"node {node.name}: the lab names no disk for {host or 'this machine'}")
        return self.model_copy(update={"path": named.path, "wipe": named.wipe})

    def needs(self) -> Needs:
        purging = ("blkdiscard",) if self.purge is not None else ()
        return Needs(programs=("blkid", "wipefs", "flock", *purging), root="a block device")

    def claims(self) -> str | None:
        return self.path

    def claims_on(self, node: Node) -> str:
        return self.on(node).path

    async def identify(self, node: Node) -> DeviceIdentity:
        return await identify(node, self.on(node).path)

    async def check_node(self, node: Node) -> None:
        await self.on(node)._checked(node)

    async def _checked(self, node: Node) -> DeviceIdentity:
        """The device, free for use. Raises ``UserError``, of which ``SafetyError`` is one."""
        device = await identify(node, self.path)
        if self.wipe is not None and self.wipe != self.path:
            raise SafetyError(
                f"wipe names {self.wipe} but the device is {self.path}: write the same path twice, or no wipe"
            )
        if self.purge is not None and self.wipe is None:
            raise SafetyError(
                f'node {node.name}: purge destroys all that is on {self.path}: write wipe = "{self.path}" beside it if '
                "that is what you want"
            )
        wanted = (
            f'Write wipe = "{self.path}" as well{" in the lab file" if self.disks else ""}'
            if self.wipe is None
            else None
        )
        await refuse_used(node, self.path, device, wanted)
        return device

    async def set_up(self, below: None, context: LayerContext) -> Disk:
        return await self.on(context.node)._set_up(context)

    async def _set_up(self, context: LayerContext) -> Disk:
        node = context.node
        device = await identify(node, self.path)
        refuse_changed(node, self.path, context.planned.get(self.path), device)
        await context.claim(node, device)
        device = await self._checked(node)  # again: much may have happened since the run was planned
        disk = Disk(node.name, device.path, device.size, ours=False, device=device)
        refuse_changed(node, self.path, context.planned.get(self.path), device)
        await remember(disk, context)
        if self.wipe is not None:
            await refuse_another(node, disk.path, disk.device)
            # wipefs opens the device exclusively, and so refuses one that came into use this very moment.
            await node.run(["wipefs", "--all", "--quiet", device.path])
        if self.purge is not None:
            await self._purge(node, device.path)
        return disk

    async def _purge(self, node: Node, path: str) -> None:
        how = {"discard": (), "secure-discard": ("--secure",), "zeroes": ("--zeroout",)}[self.purge or "discard"]
        try:
            await node.run(["blkdiscard", *how, path])
        except CommandFailed as error:
            raise Unsupported(
                f"{self.path} cannot be purged by {self.purge}: {error}. Take another kind, or leave purge out and use "
                "the device's own tool before: nvme format, hdparm --security-erase, sg_format"
            ) from None

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        assert resource.device is not None
        marks = {"marks": list(resource.device.marks)} if resource.device.marks else {}
        queue = await queue_facts(context.node, resource)
        return {"device": resource.path, "number": resource.device.number, **marks, "size": resource.size, **queue}


async def refuse_used(node: Node, path: str, device: DeviceIdentity, wanted: str | None) -> None:
    """Raise ``UserError`` where a device can't be written to, ``SafetyError`` where anything uses it or lies on it.

    ``wanted``: what to write if what lies on it may be lost; ``None`` where that was written.
    """
    if not device.size:
        raise UserError(f"node {node.name}: {path} has no size: nothing is attached to it, or its disk is gone")
    if device.read_only:
        raise UserError(
            f"node {node.name}: {path} is read-only, but all that runs on a device may write to it: "
            f"`blockdev --setrw {path}` allows that, if nothing else forbids it"
        )
    if (user := await user_of(node, device)) is not None:
        raise SafetyError(f"node {node.name}: {user}: Storlab does not touch it")
    listing = await on_device(node, device.path).run(["wipefs", "--no-act", "--json", device.path])
    found = [f"a signature of {row.type}" for row in signatures(listing.stdout)]  # a partition table counts as one
    if found and wanted is not None:
        raise SafetyError(
            f"node {node.name}: {path} carries {' and '.join(found)}: its data would be lost. "
            f"{wanted} if that is what you want"
        )


def refuse_changed(node: Node, path: str, planned: DeviceIdentity | None, found: DeviceIdentity) -> None:
    if planned is not None and not planned.is_same(found):
        raise SafetyError(
            f"node {node.name}: {path} was {planned} when the run was planned, and leads to {found} now: "
            "Storlab does not touch it. Let it lead to the same device again, or begin a new run"
        )


# Layer ``fill``: every block of a disk is written before anything is measured on it.
#
# A flash disk that was never written answers reads without reading, and writes fast until it has no erased blocks
# left. SNIA's *Solid State Storage Performance Test Specification* 2.0 calls this workload-independent
# preconditioning: twice the capacity, sequentially, in blocks of 128 KiB.


class FillLayer(Layer[Disk, Disk]):
    """Writes the whole underlying disk with random data, which takes long: keep it for the run."""

    layer: Literal["fill"] = "fill"
    passes: int = Field(1, ge=1, le=10, strict=True, description="How often each block is written; SNIA asks for 2.")
    block_size: Size = Field(128 * 1024, ge=512, description="Bytes of one write.")

    overwrites: ClassVar = True
    compared: ClassVar = ("written",)

    def needs(self) -> Needs:
        return Needs(programs=("fio",), root="a disk that is written to")

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        await refuse_another(context.node, below.path, below.device)
        await context.node.run(self.command(below.path))
        return below

    def command(self, path: str) -> list[str]:
        """fio's command line: random data, which no device can compress or merge with what it has."""
        return [
            "fio",
            "--name=fill",
            f"--filename={path.replace(':', chr(92) + ':')}",  # fio takes a colon for the end of a name
            "--rw=write",
            f"--bs={self.block_size}",
            "--ioengine=libaio",
            "--iodepth=32",
            "--direct=1",
            "--end_fsync=1",
            "--refill_buffers",
            f"--loops={self.passes}",
            "--output-format=terse",
        ]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        return {"written": self.passes * resource.size}
