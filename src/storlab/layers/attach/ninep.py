"""Layer ``9p``: a directory of the machine that runs QEMU, in a guest; docs/system/devices and 9p(5) of Linux."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.errors import CommandFailed, Unsupported
from storlab.layers.base import Crossing, LayerContext
from storlab.layers.fs.mount import unmount
from storlab.layers.resources import Dir, Resource
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.needs import Needs
from storlab.units import Size


class NinePLayer(Crossing):
    """A folder that QEMU itself serves, by the protocol 9P."""

    layer: Literal["9p"] = "9p"
    cache: Literal["none", "mmap", "loose"] = Field(
        "none", description="`none`: the guest caches nothing. `mmap`: what is mapped. `loose`: all, never checked."
    )
    msize: Size = Field(512 * 1024, ge=4096, le=1024 * 1024, description="Largest message in bytes.")
    security_model: Literal["none", "passthrough", "mapped-xattr", "mapped-file"] = Field(
        "mapped-xattr", description="How owners and modes of the guest's files are kept on the host."
    )

    takes: ClassVar = (Dir,)
    gives: ClassVar = Dir
    transport: ClassVar = "hypervisor"
    undoes: ClassVar = (unmount,)

    def label(self) -> str:
        return f"9p cache={self.cache}"

    def needs(self) -> Needs:
        return Needs(filesystems=("9p",), modules=("9pnet_virtio",), root="mounts")

    def demands(self, below: Resource, slot: str) -> Demands:
        assert isinstance(below, Dir)
        share = {"fsdriver": "local", "id": slot, "path": below.path, "security_model": self.security_model}
        device = {"driver": "virtio-9p-pci", "id": f"{slot}-device", "fsdev": slot, "mount_tag": slot}
        return Demands(Devices(fsdevs=(share,), devices=(device,)))

    def at_home(self, below: Any) -> tuple[()]:
        return ()

    async def set_up(self, below: Resource | None, context: LayerContext) -> Dir:
        path = context.path("9p")
        await context.node.run(["modprobe", "-a", "9pnet_virtio", "9p"], check=False)
        await context.register_undo("mount.unmount", path=path)
        await context.node.run(["mkdir", "--parents", "--", path])
        options = f"trans=virtio,version=9p2000.L,cache={self.cache},msize={self.msize}"
        try:
            await context.node.run(["mount", "-t", "9p", "-o", options, context.slot, path])
        except CommandFailed as error:
            raise Unsupported(f"this kernel refuses such a mount of 9p: {error}") from None
        return Dir(context.node.name, path)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Dir)
        mounts = (await context.node.read_text("/proc/self/mountinfo")).splitlines()
        options = [line.split()[-1] for line in mounts if line.split()[4:5] == [resource.path]]
        return {"options": options[-1].split(",") if options else []}
