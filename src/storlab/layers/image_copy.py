"""Layer ``image-copy``: a disk image as a full copy of a base image."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.base import Layer, Site
from storlab.layers.base_image import BASE_HELP, Base, base_file
from storlab.layers.file import file_facts
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

    @model_validator(mode="after")
    def _not_smaller(self) -> Self:
        self.base.check_size(self.size)
        return self

    def needs(self) -> Needs:
        return self.base.needs() | Needs(programs=("cp", "truncate", "sync"))

    def space(self) -> int:
        return self.base.data + (self.size or self.base.size or 0)

    async def check_node(self, node: Node) -> None:
        await self.base.check_node(node)

    async def put_up(self, below: Resource | None, site: Site) -> File:
        size = self.size or await self.base.length(site.node, self.size)
        await self.base.length(site.node, size)
        base = await base_file(self.base, below, site)
        path = f"{below.path}/{site.owner}.img" if isinstance(below, Dir) else site.path("copy.img")
        await site.will("file.remove", path=path)
        await site.node.run(["cp", "--reflink=never", "--sparse=always", "--", base.path, path])
        await site.node.run(["truncate", "--size", str(size), path])
        await site.node.run(["sync", "--", path])  # else it would still be written back while the load runs
        return File(site.node.name, path, size)

    async def facts(self, resource: Resource, site: Site) -> dict[str, Any]:
        assert isinstance(resource, File)
        return {"format": "raw", **await file_facts(site.node, resource.path)}
