"""Layer ``aoe``: a disk of the kernel's ATA-over-Ethernet driver, see Documentation/admin-guide/aoe in its sources."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from storlab.errors import TrialError, Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import sysfs
from storlab.layers.net.initiator import LOOK, UNTIL_THERE, InitiatorLayer
from storlab.layers.resources import Disk, Export
from storlab.layers.share.watch import Reachable
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.network import interface_toward
from storlab.nodes.node import Node
from storlab.nodes.undo import undo

_FLUSH, _INTERFACES, _DISCOVER = (f"/dev/etherd/{name}" for name in ("flush", "interfaces", "discover"))
_PARAMETERS = "/sys/module/aoe/parameters"
_SECTOR = 512
_AGAIN = 1.0  # s, between attempts to discover: a frame may be lost
_Device = Annotated[str, Meta(pattern=r"^e[0-9]{1,5}\.[0-9]{1,3}$")]
_Mac = Annotated[str, Meta(pattern=r"^[0-9a-f]{12}$")]


@undo("aoe.forget")
async def _forget(node: Node, device: _Device, mac: _Mac) -> str | None:
    before = await _flush(node, device, mac)
    await _listen_no_more(node)
    return await _flush(node, device, mac) or before  # it may have appeared meanwhile


async def _flush(node: Node, device: str, mac: str) -> str | None:
    name = f"etherd/{device}"
    if not await _is_served_by(node, name, mac):
        return None
    for _ in range(int(UNTIL_THERE / LOOK)):
        await node.carry_out(steps.write(_FLUSH, device), go_on=True)  # without a newline
        if not await _is_served_by(node, name, mac):
            return f"forgot {device}"
        await asyncio.sleep(LOOK)
    raise TrialError(f"node {node.name}: the driver does not let go of /dev/{name}: it is in use")


async def _listen_no_more(node: Node) -> None:
    """A driver that listens makes a disk of whatever announces itself, with nobody to forget it."""
    (disks,) = await node.carry_out(steps.names("/sys/block"), go_on=True)
    if not any(name.startswith("etherd") for name in disks.entries):
        await node.carry_out(steps.write(_INTERFACES, "-"), go_on=True)  # which is no card's name


async def _is_served_by(node: Node, name: str, mac: str) -> bool:
    try:
        return mac in (await node.read_text(f"{sysfs(name)}/mac")).split()
    except FileNotFoundError:
        return False


class AoeLayer(InitiatorLayer):
    """A disk of the kernel's ATA-over-Ethernet driver. What it sets is set for all such disks of its node."""

    layer: Literal["aoe"] = "aoe"

    protocol: ClassVar = "aoe"
    flushes: ClassVar = False
    one_queue: ClassVar = "the driver has one queue for each disk"
    undoes: ClassVar = (_forget, *Reachable.undoes)

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("modprobe",), modules=("aoe",))

    async def connect(self, below: Export, context: LayerContext) -> str:
        node, mac = context.node, below.server["mac"]
        name = f"etherd/{below.export}"
        await context.register_undo("aoe.forget", device=below.export, mac=mac)
        settings = {
            "aoe_deadsecs": max(round(self.give_up), 1),
            "aoe_maxsectors": self.max_sectors // _SECTOR,
            "aoe_maxout": 1024,  # what the target says that it has room for is less
        }
        own, first = await node.carry_out(steps.readlink("/proc/self/ns/net"), steps.readlink("/proc/1/ns/net"))
        if own.text != first.text:
            raise Unsupported(
                f"layer aoe: the kernel speaks AoE in the first network namespace of a machine alone, and node "
                f'{node.name} is in another: write kind = "vm"'
            )
        interface = await interface_toward(node, below.server["host"])
        (driver,) = await node.carry_out(steps.look(_PARAMETERS), go_on=True)
        if not driver.there:
            await node.run(["modprobe", "aoe", f"aoe_iflist={interface}"])
        # Where the driver was loaded by somebody else, its cards are theirs, and it listens on others.
        await node.carry_out(
            *(steps.write(f"{_PARAMETERS}/{key}", f"{value}\n") for key, value in settings.items()),
            steps.write(_INTERFACES, interface),
            steps.write(_DISCOVER, "x"),
        )
        deadline = asyncio.get_running_loop().time() + UNTIL_THERE
        again = asyncio.get_running_loop().time() + _AGAIN
        while not await self._is_up(node, name):
            now = asyncio.get_running_loop().time()
            if now > deadline:
                where = f"{below.export} of node {below.node}"
                raise TrialError(f"node {node.name}: {where} did not answer in {UNTIL_THERE:g} s, and no disk appeared")
            if now > again:
                again = now + _AGAIN
                await node.carry_out(steps.write(_DISCOVER, "x"), go_on=True)
            await asyncio.sleep(LOOK)
        return name

    async def _is_up(self, node: Node, name: str) -> bool:
        (state,) = await node.texts(f"{sysfs(name)}/state")
        return (state or "").startswith("up")

    async def session_facts(self, disk: str, context: LayerContext) -> dict[str, Any]:
        """``payload``: bytes of a frame, which follow from the MTU at both ends."""
        names = ("aoe_deadsecs", "aoe_maxout", "aoe_maxsectors")
        files = (f"{sysfs(disk)}/payload", *(f"{_PARAMETERS}/{name}" for name in names))
        payload, *driver = await context.node.carry_out(*map(steps.read, files))
        numbers = (int(each.text) for each in driver)
        return {"payload": int(payload.text), "driver": dict(zip(names, numbers, strict=True))}

    async def sever(self, resource: Disk, context: LayerContext) -> None:
        """The driver fails what waits."""
        device = resource.name.removeprefix("etherd/")
        await context.node.carry_out(steps.write(_FLUSH, device), go_on=True)
