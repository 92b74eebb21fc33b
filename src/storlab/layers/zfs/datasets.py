"""Layer ``zfs``: a dataset of ZFS as a directory, see zfs-create(8)."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta
from pydantic import Field, model_validator

from storlab.base.errors import StorlabError, TrialError
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.attach.attachment import block_devices
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import queue_facts
from storlab.layers.fs.files import remove_file
from storlab.layers.fs.image_base import BASE_HELP, Base
from storlab.layers.resources import Dir, Disk, Pool
from storlab.layers.zfs.module import ZFS_NEEDS, PropertiesLayer, Value, arguments, is_loaded, parse_properties
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import OF_RUN, RunPath, refuse_foreign, refuse_foreign_pool, undo, until_free

_Dataset = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:+/ -]{1,255}$"), OF_RUN]


@undo("zfs.destroy", outlives_boot=True)
async def destroy_dataset(node: Node, dataset: _Dataset, path: RunPath | None) -> str | None:
    refuse_foreign_pool(dataset)
    if "/" not in dataset or "@" in dataset:
        raise StorlabError(f"{dataset} is no dataset in a pool: left alone")
    if path is not None:
        refuse_foreign(path)
    done = None
    if await is_loaded(node) and (await node.run(["zfs", "list", "-H", "-o", "name", dataset], check=False)).ok:
        if not await until_free(node, ["zfs", "destroy", "-r", "-f", dataset]):
            await node.run(["zfs", "destroy", "-r", "-f", dataset])  # which says why
        done = f"destroyed {dataset}"
    if path is not None:
        await node.run(["rmdir", "--", path], check=False)  # ZFS does it itself, mostly
    return done


class ZfsLayer(PropertiesLayer[Pool, Dir]):
    """A dataset (file system) in the underlying pool, mounted on a directory of Storlab's own."""

    layer: Literal["zfs"] = "zfs"
    recordsize: Size | None = Field(None, description="Largest block of a file: a power of two, ZFS's default is 128k.")
    atime: bool | None = Field(None, description="Update access times.")
    datasets: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="As many datasets in it, mounted in its folders 0, 1, …; with `filename_format` each of fio's jobs "
        "has one.",
    )

    undoes: ClassVar = (destroy_dataset,)
    own: ClassVar = (*PropertiesLayer.own, "recordsize", "atime")

    def label(self) -> str:
        return f"zfs{f' sync={self.sync}' if self.sync else ''}"

    def needs(self) -> Needs:
        return ZFS_NEEDS

    async def set_up(self, below: Pool, context: LayerContext) -> Dir:
        dataset, path = f"{below.name}/{context.owner}-{context.position}", context.path("zfs")
        await context.register_undo("zfs.destroy", dataset=dataset, path=path)
        options: dict[str, Value] = {**self.options(), "mountpoint": path, "canmount": "on"}
        await context.node.run(["zfs", "create", *arguments("-o", options), dataset])
        for number in range(self.datasets or 0):
            await context.node.run(["zfs", "create", f"{dataset}/{number}"])
        return Dir(context.node.name, path)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await dataset_facts(context.node, resource.path)


async def dataset_facts(node: Node, name: str) -> dict[str, Any]:
    return parse_properties(await node.output("zfs", "get", "-Hp", "-o", "property,value,source", "all", name))


# Layer ``zvol``: a volume of ZFS as a block device, see zfs-create(8); new, or a clone of a base's snapshot.

Block = Annotated[Size, power_of_two("size of a block", 512, 16 * 1024**2)]
_LARGEST_DEFAULT = 16 * 1024  # volblocksize since ZFS 2.2; 8k before


def refuse_part_of_block(size: int, block: int | None) -> None:
    """Raises ``ValueError`` for the size of a volume that does not consist of whole blocks."""
    least = block or 512
    if size % least:
        raise ValueError(f"size = {size} is not a multiple of its blocks of {size_text(least)}")


