"""Layer ``9p``: a directory of the machine that runs QEMU, in a guest; docs/system/devices and 9p(5) of Linux."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storlab.base.units import Size
from storlab.layers.base import Crossing, LayerContext
from storlab.layers.fs.mkfs import Of9p
from storlab.layers.fs.mount import mount_attached, mount_facts, unmount
from storlab.layers.resources import Dir
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.needs import Needs

_LARGEST = 500 * 1024  # bytes; the transport's own limit, see p9_virtio_trans in net/9p/trans_virtio.c
_SAYS = re.compile("^9p")


class NinePLayer(Crossing[Dir, Dir]):
    """A folder that QEMU itself serves, by the protocol 9P."""

    layer: Literal["9p"] = "9p"
    cache: Literal["none", "mmap", "loose"] = Field(
        "none", description="`none`: the guest caches nothing. `mmap`: what is mapped. `loose`: all, never checked."
    )
    msize: Annotated[Size, Field(ge=4096, le=_LARGEST)] | Literal["default"] = Field(
        _LARGEST,
        description="Largest message: at most 500k, as much as virtio carries. `default`: the guest's kernel's.",
    )
    sync: bool = Field(False, description="Mounted with `sync,dirsync`: each write waits until the host has it.")
    options: Of9p = Field((), description='Further [mount options](options.md): "noatime" or a list.')
    multidevs: Literal["remap", "forbid", "warn"] = Field(
        "remap", description="What to do where the directory has several file systems, with equal inode numbers."
    )
    security_model: Literal["none", "passthrough", "mapped-xattr", "mapped-file"] = Field(
        "mapped-xattr", description="How owners and modes of the guest's files are kept on the host."
    )

    compared: ClassVar = ("filesystem", "options")
    transport: ClassVar = "hypervisor"
    requests: ClassVar = "9p"
    undoes: ClassVar = (unmount,)

    def label(self) -> str:
        return f"9p cache={self.cache}"

    def needs(self) -> Needs:
        return Needs(filesystems=("9p",), modules=("9pnet_virtio",), root="mounts")

    def demands(self, below: Dir, slot: str) -> Demands:
        how = {"security_model": self.security_model, "multidevs": self.multidevs}
        share = {"fsdriver": "local", "id": slot, "path": below.path, **how}
        device = {"driver": "virtio-9p-pci", "id": f"{slot}-device", "fsdev": slot, "mount_tag": slot}
        return Demands(Devices(fsdevs=(share,), devices=(device,)))

    def at_home(self, below: Any) -> tuple[()]:
        return ()

    async def set_up(self, below: Dir, context: LayerContext) -> Dir:
        path = context.path("9p")
        await load_modules(context.node, "9pnet_virtio", "9p")
        await context.register_undo("mount.unmount", path=path)
        await context.node.carry_out(steps.make_directory(path, parents=True))
        size = [] if self.msize == "default" else [f"msize={self.msize}"]
        options = [*self.options, "trans=virtio", "version=9p2000.L", f"cache={self.cache}", *size]
        words = ",".join([*options, *(("sync", "dirsync") if self.sync else ())])
        await mount_attached(context.node, "9p", ["-o", words, "--", context.slot, path], _SAYS)
        return Dir(context.node.name, path)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await mount_facts(context.node, resource.path)
