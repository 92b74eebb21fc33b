"""Base images: what a fresh disk already holds, made once and shared by all disks on the same foundation.

The data of an image that Storlab makes come from fio's generator with a fixed seed, so every run has the same ones.
They can't be compressed or deduplicated.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self

import msgspec
import orjson
from msgspec import Struct
from pydantic import Field, model_validator

from storlab.base.errors import UserError
from storlab.base.reach import ReadsFile
from storlab.base.record import Count, read_answer
from storlab.base.text import one_line
from storlab.base.units import Size, size_text
from storlab.layers.base import LayerContext
from storlab.layers.fs.files import refuse_no_file
from storlab.layers.resources import Dir, File, Resource
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.node import Confinement, Node
from storlab.nodes.privileges import TOOLS, confinement

_SEED = 20240316
_GRAIN = 4096
_LARGEST_WRITE = 1024**2
_SYSTEM = 2 * 1024**3  # bytes: more than the root file system of any image of ours takes up

BASE_HELP = (
    'The image that it starts from: `{ size = "4G", written = "256M" }` is one whose first `written` bytes are '
    "incompressible data, always the same, and the rest a hole (without `written`: all of it is data); "
    '`{ file = "/srv/image.qcow2" }` is one of yours, raw or qcow2, which stays as it is; '
    '`{ system = true, size = "20G" }` holds the root file system of the virtual machines, for the layer `root`. '
    "It is made once and shared by all nodes on the same foundation."
)


class Base(Model):
    """A base image: one that Storlab makes, or the user's."""

    size: Size | None = Field(None, description="Size of an image that Storlab makes.")
    written: Size | None = Field(None, description="Bytes from its start on that are data; without it, all are.")
    file: ReadsFile | None = Field(None, description="An image of yours on the node, raw or qcow2 and whole by itself.")
    system: bool = Field(False, description="It holds the root file system of the guest image, as ext4.")

    @model_validator(mode="after")
    def _made_or_given(self) -> Self:
        if (self.size is None) == (self.file is None):
            raise ValueError('a base has either a size, such as size = "4G", or the path of an image as its file')
        if self.file is not None and self.written is not None:
            raise ValueError("written is for a base that Storlab makes, with size; a file is taken as it is")
        if self.system and (self.written is not None or (self.size or 0) < _SYSTEM):
            raise ValueError("system = true goes with a size of 2G or more, and without file and written")
        for name, value in (("size", self.size), ("written", self.written)):
            if value is not None and value % _GRAIN:
                raise ValueError(f"{name} = {value} is no multiple of 4k")
        if self.size is not None and not self.size:
            raise ValueError("a base of size 0 holds nothing")
        if self.size is not None and self.written is not None and self.written > self.size:
            raise ValueError(f"written ({size_text(self.written)}) is more than the size ({size_text(self.size)})")
        return self

    @property
    def data(self) -> int:
        """Bytes of data, where that is known before it is looked at."""
        if self.system:
            return _SYSTEM
        return self.size or 0 if self.written is None else self.written

    async def key(self, context: LayerContext, *more: object) -> str:
        """A name for it and for how it is kept, of 12 hexadecimal digits."""
        if self.system:
            more = (*more, (await context.system(self.size or 0)).parent.name)
        described = orjson.dumps([self.model_dump(mode="json"), *map(repr, more)])
        return hashlib.sha256(described).hexdigest()[:12]

    def needs(self) -> Needs:
        return Needs(
            programs=("sync", "truncate") if self.system else ("fio", "truncate") if self.size else ("qemu-img",)
        )

    def check_size(self, size: int | None) -> None:
        if size is not None and self.size is not None and size < self.size:
            raise ValueError(f"size ({size_text(size)}) is less than the base's ({size_text(self.size)})")

    async def check_node(self, node: Node) -> None:
        if self.file is not None:
            await refuse_no_file(node, self.file, ("base", "file"), "image")

    async def length(self, node: Node, size: int | None) -> int:
        """Bytes of the disk that it holds. Raises ``UserError`` where a disk on it is to have fewer."""
        if self.size is not None:
            return self.size
        length = (await _given_image(node, str(self.file))).virtual_size
        if size is not None and size < length:
            raise UserError(
                f"size ({size_text(size)}) is less than that of the image {self.file} ({size_text(length)}): "
                "make it larger, or leave it out",
                ("size",),
            )
        return length

    async def fill(self, context: LayerContext, target: str) -> None:
        node = context.node
        if self.system:
            await node.fill(target, await context.system(self.size or 0))
        elif self.file is not None:
            source = await _given_image(node, self.file)
            argv = ["qemu-img", "convert", "-n", "--target-is-zero", "-O", "raw", f"json:{source.opened(self.file)}"]
            await node.confined(_of_qemu_img(node, target)).run([*argv, target])
        elif self.data:
            await node.run(_fio(target, self.data))