class ZvolLayer(PropertiesLayer[Pool, Disk]):
    """A volume in the underlying pool. A base is written to one volume, and each node gets a clone of it."""

    layer: Literal["zvol"] = "zvol"
    size: Size | None = Field(None, description="Size of the disk; without it, the base's.")
    volblocksize: Block | None = Field(
        None, description="Its blocks: a power of two, 512 to 16M; ZFS's default is 16k."
    )
    sparse: bool = Field(True, description="false reserves its whole size in the pool (refreservation).")
    base: Base | None = Field(
        None, description=f"{BASE_HELP} Here: a volume, its snapshot `@base`, and clones of that."
    )

    undoes: ClassVar = (destroy_dataset, remove_file)
    own: ClassVar = PropertiesLayer.own

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.size is None and self.base is None:
            raise ValueError('it needs a size, such as size = "4G", or a base to be a clone of')
        if self.base is not None:
            self.base.check_size(self.size)
        if self.size is not None:
            refuse_part_of_block(self.size, self.volblocksize)
        return self

    def label(self) -> str:
        what = "clone" if self.base is not None else size_text(self.size or 0)
        return f"zvol {what}{f' sync={self.sync}' if self.sync else ''}"

    def needs(self) -> Needs:
        base = self.base.needs() if self.base is not None else Needs()
        return ZFS_NEEDS | base | Needs(programs=("blockdev",), paths=(ZVOL_ID,))

    def capacity(self) -> int | None:
        return self.size

    async def check_node(self, node: Node) -> None:
        if self.base is not None:
            await self.base.check_node(node)

    async def set_up(self, below: Pool, context: LayerContext) -> Disk:
        volume = f"{below.name}/{context.owner}-{context.position}"
        if self.base is None:
            await context.register_undo("zfs.destroy", dataset=volume, path=None)
            await self._create(context.node, volume, self.size or 0, sparse=self.sparse)
        else:
            size = self.size or await self.base.length(context.node, None)
            snapshot = await self._base(self.base, below, context)
            await context.register_undo("zfs.destroy", dataset=volume, path=None)
            await context.node.run(["zfs", "clone", *arguments("-o", self.options()), snapshot, volume])
            # A clone is as large as its origin, and reserves nothing.
            wanted = self._rounded(size)
            if int(await context.node.output("zfs", "get", "-Hp", "-o", "value", "volsize", volume)) != wanted:
                await context.node.run(["zfs", "set", f"volsize={wanted}", volume])
            if not self.sparse:
                await context.node.run(["zfs", "set", f"refreservation={wanted}", volume])
        device = await volume_device(context.node, volume)
        size = int(await context.node.output("blockdev", "--getsize64", device))
        return Disk(context.node.name, device, size, ours=True)

    async def _create(self, node: Node, volume: str, size: int, *, sparse: bool, base: bool = False) -> None:
        blocks = {"volblocksize": self.volblocksize} if self.volblocksize else {}
        own = {name: value for name, value in self.options().items() if not (base and name == "reservation")}
        options = arguments("-o", {**own, **blocks})
        await node.run(["zfs", "create", *(["-s"] if sparse else []), *options, "-V", str(size), volume])

    async def _base(self, base: Base, pool: Pool, context: LayerContext) -> str:
        """The snapshot that clones are made of. It belongs to the pool, and goes away with it."""
        key = await base.key(context, self.volblocksize, sorted(self.options().items()))
        volume = f"{pool.name}/base-{key}"
        await base.length(context.node, self.size)

        async def make() -> str:
            size = self._rounded(await base.length(context.node, None))
            await self._create(context.node, volume, size, sparse=True, base=True)
            await base.fill(context, await volume_device(context.node, volume))
            await context.node.run(["zfs", "snapshot", f"{volume}@base"])
            return f"{volume}@base"

        return await context.once(volume, make)

    def _rounded(self, size: int) -> int:
        """A volume consists of whole blocks; a user's image need not."""
        block = self.volblocksize or _LARGEST_DEFAULT
        return -(-size // block) * block

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        volume = await volume_of(context.node, resource.path) or ""
        return {
            "volume": volume,
            "device": resource.path,
            **await dataset_facts(context.node, volume),
            "queue": await queue_facts(context.node, resource),
        }


ZVOL_ID = "/lib/udev/zvol_id"  # of zfsutils-linux: prints the name of a device's volume

_VOLUME = re.compile(r"zd\d+")  # not zd0p1
_UNTIL_THERE = 30.0  # s; devices are made after the command is done
_LOOK = 0.1


async def volume_device(node: Node, volume: str) -> str:
    """The device of a volume, such as ``/dev/zd16``: a guest runs no udev, which would make links in /dev/zvol."""
    for attempt in range(int(_UNTIL_THERE / _LOOK)):
        await asyncio.sleep(_LOOK if attempt else 0)
        volumes = [name for name in await block_devices(node) if _VOLUME.fullmatch(name)]
        for name in sorted(volumes, key=lambda name: -int(name[2:])):  # most likely it is the newest
            if await volume_of(node, f"/dev/{name}") == volume:
                return f"/dev/{name}"
    raise TrialError(f"node {node.name}: no device of the volume {volume} appeared within {_UNTIL_THERE:g} s")


async def volume_of(node: Node, device: str) -> str | None:
    """The volume that a device is of; ``None`` where that has just gone."""
    named = await node.run([ZVOL_ID, device], check=False)
    return named.stdout.decode(errors="replace").strip() if named.ok else None


# Layer ``zvols``: several volumes of one pool, as links in a directory, so that one load can write to all of them.


class ZvolsLayer(PropertiesLayer[Pool, Dir]):
    """Volumes in the underlying pool. Gives a dataset in which the links 0, 1, … lead to them."""

    layer: Literal["zvols"] = "zvols"
    count: int = Field(ge=1, le=1024, description="How many.")
    size: Size = Field(description="Size of each of them.")
    volblocksize: Block | None = Field(
        None, description="Their blocks: a power of two, 512 to 16M; ZFS's default is 16k."
    )
    sparse: bool = Field(True, description="false reserves their whole size in the pool (refreservation).")

    undoes: ClassVar = (destroy_dataset,)
    own: ClassVar = PropertiesLayer.own

    @model_validator(mode="after")
    def _possible(self) -> Self:
        refuse_part_of_block(self.size, self.volblocksize)
        return self

    def label(self) -> str:
        return f"{self.count} zvols {size_text(self.size)}{f' sync={self.sync}' if self.sync else ''}"

    def needs(self) -> Needs:
        return ZFS_NEEDS | Needs(programs=("ln",), paths=(ZVOL_ID,))

    async def set_up(self, below: Pool, context: LayerContext) -> Dir:
        node, dataset, path = context.node, f"{below.name}/{context.owner}-{context.position}", context.path("zvols")
        await context.register_undo("zfs.destroy", dataset=dataset, path=path)
        options: dict[str, Value] = {**self.options(), "mountpoint": path, "canmount": "on"}
        await node.run(["zfs", "create", *arguments("-o", options), dataset])
        blocks = {"volblocksize": self.volblocksize} if self.volblocksize else {}
        sparse = ["-s"] if self.sparse else []
        devices = []
        for number in range(self.count):
            volume = f"{dataset}/{number}"
            await node.run(["zfs", "create", *sparse, *arguments("-o", blocks), "-V", str(self.size), volume])
            devices.append(await volume_device(node, volume))
            await node.run(["ln", "--symbolic", "--", devices[-1], f"{path}/{number}"])
        return Dir(node.name, path, devices=tuple(devices))

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        """Those of the first volume, as all are alike."""
        volume = await volume_of(context.node, resource.devices[0]) or ""
        return {"volumes": len(resource.devices), **await dataset_facts(context.node, volume)}
