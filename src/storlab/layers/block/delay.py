"""Layer ``delay``: a slower disk, by the kernel's dm-delay (drivers/md/dm-delay.c of Linux)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.queue import queue_facts
from storlab.layers.resources import Disk
from storlab.nodes.needs import Needs
from storlab.units import Duration

_LONGEST = 60.0  # s
_MILLISECOND = 1e-3


class DelayLayer(Layer[Disk, Disk]):
    """Holds each request of the underlying disk for a while, in whole milliseconds, and then passes it on."""

    layer: Literal["delay"] = "delay"
    reads: Duration = Field(0.0, ge=0, le=_LONGEST, description="How long reads wait.")
    writes: Duration = Field(0.0, ge=0, le=_LONGEST, description="How long writes and discards wait.")
    flushes: Duration = Field(0.0, ge=0, le=_LONGEST, description="How long flushes wait.")

    compared: ClassVar = ("reads", "writes", "flushes")
    undoes: ClassVar = (mapper.remove,)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key in ("reads", "writes", "flushes"):
            milliseconds = getattr(self, key) / _MILLISECOND
            if abs(milliseconds - round(milliseconds)) > 1e-6:
                raise ValueError(f"{key}: the kernel delays by whole milliseconds, not by {milliseconds:g} ms")
        return self

    def label(self) -> str:
        kinds = {"reads": self.reads, "writes": self.writes, "flushes": self.flushes}
        return " ".join(["delay", *(f"{kind} {value / _MILLISECOND:g}ms" for kind, value in kinds.items() if value)])

    def needs(self) -> Needs:
        return mapper.needs("dm_delay")

    def check_above(self, below: Layer | None) -> str | None:
        return "write delay below mkfs: it gives a new disk" if below is not None and below.layer == "mkfs" else None

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        node = context.node
        sectors = await mapper.sectors_of(node, below.name)
        delays = (f"{below.path} 0 {round(each / _MILLISECOND)}" for each in (self.reads, self.writes, self.flushes))
        table = f"0 {sectors} delay {' '.join(delays)}"
        disk = await mapper.create(context, mapper.name_of(context), table, "dm_delay")
        return Disk(node.name, f"/dev/{disk}", below.size, ours=below.ours)

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        table = await context.node.output("dmsetup", "table", mapper.name_of(context))
        return {**parse_table(table), **await queue_facts(context.node, resource)}


def parse_table(text: str) -> dict[str, Any]:
    """``dmsetup table``: ``0 2048 delay 254:0 0 10 254:0 0 20 254:0 0 20``: of reads, writes and flushes."""
    words = text.split()
    kinds = zip(("reads", "writes", "flushes"), words[5::3], strict=False)
    return {kind: f"{milliseconds} ms" for kind, milliseconds in kinds}
