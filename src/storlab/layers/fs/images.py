"""Layer ``qcow2``: a blank disk image in QEMU's format, see docs/interop/qcow2.rst in QEMU's sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import CommandFailed, Unsupported
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.files import file_facts, remove_file
from storlab.layers.fs.image_base import BASE_HELP, Base, base_file, image_info, new_image
from storlab.layers.fs.mount import filesystem_under
from storlab.layers.resources import Dir, File, Format
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node

_SMALLEST_EXTENDED = 16 * 1024


ClusterSize = Annotated[Size, power_of_two("size of a cluster", 512, 2 * 1024**2)]


def check_clusters(cluster_size: int | None, extended_l2: bool) -> None:
    if extended_l2 and cluster_size is not None and cluster_size < _SMALLEST_EXTENDED:
        raise ValueError(f"extended_l2 needs clusters of at least 16k, not {size_text(cluster_size)}")


IMAGE = (
    "format", "virtual_size", "cluster_size", "lazy-refcounts", "extended-l2", "refcount-bits", "compat",
)  # fmt: skip
"""The facts of an image that are the same for all that are made in one way."""


class Qcow2Layer(Layer[Dir | None, File]):
    """A blank qcow2 image."""

    layer: Literal["qcow2"] = "qcow2"
    size: Size = Field(description="Size of the disk that it holds.")
    cluster_size: ClusterSize | None = Field(None, description="512 to 2M; qemu-img's default is 64k.")
    preallocation: Literal["off", "metadata", "falloc", "full"] = Field(
        "off",
        description="`metadata`: all tables are there. `falloc`: blocks are reserved, too. `full`: blocks are written.",
    )
    lazy_refcounts: bool = Field(False, description="Put off updates of reference counts; a crash costs a repair.")
    extended_l2: bool = Field(False, description="Allocate 32nds of a cluster (from 16k clusters on).")

    compared: ClassVar = IMAGE
    undoes: ClassVar = (remove_file,)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_clusters(self.cluster_size, self.extended_l2)
        return self

    def label(self) -> str:
        return f"qcow2 {size_text(self.size)}"

    def file_format(self) -> Format:
        return "qcow2"

    def capacity(self) -> int | None:
        return self.size

    def needs(self) -> Needs:
        return Needs(programs=("qemu-img", "sync"))

    def space(self) -> int:
        return self.size

    async def set_up(self, below: Dir | None, context: LayerContext) -> File:
        path = await new_image(below, context, "disk", "qcow2")
        options = {"lazy_refcounts": self.lazy_refcounts, "extended_l2": self.extended_l2}
        await create_qcow2(
            context.node, path, self.size, self.cluster_size, {**options, "preallocation": self.preallocation}
        )
        return File(context.node.name, path, self.size, "qcow2")

    async def facts(self, resource: File, context: LayerContext) -> dict[str, Any]:
        return await qcow2_facts(context.node, resource)


async def create_qcow2(
    node: Node,
    path: str,
    size: int,
    cluster_size: int | None,
    options: Mapping[str, bool | str],
    *,
    backing: str | None = None,
) -> None:
    """``qemu-img create``; ``options`` by qemu-img's names, ``backing`` a raw file."""
    words = [f"{name}={_word(value)}" for name, value in options.items()]
    words += [f"cluster_size={cluster_size}"] if cluster_size else []
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", ",".join(words)]
    argv += ["-F", "raw", "-b", backing] if backing else []
    await node.run([*argv, path, str(size)])
    await node.run(["sync", "--", path])


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else "on" if value else "off"


async def qcow2_facts(node: Node, image: File) -> dict[str, Any]:
    info = await image_info(node, image.path)
    more = info.format_specific.data
    return {
        "format": info.format,
        "virtual_size": info.virtual_size,
        "cluster_size": info.cluster_size,
        **{name: more[name] for name in ("lazy-refcounts", "extended-l2", "refcount-bits", "compat") if name in more},
        **({"backing": image.backing} if image.backing else {}),
        **await file_facts(node, image.path),
    }


# Layers ``image-copy`` and ``image-clone``: disk images that begin as a base image, apart or sharing its blocks.


