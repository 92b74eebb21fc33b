"""Layer ``virtiofs``: a virtual machine's mount of what ``virtiofsd`` serves.

See Documentation/filesystems/virtiofs.rst in the kernel's sources, hw/virtio/vhost-user-fs.c in QEMU's.
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.attach.virtiofsd import VirtiofsdLayer
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.fs.mount import mount_attached, mount_facts, unmount
from storlab.layers.fs.options import OfVirtiofs
from storlab.layers.resources import Dir, Share
from storlab.layers.share.client import CLIENTS
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.needs import Needs
from storlab.units import Size, power_of_two

_SAYS = re.compile(r"^(virtiofs|virtio_fs|fuse)")
_PATIENCE = 60.0  # s for a mount, in an emulated guest beside others
_DEVICE, _WINDOW = "vhost-user-fs-pci", "cache-size"
_SILENT = 5.0  # s; what is given up for nothing belongs to a trial that has failed


class VirtiofsLayer(Crossing[Share, Dir]):
    """The directory that a virtiofsd of the guest's own serves."""

    layer: Literal["virtiofs"] = "virtiofs"
    queue_size: Annotated[int, power_of_two("length of a queue", 2, 1024)] = Field(
        128, description="Requests in flight, a power of two up to 1024; QEMU's default is 128."
    )
    queues: int = Field(1, ge=1, le=64, description="Request queues.")
    dax: Literal["never", "always", "inode"] = Field(
        "never", description="Whether files are mapped from the host's page cache, through the window of `cache_size`."
    )
    cache_size: Annotated[Size | None, power_of_two("size of a DAX window", 4096, 2**46)] = Field(
        None,
        description="The DAX window, such as `16G`: a power of two. Debian's QEMU has none; name one that has with "
        "`qemu`. A guest with a window is booted each time.",
    )
    options: OfVirtiofs = Field((), description='Further [mount options](options.md): "noatime" or a list.')

    compared: ClassVar = ("queue_size", "queues", "cache_size", "filesystem", "options")
    transport: ClassVar = "hypervisor"
    requests: ClassVar = "fuse"
    undoes: ClassVar = (unmount,)

    @model_validator(mode="after")
    def _with_a_window(self) -> Self:
        if self.dax != "never" and self.cache_size is None:
            raise ValueError(f'dax = "{self.dax}" takes a window to map files in: write cache_size = "16G"')
        return self

    def label(self) -> str:
        return "virtiofs" + (f" dax={self.dax}" if self.dax != "never" else "")

    def check_above(self, below: Layer | None) -> str | None:
        if below is None or getattr(below, "protocol", "") == VirtiofsdLayer.protocol:
            return None
        served = getattr(below, "protocol", "")
        right = f'write {{ layer = "{CLIENTS[served]}" }}' if served in CLIENTS else "put virtiofsd below it"
        return f"it mounts what virtiofsd serves, and layer {below.layer} is no virtiofsd: {right}"

    def needs(self) -> Needs:
        window = () if self.cache_size is None else (f"{_DEVICE}.{_WINDOW}",)
        return Needs(filesystems=("virtiofs",), properties=window, root="mounts")

    def demands(self, below: Share, slot: str) -> Demands:
        chardev = f"{slot}-socket"
        queues = {"queue-size": self.queue_size, "num-request-queues": self.queues}
        window = {} if self.cache_size is None else {_WINDOW: self.cache_size}
        device = {"driver": _DEVICE, "id": f"{slot}-device", "chardev": chardev, "tag": slot, **queues, **window}
        devices = Devices(chardevs=((chardev, below.socket),), devices=(device,))
        # Room for the window in the guest's address space is made when it boots, and not for what is plugged in later.
        return Demands(devices, shared_memory=True, cold=bool(window))

    async def set_up(self, below: Share, context: LayerContext) -> Dir:
        node, path = context.node, context.path("virtiofs")
        await load_modules(node, "virtiofs")
        await context.register_undo("mount.unmount", path=path)
        await node.carry_out(steps.make_directory(path, parents=True))
        options = [*self.options, *(() if self.dax == "never" else (f"dax={self.dax}",))]
        words = ["-o", ",".join(options)] if options else []
        # That a device has no window for DAX is logged when it appears, and not when it is mounted.
        since = "" if self.dax != "never" else None
        words = [*words, "--", context.slot, path]
        await mount_attached(node, "virtiofs", words, _SAYS, since=since, timeout=_PATIENCE)
        return Dir(node.name, path)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        asked = {"queue_size": self.queue_size, "queues": self.queues, "cache_size": self.cache_size}
        return {**asked, **await mount_facts(context.node, resource.path)}

    async def sever(self, resource: Dir, context: LayerContext) -> None:
        """Give the guest up where its daemon is gone: no request ever returns then, unmounting included."""
        try:
            async with asyncio.timeout(_SILENT):
                await context.node.run(["stat", "--file-system", "--", resource.path], check=False)
        except TimeoutError:
            context.node.connection.give_up(f"its virtiofsd did not answer within {_SILENT:g} s")
