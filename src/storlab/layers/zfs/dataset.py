"""Layer ``zfs``: a dataset of ZFS as a directory, see zfs-create(8)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from pydantic import Field

from storlab.errors import StorlabError
from storlab.layers.base import LayerContext
from storlab.layers.resources import Dir, Pool
from storlab.layers.zfs.module import ZFS_NEEDS, is_loaded
from storlab.layers.zfs.properties import PropertiesLayer, Value, arguments, parse_properties
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import OF_RUN, RunPath, refuse_foreign, refuse_foreign_pool, undo, until_free
from storlab.units import Size

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
