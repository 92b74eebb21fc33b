"""Layer ``directory``: a directory that exists already. Needs no privileges."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.errors import UserError
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mount import filesystem_under, mount_under
from storlab.layers.resources import Dir
from storlab.nodes.accounts import make_private, private_name, refuse_replaceable
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.undo import LONG, RunPath, remove_folder, undo
from storlab.reach import WritesFile


@undo("directory.remove", patience=LONG, outlives_boot=True)
async def _remove(node: Node, path: RunPath) -> str | None:
    return await remove_folder(node, path)


class DirectoryLayer(Layer[None, Dir]):
    """An existing directory; Storlab works in a subfolder of its own and removes that again."""

    layer: Literal["directory"] = "directory"
    path: WritesFile | None = Field(
        None, description="The directory, on the node. Without it: the study's scratch folder."
    )

    compared: ClassVar = ("filesystem", "options")
    undoes: ClassVar = (_remove,)

    def existing_directory(self, scratch: str) -> str | None:
        return self.path or scratch

    async def check_node(self, node: Node) -> None:
        if self.path is None:
            return
        if not self.path.startswith("/"):
            raise UserError(f"directory {self.path}: write an absolute path, beginning with /")
        if not (await node.run(["test", "-d", self.path], check=False)).ok:
            raise UserError(f"node {node.name}: there is no directory {self.path}; make it first, or name another")
        if not (await node.run(["test", "-w", self.path], check=False)).ok:
            raise UserError(f"node {node.name}: cannot write to the directory {self.path}")
        await refuse_replaceable(node, self.path)

    async def set_up(self, below: None, context: LayerContext) -> Dir:
        # The kernel names mounts and loop devices by real paths, and so must the journal.
        real = await context.node.output("readlink", "--canonicalize-existing", self.path or context.scratch)
        path = f"{real.removesuffix(chr(10)).rstrip('/')}/.{private_name(context.run)}"
        await context.register_undo("directory.remove", path=path)
        await make_private(context.node, path)
        return Dir(context.node.name, path, disk=await disk_of(context.node, path))

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        top = await mount_under(context.node, resource.path)
        if top is None:
            return {"filesystem": await filesystem_under(context.node, resource.path)}
        return {"filesystem": top.filesystem, "source": top.source, "mounted_on": top.path, "options": top.options}


async def disk_of(node: Node, path: str) -> str | None:
    """The kernel's name of the underlying disk a path; ``None`` where there is none (tmpfs, NFS) or it is not known."""
    (looked,) = await node.carry_out(steps.look(path))
    (link,) = await node.carry_out(steps.readlink(steps.disk_link(looked.result.device or 0)), go_on=True)
    return link.text.rpartition("/")[2] or None
