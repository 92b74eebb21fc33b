"""Layer ``image-clone``: a disk image that shares a base image's blocks until they are written."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.errors import CommandFailed, Unsupported
from storlab.layers.base import Layer, Site
from storlab.layers.base_image import BASE_HELP, Base, base_file
from storlab.layers.file import file_facts
from storlab.layers.qcow2 import ClusterSize, check_clusters, create_qcow2, qcow2_facts
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

    def needs(self) -> Needs:
        programs = ("qemu-img",) if self.method == "qcow2" else ("cp", "truncate")
        return self.base.needs() | Needs(programs=(*programs, "sync"))

    async def check_node(self, node: Node) -> None:
        await self.base.check_node(node)

    async def put_up(self, below: Resource | None, site: Site) -> File:
        size = self.size or await self.base.length(site.node, self.size)
        await self.base.length(site.node, size)
        base = await base_file(self.base, below, site)
        suffix = "qcow2" if self.method == "qcow2" else "img"
        path = f"{below.path}/{site.owner}.{suffix}" if isinstance(below, Dir) else site.path(f"clone.{suffix}")
        await site.will("file.remove", path=path)
        if self.method == "qcow2":
            options = {"lazy_refcounts": self.lazy_refcounts, "extended_l2": self.extended_l2}
            await create_qcow2(site.node, path, size, self.cluster_size, options, backing=base.path)
            return File(site.node.name, path, size, "qcow2", backing=base.path)
        await _reflink(site.node, base.path, path)
        await site.node.run(["truncate", "--size", str(size), path])
        await site.node.run(["sync", "--", path])
        return File(site.node.name, path, size)

    async def facts(self, resource: Resource, site: Site) -> dict[str, Any]:
        assert isinstance(resource, File)
        if resource.format == "qcow2":
            return await qcow2_facts(site.node, resource)
        return {"format": "raw", **await file_facts(site.node, resource.path)}


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
