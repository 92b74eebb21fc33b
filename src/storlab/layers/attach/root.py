"""Layer ``root``: the machine runs from the disk under test, so that its own reads and writes go there as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from storlab.errors import TrialError
from storlab.layers.attach.attachment import VirtioBlkLayer, serial_of
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.directory import disk_of
from storlab.layers.fs.mount import mount_facts
from storlab.layers.image.base import Base
from storlab.layers.resources import Dir, Disk
from storlab.nodes.agent import steps


class RootLayer(Layer[Disk, Dir]):
    """The virtual machine's own root file system is on the disk, and the load works in a directory on it.

    The disk begins as a `base` with `system = true`. Such machines boot; they are no copies of a saved one.
    """

    layer: Literal["root"] = "root"

    compared: ClassVar = ("filesystem", "options")

    def boots(self, slot: str) -> str:
        return serial_of(slot)

    def check_above(self, below: Layer | None) -> str | None:
        if isinstance(below, VirtioBlkLayer):
            return None
        return 'a virtual machine boots from a disk of virtio-blk: put { layer = "virtio-blk" } right below it'

    def check_chain(self, below: Sequence[Layer], main: bool) -> str | None:
        if not main:
            return "a machine has one root, in its own stack: leave it out of further chains"
        bases = [base for layer in below if isinstance(base := getattr(layer, "base", None), Base)]
        if any(base.system for base in bases):
            return None
        return 'the disk below it holds no system: give its layer base = { system = true, size = "4G" }'

    async def set_up(self, below: Disk, context: LayerContext) -> Dir:
        """Nothing but a folder: the machine was booted from the disk."""
        if await disk_of(context.node, "/") != below.name:
            raise TrialError(f"node {context.node.name}: its root file system is not on {below.path}")
        path = context.path("load")
        await context.node.carry_out(steps.make_directory(path, parents=True))
        return Dir(context.node.name, path, disk=below.name)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await mount_facts(context.node, "/")
