"""Layer ``write-log``: what is written to the disk above is logged. Crash checks put it there, no study."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.file import remove_file
from storlab.layers.resources import File, LoggedFile
from storlab.nodes.needs import Needs


class WriteLogLayer(Layer[File, LoggedFile]):
    """Lets QEMU log all writes and flushes of a guest's disk, in a file beside the image, with a copy of its start."""

    layer: Literal["write-log"] = "write-log"

    undoes: ClassVar = (remove_file,)

    def needs(self) -> Needs:
        return Needs(programs=("truncate", "cp"))

    def check_above(self, below: Layer | None) -> str | None:
        if below is not None and below.file_format() != "raw":
            return f"the image is a {below.file_format()} file, and what is logged can be put back onto a raw one only"
        return None

    async def set_up(self, below: File, context: LayerContext) -> LoggedFile:
        assert below.backing is None
        log, start = context.path("write.log"), context.path("start.img")
        for path in (log, start):
            await context.register_undo("file.remove", path=path)
        await context.node.run(["truncate", "--size", "0", log])
        await context.node.run(["cp", "--reflink=auto", "--sparse=always", "--", below.path, start])
        return LoggedFile(below.node, below.path, below.size, log=log, start=start)

    async def facts(self, resource: LoggedFile, context: LayerContext) -> dict[str, Any]:
        return {"log": resource.log}
