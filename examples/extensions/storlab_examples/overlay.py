"""Layer ``overlay``: an overlayfs whose layers all lie in the directory beneath, as container engines set it up.

See Documentation/filesystems/overlayfs.rst in the kernel's sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.errors import CommandFailed, Unsupported
from storlab.layers.base import Layer, Site, undo
from storlab.layers.mountinfo import parse_mountinfo
from storlab.layers.resources import Dir, Resource
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node


@undo("overlay.unmount")
async def _unmount(node: Node, arguments: Mapping[str, Any]) -> str | None:
    path = arguments["path"]
    mounts = parse_mountinfo(await node.read_text("/proc/self/mountinfo"))
    if not any(mount.path == path and mount.filesystem == "overlay" for mount in mounts):
        return None
    await node.run(["umount", "--", path])
    return f"unmounted {path}"


class OverlayLayer(Layer):
    """An overlayfs over the directory beneath; new files go to its upper layer."""

    layer: Literal["overlay"] = "overlay"
    metacopy: bool | None = Field(None, description="Copy up metadata alone until data are written.")

    takes: ClassVar = (Dir,)
    gives: ClassVar = Dir

    def needs(self) -> Needs:
        return Needs(programs=("mount", "umount"), filesystems=("overlay",), root="mounts")

    async def put_up(self, below: Resource | None, site: Site) -> Dir:
        assert isinstance(below, Dir)
        folders = {name: f"{below.path}/{name}" for name in ("lower", "upper", "work")}
        merged = site.path("merged")
        await site.will("overlay.unmount", path=merged)  # first the journal, then the act
        await site.node.run(["mkdir", "--parents", "--", merged, *folders.values()])
        options = [f"{name}dir={path}" for name, path in folders.items()]
        if self.metacopy is not None:
            options.append(f"metacopy={'on' if self.metacopy else 'off'}")
        try:
            await site.node.run(["mount", "-t", "overlay", "-o", ",".join(options), "overlay", merged])
        except CommandFailed as error:
            raise Unsupported(f"no overlayfs on top of this directory: {error}") from None
        return Dir(below.node, merged, disk=below.disk)

    async def facts(self, resource: Resource, site: Site) -> dict[str, Any]:
        assert isinstance(resource, Dir)
        mounts = parse_mountinfo(await site.node.read_text("/proc/self/mountinfo"))
        return {"options": next(mount.options for mount in mounts if mount.path == resource.path)}
