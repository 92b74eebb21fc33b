"""Layer ``overlay``: an overlayfs whose layers all lie in the underlying directory, as container engines set it up.

See Documentation/filesystems/overlayfs.rst in the kernel's sources.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.api import (
    CommandFailed,
    Dir,
    Layer,
    LayerContext,
    Needs,
    Node,
    RunPath,
    Unsupported,
    parse_mountinfo,
    undo,
)


@undo("overlay.unmount")
async def _unmount(node: Node, path: RunPath) -> str | None:
    mounts = parse_mountinfo(await node.read_text("/proc/self/mountinfo"))
    if not any(mount.path == path and mount.filesystem == "overlay" for mount in mounts):
        return None
    await node.run(["umount", "--", path])
    return f"unmounted {path}"


class OverlayLayer(Layer[Dir, Dir]):
    """An overlayfs over the underlying directory; new files go to its upper layer."""

    layer: Literal["overlay"] = "overlay"
    metacopy: bool | None = Field(None, description="Copy up metadata alone until data are written.")

    undoes: ClassVar = (_unmount,)

    def needs(self) -> Needs:
        return Needs(programs=("mount", "umount"), filesystems=("overlay",), root="mounts")

    async def set_up(self, below: Dir, context: LayerContext) -> Dir:
        folders = {name: f"{below.path}/{name}" for name in ("lower", "upper", "work")}
        merged = context.path("merged")
        await context.register_undo("overlay.unmount", path=merged)  # first the journal, then the act
        await context.node.run(["mkdir", "--parents", "--", merged, *folders.values()])
        options = [f"{name}dir={path}" for name, path in folders.items()]
        if self.metacopy is not None:
            options.append(f"metacopy={'on' if self.metacopy else 'off'}")
        try:
            await context.node.run(["mount", "-t", "overlay", "-o", ",".join(options), "overlay", merged])
        except CommandFailed as error:
            raise Unsupported(f"no overlayfs on top of this directory: {error}") from None
        return Dir(below.node, merged, disks=below.disks)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        mounts = parse_mountinfo(await context.node.read_text("/proc/self/mountinfo"))
        return {"options": next(mount.options for mount in mounts if mount.path == resource.path)}
