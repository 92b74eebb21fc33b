"""Layer ``qcow2``: a blank disk image in QEMU's format, see docs/interop/qcow2.rst in QEMU's sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.file import file_facts, remove_file
from storlab.layers.image.base import image_info, new_image
from storlab.layers.resources import Dir, File, Format
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.units import Size, power_of_two, size_text

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
