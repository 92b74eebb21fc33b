"""Layers ``directory``, one that exists already, and ``file``, in the scratch folder or in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import UserError
from storlab.base.reach import ReadsFile, WritesFile
from storlab.base.units import Size, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mount import filesystem_under, mount_under
from storlab.layers.resources import Dir, File
from storlab.layers.stack import Plan, PlannedLayer
from storlab.nodes.accounts import make_private, private_name, refuse_replaceable
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import LONG, RunPath, remove_folder, undo


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
        return Dir(context.node.name, path, disks=await disks_of(context.node, path))

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        top = await mount_under(context.node, resource.path)
        if top is None:
            return {"filesystem": await filesystem_under(context.node, resource.path)}
        return {"filesystem": top.filesystem, "source": top.source, "mounted_on": top.path, "options": top.options}


async def disks_of(node: Node, path: str) -> tuple[str, ...]:
    """The kernel's name of the disk underneath a path; none where there is none (tmpfs, NFS) or it is not known."""
    (looked,) = await node.carry_out(steps.look(path))
    (link,) = await node.carry_out(steps.readlink(steps.disk_link(looked.result.device or 0)), go_on=True)
    name = link.text.rpartition("/")[2]
    return (name,) if name else ()


@undo("file.remove", patience=LONG, outlives_boot=True)
async def remove_file(node: Node, path: RunPath) -> str | None:
    return await remove_folder(node, path, itself=False)


class FileLayer(PlannedLayer[Dir | None, File]):
    """A regular file: sparse, preallocated or written full, or a copy of another file."""

    layer: Literal["file"] = "file"
    size: Size | None = Field(None, description="Size of the file; with `copy`, the copy is extended to it.")
    allocate: Literal["sparse", "preallocated", "written"] = Field(
        "sparse",
        description="`sparse`: no blocks yet (truncate). `preallocated`: blocks reserved, unwritten (fallocate). "
        "`written`: every block written with random data, as on a disk that has been in use.",
    )
    copy_of: ReadsFile | None = Field(None, alias="copy", description="Path of a file to copy, on the node.")
    overcommit: bool = Field(False, description="Allow a sparse file that is larger than the free space.")

    compared: ClassVar = ("size",)
    undoes: ClassVar = (remove_file,)

    @model_validator(mode="after")
    def _size_or_copy(self) -> Self:
        if self.size is None and self.copy_of is None:
            raise ValueError('it needs a size, such as size = "1G", or the path of a file to copy')
        if self.copy_of is not None and self.allocate != "sparse":
            raise ValueError(f"allocate = {self.allocate!r} does not go together with copy: a copy is written")
        if self.overcommit and self.allocate != "sparse":
            raise ValueError("overcommit is for sparse files only")
        return self

    def label(self) -> str:
        return f"file {size_text(self.size)}" if self.size else f"copy of {self.copy_of}"

    def needs(self) -> Needs:
        return Needs(programs=("truncate", "fallocate", "dd", "cp"))

    def space(self) -> int:
        return 0 if self.overcommit else self.size or 0

    def overcommitted(self) -> int:
        return self.size or 0 if self.overcommit else 0

    def capacity(self) -> int | None:
        return self.size

    async def check_node(self, node: Node) -> None:
        if self.copy_of is not None:
            await refuse_no_file(node, self.copy_of, ("copy",))

    def plan(self, below: Dir | None, context: LayerContext) -> Plan:
        node = context.node
        path = f"{below.path}/{context.owner}.img" if isinstance(below, Dir) else context.path("file.img")

        async def of_its_size(done: Sequence[steps.Done]) -> File:
            return File(node.name, path, done[-1].result.size or 0)

        made = tuple(self._made(node, path))
        undo = (("file.remove", {"path": path}),)
        if self.size is not None:
            return Plan(File(node.name, path, self.size), made, undo)
        return Plan(of_its_size, (*made, steps.look(path)), undo)

    def _made(self, node: Node, path: str) -> Iterator[steps.Step]:
        if self.copy_of is not None:
            yield node.command(["cp", "--reflink=auto", "--sparse=auto", "--", self.copy_of, path])
        if self.size is not None:
            size = str(self.size)
            match self.allocate:
                case "sparse":
                    yield steps.resize(path, self.size)
                case "preallocated":
                    yield node.command(["fallocate", "--length", size, path])
                case "written":
                    # Random data: zeros would be a hole, or compressed away, on some underlying file systems.
                    argv = ["dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size}"]
                    yield node.command([*argv, "iflag=fullblock,count_bytes", "conv=fsync", "status=none"])

    async def facts(self, resource: File, context: LayerContext) -> dict[str, Any]:
        return await file_facts(context.node, resource.path)


_WITHOUT_A_DEVICE = frozenset(
    ("tmpfs", "ramfs", "overlay", "zfs", "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse", "ceph")
)
"""File systems that keep files, though on no block device of the machine's."""


async def refuse_no_file(node: Node, path: str, key: tuple[str, ...], what: str = "file") -> None:
    """Raise ``UserError`` unless it is a regular file of a file system that keeps files.

    Files of others, such as proc's, are made when they are read: some never end, and some are used up by it.
    """
    found = await node.run(["readlink", "--canonicalize-existing", "--", path], check=False)
    real = found.stdout.decode(errors="surrogateescape").removesuffix("\n")
    if not found.ok or not (await node.run(["test", "-f", real], check=False)).ok:
        raise UserError(f"node {node.name}: there is no {what} {path}", key)
    kind = await filesystem_under(node, real)
    lines = (await node.read_text("/proc/filesystems")).splitlines()
    on_devices = {line.strip() for line in lines if not line.startswith("nodev")}
    if kind.partition(".")[0] not in on_devices | _WITHOUT_A_DEVICE:
        raise UserError(f"node {node.name}: {path} is a file of {kind}, which keeps none: name one on a disk", key)


async def file_facts(node: Node, path: str) -> dict[str, Any]:
    """Its size, the bytes that it takes up, and what it lies on, which decides what a sync is."""
    (found,) = await node.carry_out(steps.look(path))
    on = await filesystem_under(node, path)
    return {"size": found.result.size, "allocated": found.result.allocated, "on": on}
