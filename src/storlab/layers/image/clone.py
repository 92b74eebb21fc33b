"""Layer ``image-clone``: a disk image that shares a base image's blocks until they are written."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.errors import CommandFailed, Unsupported
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.file import file_facts, remove_file
from storlab.layers.image.base import BASE_HELP, Base, base_file
from storlab.layers.image.qcow2 import ClusterSize, check_clusters, create_qcow2, qcow2_facts
from storlab.layers.resources import Dir, File, Format, Resource
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.units import Size


class ImageCloneLayer(Layer):
    """A disk image that takes what it has not written itself from a base image.

    ``qcow2``: an overlay with a backing file. ``reflink``: a raw file whose blocks the file system shares.
    """

    layer: Literal["image-clone"] = "image-clone"
    base: Base = Field(description=BASE_HELP)
    method: Literal["qcow2", "reflink"] = Field(
        "qcow2",
        description="`qcow2`: an overlay whose backing file is the base. `reflink`: a raw file that shares the base's "
        "blocks, on file systems that can (XFS, Btrfs, ZFS with block cloning).",
    )
    size: Size | None = Field(None, description="Size of the disk; without it, the base's.")
    cluster_size: ClusterSize | None = Field(None, description="`qcow2` only: 512 to 2M; qemu-img's default is 64k.")
    lazy_refcounts: bool = Field(False, description="`qcow2` only: put off updates of reference counts.")
    extended_l2: bool = Field(False, description="`qcow2` only: allocate 32nds of a cluster (from 16k clusters on).")

    takes: ClassVar = (None, Dir)
    gives: ClassVar = File
    undoes: ClassVar = (remove_file,)

    @model_validator(mode="after")
    def _options_of_this_method(self) -> Self:
        self.base.check_size(self.size)
        check_clusters(self.cluster_size, self.extended_l2)
        for name in ("cluster_size", "lazy_refcounts", "extended_l2"):
            if self.method != "qcow2" and getattr(self, name):
                raise ValueError(f'{name} is an option of method = "qcow2"; a {self.method} has none')
        return self

    def label(self) -> str:
        return f"clone by {self.method}"

    def file_format(self) -> Format:
        return "qcow2" if self.method == "qcow2" else "raw"

    def capacity(self) -> int | None:
        return self.size

    def needs(self) -> Needs:
        programs = ("qemu-img",) if self.method == "qcow2" else ("cp", "truncate")
        return self.base.needs() | Needs(programs=(*programs, "sync"))

    async def check_node(self, node: Node) -> None:
        await self.base.check_node(node)

    async def set_up(self, below: Resource | None, context: LayerContext) -> File:
        size = self.size or await self.base.length(context.node, self.size)
        await self.base.length(context.node, size)
        base = await base_file(self.base, below, context)
        suffix = "qcow2" if self.method == "qcow2" else "img"
        path = f"{below.path}/{context.owner}.{suffix}" if isinstance(below, Dir) else context.path(f"clone.{suffix}")
        await context.register_undo("file.remove", path=path)
        if self.method == "qcow2":
            options = {"lazy_refcounts": self.lazy_refcounts, "extended_l2": self.extended_l2}
            await create_qcow2(context.node, path, size, self.cluster_size, options, backing=base.path)
            return File(context.node.name, path, size, "qcow2", backing=base.path)
        await _reflink(context.node, base.path, path)
        await context.node.run(["truncate", "--size", str(size), path])
        await context.node.run(["sync", "--", path])
        return File(context.node.name, path, size)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, File)
        if resource.format == "qcow2":
            return await qcow2_facts(context.node, resource)
        return {"format": "raw", **await file_facts(context.node, resource.path)}


async def _reflink(node: Node, base: str, path: str) -> None:
    try:
        await node.run(["cp", "--reflink=always", "--", base, path])
    except CommandFailed as error:
        if "failed to clone" not in error.detail:
            raise
        filesystem = (await node.output("stat", "--file-system", "--format=%T", base)).strip()
        reason = error.detail.rpartition(": ")[2].strip()
        raise Unsupported(
            f"{filesystem} on node {node.name} can't share blocks between files ({reason}): put the images on XFS or "
            'Btrfs, or use method = "qcow2"'
        ) from None
