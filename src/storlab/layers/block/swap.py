"""Layer ``swap``: a disk that the kernel moves pages of memory to, see mkswap(8), swapon(8) and proc_swaps(5).

It is the node's, as its memory is: pages of all of its processes may go there. It is switched off by its UUID.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.base.reach import KERNEL_SETTING, Found, Reach, Reaching
from storlab.base.text import number_or_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.identity import refuse_another
from storlab.layers.block.use import stopped
from storlab.layers.fs.mkfs import filesystem_uuid, forget_filesystem
from storlab.layers.resources import Disk, Swap
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.privileges import on_device
from storlab.nodes.settings import in_use
from storlab.nodes.undo import LONG, Nonce, RunId, undo

_SWAPS = "/proc/swaps"
_ROW = re.compile(r"^(\S+)\s+partition\s+(\d{1,19})\s+(\d{1,19})\s+(-?\d{1,10})$", re.MULTILINE | re.ASCII)
_OFF = r"""
while read -r path kind rest; do
    [ "$kind" = partition ] && [ "$(blkid --probe --match-tag UUID --output value -- "$path")" = "$1" ] || continue
    swapoff -- "$path" || exit 1
    echo stopped
done < /proc/swaps
exit 0
"""
_ZSWAP = "/sys/module/zswap/parameters"


@undo("swap.off", proof="itself", patience=LONG)
async def switch_off(node: Node, run: RunId, nonce: Nonce) -> str | None:
    """Have the kernel take back all pages from the swap that Storlab made: by its UUID, or not at all."""
    return await stopped(node, _OFF, "swap", filesystem_uuid(run, nonce))


class SwapLayer(Layer[Disk, Swap], Reaching):
    """The node swaps to the underlying disk: pages of memory go there if memory gets scarce."""

    layer: Literal["swap"] = "swap"
    priority: int | None = Field(
        None,
        ge=0,
        le=32767,
        description="The highest is used first; those of the same take turns. By default the last.",
    )
    discard: Literal["once", "pages"] | None = Field(
        None, description="Discard all of it when it is switched on, or whatever becomes free."
    )

    beyond: ClassVar[Mapping[str, Reach]] = {"layer": KERNEL_SETTING}
    overwrites: ClassVar = True
    compared: ClassVar = ("swap.size", "swap.priority", "zswap.*")
    undoes: ClassVar = (switch_off, forget_filesystem)

    def reaches(self) -> Iterator[Found]:
        """All that runs on the machine may get onto the disk, and waits for it."""
        yield Found(("layer",), "kernel", "swap")

    def needs(self) -> Needs:
        return Needs(("mkswap", "swapon", "swapoff", "blkid", "wipefs"), root="swap")

    async def set_up(self, below: Disk, context: LayerContext) -> Swap:
        node, nonce = on_device(context.node, below.path), secrets.token_hex(16)
        await refuse_another(context.node, below.path, below.device)
        if not below.ours:
            was = below.fingerprint
            await context.register_undo("mkfs.forget", device=below.path, run=context.run, nonce=nonce, was=was)
        await node.run(["mkswap", "--uuid", filesystem_uuid(context.run, nonce), below.path])
        await context.register_undo("swap.off", run=context.run, nonce=nonce)
        priority = [] if self.priority is None else ["--priority", str(self.priority)]
        discard = [] if self.discard is None else [f"--discard={self.discard}"]
        await context.node.run(["swapon", *priority, *discard, below.path])
        return Swap(context.node.name, below.path)

    async def facts(self, resource: Swap, context: LayerContext) -> dict[str, Any]:
        names = ("enabled", "compressor", "zpool", "max_pool_percent")
        swaps, *zswap = await context.node.texts(_SWAPS, *(f"{_ZSWAP}/{name}" for name in names))
        kept = {name: number_or_text(in_use(text)) for name, text in zip(names, zswap, strict=True) if text is not None}
        return {"swap": parse_swaps(swaps or "").get(resource.path, {}), **({"zswap": kept} if kept else {})}


def parse_swaps(text: str) -> dict[str, dict[str, Any]]:
    """``/proc/swaps``: path → size and what of it is in use, in bytes, and priority. What is not that has no rows."""
    return {
        path: {"size": int(size) * 1024, "used": int(used) * 1024, "priority": int(priority)}
        for path, size, used, priority in _ROW.findall(text)
    }
