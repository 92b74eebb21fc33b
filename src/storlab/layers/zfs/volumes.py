"""Layer ``zvols``: several volumes of one pool, as links in a directory, so that one load can write to all of them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.base import LayerContext
from storlab.layers.resources import Dir, Pool
from storlab.layers.zfs.dataset import dataset_facts, destroy_dataset
from storlab.layers.zfs.module import ZFS_NEEDS
from storlab.layers.zfs.properties import PropertiesLayer, Value, arguments
from storlab.layers.zfs.volume import ZVOL_ID, Block, refuse_part_of_block, volume_device, volume_of
from storlab.nodes.needs import Needs
from storlab.units import Size, size_text


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
