"""Layer ``image-copy``: a disk image as a full copy of a base image."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.file import file_facts, remove_file
from storlab.layers.image.base import BASE_HELP, Base, base_file
from storlab.layers.resources import Dir, File, Resource
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.units import Size


class ImageCopyLayer(Layer):
    """A raw file that every byte of a base image was copied to, as `dd` does. It shares no blocks with the base."""

    layer: Literal["image-copy"] = "image-copy"
    base: Base = Field(description=BASE_HELP)
    size: Size | None = Field(None, description="Size of the disk; without it, the base's.")

    takes: ClassVar = (None, Dir)
    gives: ClassVar = File
    undoes: ClassVar = (remove_file,)

    @model_validator(mode="after")
    def _not_smaller(self) -> Self:
        self.base.check_size(self.size)
        return self

    def capacity(self) -> int | None:
        return self.size

    def needs(self) -> Needs:
        return self.base.needs() | Needs(programs=("cp", "truncate", "sync"))

    def space(self) -> int:
        return self.base.data + (self.size or self.base.size or 0)

    async def check_node(self, node: Node) -> None:
        await self.base.check_node(node)

    async def set_up(self, below: Resource | None, context: LayerContext) -> File:
        size = self.size or await self.base.length(context.node, self.size)
        await self.base.length(context.node, size)
        base = await base_file(self.base, below, context)
        path = f"{below.path}/{context.owner}.img" if isinstance(below, Dir) else context.path("copy.img")
        await context.register_undo("file.remove", path=path)
        await context.node.run(["cp", "--reflink=never", "--sparse=always", "--", base.path, path])
        await context.node.run(["truncate", "--size", str(size), path])
        await context.node.run(["sync", "--", path])  # else it would still be written back while the load runs
        return File(context.node.name, path, size)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, File)
        return {"format": "raw", **await file_facts(context.node, resource.path)}
