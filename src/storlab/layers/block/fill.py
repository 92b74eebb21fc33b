"""Layer ``fill``: every block of a disk is written before anything is measured on it.

A flash disk that was never written answers reads without reading, and writes fast until it has no erased blocks left.
SNIA's *Solid State Storage Performance Test Specification* 2.0 calls this workload-independent preconditioning: twice
the capacity, sequentially, in blocks of 128 KiB.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.identity import refuse_another
from storlab.layers.resources import Disk
from storlab.nodes.needs import Needs
from storlab.units import Size


class FillLayer(Layer[Disk, Disk]):
    """Writes the whole underlying disk with random data, which takes long: keep it for the run."""

    layer: Literal["fill"] = "fill"
    passes: int = Field(1, ge=1, le=10, strict=True, description="How often each block is written; SNIA asks for 2.")
    block_size: Size = Field(128 * 1024, ge=512, description="Bytes of one write.")

    compared: ClassVar = ("written",)

    def needs(self) -> Needs:
        return Needs(programs=("fio",), root="a disk that is written to")

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        await refuse_another(context.node, below.path, below.device)
        await context.node.run(self.command(below.path))
        return below

    def command(self, path: str) -> list[str]:
        """fio's command line: random data, which no device can compress or merge with what it has."""
        return [
            "fio",
            "--name=fill",
            f"--filename={path.replace(':', chr(92) + ':')}",  # fio takes a colon for the end of a name
            "--rw=write",
            f"--bs={self.block_size}",
            "--ioengine=libaio",
            "--iodepth=32",
            "--direct=1",
            "--end_fsync=1",
            "--refill_buffers",
            f"--loops={self.passes}",
            "--output-format=terse",
        ]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        return {"written": self.passes * resource.size}
