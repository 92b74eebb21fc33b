"""Layer ``overlayfs``: an image below, a container's own layer above it, as container engines mount them.

Documentation/filesystems/overlayfs.rst in the kernel's sources. What is written to a file of the image is copied up
first: as a clone where the underlying file system can (XFS, Btrfs), else byte by byte.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mount import mount_attached, mount_facts, unmount
from storlab.layers.resources import Dir
from storlab.nodes.needs import Needs
from storlab.units import Size

_SAYS = re.compile("^overlayfs")
_IMAGE = 'head --bytes="$2" /dev/urandom | split --bytes="$3" --suffix-length=6 --numeric-suffixes - "$1/"'


class OverlayfsLayer(Layer[Dir, Dir]):
    """An overlayfs on the underlying directory. Its lower layer has an image of files, in the folder `image`."""

    layer: Literal["overlayfs"] = "overlayfs"
    files: int = Field(0, ge=0, le=900_000, strict=True, description="How many files the image has.")
    size: Size = Field(16 * 1024, ge=1, description="Bytes of each of them.")
    metacopy: bool | None = Field(
        None, description="Copy up metadata alone until data are written; by default as the kernel does."
    )

    undoes: ClassVar = (unmount,)

    def needs(self) -> Needs:
        return Needs(programs=("mount", "umount", "split"), filesystems=("overlay",), root="mounts")

    async def set_up(self, below: Dir, context: LayerContext) -> Dir:
        folders = {name: f"{below.path}/{name}" for name in ("lower", "upper", "work")}
        image, merged = f"{folders['lower']}/image", context.path("merged")
        await context.register_undo("mount.unmount", path=merged)
        await context.node.run(["mkdir", "--parents", "--", merged, image, folders["upper"], folders["work"]])
        if self.files:
            numbers = (str(self.files * self.size), str(self.size))
            await context.node.run(["sh", "-c", _IMAGE, "image", image, *numbers])
        options = [f"{name}dir={path}" for name, path in folders.items()]
        if self.metacopy is not None:
            options.append(f"metacopy={'on' if self.metacopy else 'off'}")
        await mount_attached(context.node, "overlay", ["-o", ",".join(options), "overlay", merged], _SAYS)
        return Dir(below.node, merged, disk=below.disk)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await mount_facts(context.node, resource.path)