class _OnBase(Layer[Dir | None, File]):
    base: Base = Field(description=BASE_HELP)
    size: Size | None = Field(None, description="Size of the disk; without it, the base's.")

    compared: ClassVar = IMAGE
    undoes: ClassVar = (remove_file,)

    @model_validator(mode="after")
    def _not_smaller(self) -> Self:
        self.base.check_size(self.size)
        return self

    def capacity(self) -> int | None:
        return self.size

    async def check_node(self, node: Node) -> None:
        await self.base.check_node(node)

    async def made_base(self, below: Dir | None, context: LayerContext) -> tuple[File, int]:
        size = self.size or await self.base.length(context.node, self.size)
        await self.base.length(context.node, size)
        return await base_file(self.base, below, context), size


class ImageCopyLayer(_OnBase):
    """A raw file that every byte of a base image was copied to, as `dd` does. It shares no blocks with the base."""

    layer: Literal["image-copy"] = "image-copy"

    def needs(self) -> Needs:
        return self.base.needs() | Needs(programs=("cp", "truncate", "sync"))

    def space(self) -> int:
        return self.base.data + (self.size or self.base.size or 0)

    async def set_up(self, below: Dir | None, context: LayerContext) -> File:
        base, size = await self.made_base(below, context)
        path = await new_image(below, context, "copy", "img")
        await context.node.run(["cp", "--reflink=never", "--sparse=always", "--", base.path, path])
        return await _extended(context.node, path, size)

    async def facts(self, resource: File, context: LayerContext) -> dict[str, Any]:
        return {"format": "raw", **await file_facts(context.node, resource.path)}


class ImageCloneLayer(_OnBase):
    """A disk image that takes what it has not written itself from a base image.

    ``qcow2``: an overlay with a backing file. ``reflink``: a raw file whose blocks the file system shares.
    """

    layer: Literal["image-clone"] = "image-clone"
    method: Literal["qcow2", "reflink"] = Field(
        "qcow2",
        description="`qcow2`: an overlay whose backing file is the base. `reflink`: a raw file that shares the base's "
        "blocks, on file systems that can (XFS, Btrfs, ZFS with block cloning).",
    )
    cluster_size: ClusterSize | None = Field(None, description="`qcow2` only: 512 to 2M; qemu-img's default is 64k.")
    lazy_refcounts: bool = Field(False, description="`qcow2` only: put off updates of reference counts.")
    extended_l2: bool = Field(False, description="`qcow2` only: allocate 32nds of a cluster (from 16k clusters on).")

    @model_validator(mode="after")
    def _options_of_this_method(self) -> Self:
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

    async def set_up(self, below: Dir | None, context: LayerContext) -> File:
        base, size = await self.made_base(below, context)
        path = await new_image(below, context, "clone", "qcow2" if self.method == "qcow2" else "img")
        if self.method == "qcow2":
            options = {"lazy_refcounts": self.lazy_refcounts, "extended_l2": self.extended_l2}
            await create_qcow2(context.node, path, size, self.cluster_size, options, backing=base.path)
            return File(context.node.name, path, size, "qcow2", backing=base.path)
        await _reflink(context.node, base.path, path)
        return await _extended(context.node, path, size)

    async def facts(self, resource: File, context: LayerContext) -> dict[str, Any]:
        if resource.format == "qcow2":
            return await qcow2_facts(context.node, resource)
        return {"format": "raw", **await file_facts(context.node, resource.path)}


async def _extended(node: Node, path: str, size: int) -> File:
    await node.run(["truncate", "--size", str(size), path])
    await node.run(["sync", "--", path])  # else it would still be written back while the load runs
    return File(node.name, path, size)


async def _reflink(node: Node, base: str, path: str) -> None:
    try:
        await node.run(["cp", "--reflink=always", "--", base, path])
    except CommandFailed as error:
        if "failed to clone" not in error.detail:
            raise
        filesystem = await filesystem_under(node, base)
        reason = error.detail.rpartition(": ")[2].strip()
        raise Unsupported(
            f"{filesystem} on node {node.name} can't share blocks between files ({reason}): put the images on XFS or "
            'Btrfs, or use method = "qcow2"'
        ) from None
