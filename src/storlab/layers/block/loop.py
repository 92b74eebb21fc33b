"""Layer ``loop``: a file as a block device, see losetup(8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct
from pydantic import Field

from storlab.base.errors import CommandFailed, StorlabError, Unsupported
from storlab.base.record import read_answer
from storlab.base.units import Size, power_of_two
from storlab.layers.base import Layer, LayerContext, not_raw
from storlab.layers.block.queue import as_new, queue_facts
from storlab.layers.resources import Disk, File
from storlab.layers.stack import Plan, PlannedLayer
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunPath, refuse_foreign, undo

_CONTROL = "/dev/loop-control"
_CLOSED = 10.0  # s
_LOOK = 0.05  # s


@undo("loop.detach", order=3)
async def _detach(node: Node, file: RunPath) -> str | None:
    refuse_foreign(file)
    devices = [loop for loop, back in await loop_devices(node) if _is_of(back, file)]
    for device in devices:
        await node.run(["losetup", "--detach", device])
    # The kernel detaches it when the last one closes it, and says nothing of that: others may be looking at a new disk.
    deadline = asyncio.get_running_loop().time() + _CLOSED
    while held := [device for device, back in await _behind(node, devices) if _is_of(back, file)]:
        if asyncio.get_running_loop().time() > deadline:
            why = f"{', '.join(held)} is still open elsewhere, and keeps {file} until it is closed"
            raise StorlabError(f"{why}{await _swap(node)}")
        await asyncio.sleep(_LOOK)
    return f"detached {', '.join(devices)} from {file}" if devices else None


async def _swap(node: Node) -> str:
    """A file that is swapped to keeps its device, and no list of open files or mounts has it."""
    (swaps,) = await node.texts("/proc/swaps")
    files = [line.split()[0] for line in (swaps or "").splitlines() if line.split()[1:2] == ["file"]]
    if not files:
        return ""
    return f" (the kernel swaps to {', '.join(files)}: if that is on it, mount it, and use swapoff on the file)"


def _is_of(back: str, file: str) -> bool:
    """A file that is gone is still listed under its old name, with "(deleted)" after it."""
    return back in (file, f"{file} (deleted)")


async def loop_devices(node: Node) -> list[tuple[str, str]]:
    (disks,) = await node.carry_out(steps.names("/sys/block"), go_on=True)
    return await _behind(node, sorted(f"/dev/{name}" for name in disks.entries if name.startswith("loop")))


async def _behind(node: Node, loops: Sequence[str]) -> list[tuple[str, str]]:
    files = await node.texts(*(f"/sys/block/{loop.removeprefix('/dev/')}/loop/backing_file" for loop in loops))
    return [(loop, file) for loop, file in zip(loops, files, strict=True) if file]


class Signature(Struct, frozen=True):
    """What is on a device, of one kind, by the names that libblkid has for it."""

    type: str
    uuid: str | None = None
    label: str | None = None


class _Signatures(Struct):
    signatures: list[Signature]


def signatures(listing: bytes) -> list[Signature]:
    return read_answer(listing, _Signatures, "wipefs").signatures if listing.strip() else []


class LoopLayer(PlannedLayer[File, Disk]):
    """A loop device over the underlying file. Its queue is as the kernel makes a new one, whoever had it before."""

    layer: Literal["loop"] = "loop"
    sector_size: Annotated[Size, power_of_two("sector size", 512, 64 * 1024)] = Field(
        512, description="Logical sector size: a power of two from 512 to 64k."
    )
    direct_io: bool = Field(
        True, description="Bypass the page cache of the underlying file system, so that data are not cached twice."
    )

    compared: ClassVar = ("direct_io",)
    undoes: ClassVar = (_detach,)

    def needs(self) -> Needs:
        return Needs(programs=("losetup",), paths=(_CONTROL,), root="loop devices")

    def check_above(self, below: Layer | None) -> str | None:
        return not_raw(below, "a loop device shows", "attach that to a virtual machine, or make it a raw one")

    def plan(self, below: File, context: LayerContext) -> Plan:
        node, file = context.node, below.path

        async def with_driver() -> None:
            (control,) = await node.carry_out(steps.look(_CONTROL), go_on=True)
            if not control.there:
                await node.run(["modprobe", "loop"])  # udev would have made the file, and its use load the module
            node.known[_CONTROL] = ""

        async def renewed(done: Sequence[steps.Done]) -> Disk:
            name = done[-1].text.removeprefix("/dev/")
            size, differs = await as_new(node, name)
            for setting, (wanted, found) in differs.items():
                context.warn(
                    f"node {node.name}: {setting} of its loop device should be {wanted}, as of a new one, but the "
                    f"kernel leaves it at {found}"
                )
            return Disk(node.name, f"/dev/{name}", size, ours=True)

        async def explained(error: CommandFailed, done: Sequence[steps.Done]) -> Exception:
            if self.sector_size != 512 and "Invalid argument" in error.detail:
                return Unsupported(f"this kernel refuses such a loop device: {error}")
            return error

        options = (f"--sector-size={self.sector_size}", f"--direct-io={'on' if self.direct_io else 'off'}")
        return Plan(
            renewed,
            (node.command(["losetup", "--find", "--show", "--nooverlap", *options, file]),),
            (("loop.detach", {"file": file}),),
            None if _CONTROL in node.known else with_driver,
            explained,
        )

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        direct = (await context.node.read_text(f"/sys/block/{resource.name}/loop/dio")).strip()
        return {"device": resource.path, "direct_io": direct == "1", **await queue_facts(context.node, resource)}