def _fio(target: str, data: int) -> list[str]:
    block = min(data & -data, _LARGEST_WRITE)  # the largest power of two that divides it
    return [
        *("fio", "--name=base", "--output=/dev/null", "--ioengine=psync", "--rw=write", "--fallocate=none"),
        *(f"--filename={target.replace(':', chr(92) + ':')}", f"--bs={block}", f"--size={data}"),
        *(f"--randseed={_SEED}", "--allrandrepeat=1", "--refill_buffers=1", "--end_fsync=1"),
    ]


class _Specific(Struct, frozen=True):
    data: dict[str, Any] = {}


class ImageInfo(Struct, frozen=True, rename="kebab"):
    """An image. ``virtual_size``: bytes of the disk that it holds; ``format_specific``: by QEMU's own names.

    ``backing_filename``: the other one that holds what this one does not, by its own words.
    """

    format: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")]
    virtual_size: Count
    cluster_size: Count | None = None
    format_specific: _Specific = _Specific()
    backing_filename: str | None = None

    def opened(self, path: str) -> str:
        """How QEMU is to open it: as what it is, and without any other file that it may name."""
        alone = {"backing": None} if self.format == "qcow2" else {}
        return orjson.dumps({"driver": self.format, "file": {"driver": "file", "filename": path}, **alone}).decode()


def parse_image_info(text: str) -> ImageInfo:
    return read_answer(text, ImageInfo, "qemu-img")


async def image_info(node: Node, path: str) -> ImageInfo:
    alone = node.confined(_of_qemu_img(node, path))  # an image may name others, which are opened, too
    return parse_image_info(await alone.output("qemu-img", "info", "--force-share", "--output=json", path))


async def _given_image(node: Node, path: str) -> ImageInfo:
    """Of the user's image. Raises ``UserError`` for one that is not whole by itself: others, and so other files of this
    machine, would become part of the disk.
    """
    info = await image_info(node, path)
    if info.format not in ("raw", "qcow2"):
        raise UserError(f"node {node.name}: {path} is an image in the format {info.format}: take a raw or qcow2 one")
    other = info.backing_filename or info.format_specific.data.get("data-file")
    if other is not None:
        raise UserError(
            f"node {node.name}: {path} has its data in another file, {one_line(str(other))}: "
            "`qemu-img convert -O qcow2` makes an image of it that is whole by itself"
        )
    return info


def _of_qemu_img(node: Node, device: str) -> Confinement:
    return confinement(node, TOOLS["qemu-img"], devices=(device,))


async def base_file(base: Base, below: Resource | None, context: LayerContext) -> File:
    """The raw file that holds the base, in the underlying directory or the scratch folder. Made by the first user."""

    name = f"base-{await base.key(context)}.img"

    async def make() -> File:
        path = f"{below.path}/{name}" if isinstance(below, Dir) else context.path(name)
        await context.foundation.register_undo("file.remove", path=path)
        size = await base.length(context.node, None)
        await context.node.run(["truncate", "--size", str(size), path])
        await base.fill(context, path)
        await context.node.run(["sync", "--", path])
        return File(context.node.name, path, size)

    return await context.once(f"{below.path if isinstance(below, Dir) else ''}/{name}", make)


async def new_image(below: Resource | None, context: LayerContext, name: str, ending: str) -> str:
    """Where the image of its owner goes: into the underlying directory, or else ``name`` in the scratch folder.

    It is announced, so that it is removed again.
    """
    own = f"{context.owner}.{ending}"
    path = f"{below.path}/{own}" if isinstance(below, Dir) else context.path(f"{name}.{ending}")
    await context.register_undo("file.remove", path=path)
    return path
