"""Layer ``aoe``: a disk of the kernel's ATA-over-Ethernet driver, see Documentation/admin-guide/aoe in its sources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from storlab.errors import TrialError, Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import sysfs
from storlab.layers.net.initiator import LOOK, UNTIL_THERE, InitiatorLayer, put
from storlab.layers.resources import Disk, Export, Resource
from storlab.layers.share.watch import Reachable
from storlab.nodes.needs import Needs
from storlab.nodes.network import CARD
from storlab.nodes.node import Node
from storlab.nodes.undo import RunId, undo

_FORGET = 'printf %s "$1" > /dev/etherd/flush'  # without a newline
# A driver that listens makes a disk of whatever announces itself, with nobody to forget it. "-" is no card's name.
_LISTEN_NO_MORE = """
for each in /sys/block/etherd*; do [ ! -e "$each" ] || exit 0; done
[ ! -e /dev/etherd/interfaces ] || printf - > /dev/etherd/interfaces
"""
_PARAMETERS = "/sys/module/aoe/parameters"
_SECTOR = 512
# Where the driver was loaded by somebody else, its cards are theirs, and it listens on others.
_CONNECT = r"""
set -eu
[ "$(readlink /proc/self/ns/net)" = "$(readlink /proc/1/ns/net)" ] || { echo "namespace" >&2; exit 7; }
modprobe aoe aoe_iflist="$0"
for each in "$@"; do echo "${each#*=}" > "/sys/module/aoe/parameters/${each%%=*}"; done
printf %s "$0" > /dev/etherd/interfaces
printf x > /dev/etherd/discover
"""
_OTHER_NAMESPACE = 7
_AGAIN = 1.0  # s, between attempts to discover: a frame may be lost


class _Attached(Struct, frozen=True, forbid_unknown_fields=True):
    device: Annotated[str, Meta(pattern=r"^e[0-9]{1,5}\.[0-9]{1,3}$")]
    mac: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}$")]
    run: RunId


@undo("aoe.forget", arguments=_Attached)
async def _forget(node: Node, arguments: Mapping[str, Any]) -> str | None:
    before = await _flush(node, arguments["device"], arguments["mac"])
    await node.run(["sh", "-c", _LISTEN_NO_MORE], check=False)
    return await _flush(node, arguments["device"], arguments["mac"]) or before  # it may have appeared meanwhile


async def _flush(node: Node, device: str, mac: str) -> str | None:
    name = f"etherd/{device}"
    if not await _is_served_by(node, name, mac):
        return None
    for _ in range(int(UNTIL_THERE / LOOK)):
        await node.run(["sh", "-c", _FORGET, "forget", device], check=False)
        if not await _is_served_by(node, name, mac):
            return f"forgot {device}"
        await asyncio.sleep(LOOK)
    raise TrialError(f"node {node.name}: the driver does not let go of /dev/{name}: it is in use")


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
        await context.register_undo("aoe.forget", device=below.export, mac=mac, run=context.run)
        settings = {
            "aoe_deadsecs": max(round(self.give_up), 1),
            "aoe_maxsectors": self.max_sectors // _SECTOR,
            "aoe_maxout": 1024,  # what the target says that it has room for is less
        }
        words = [f"{key}={value}" for key, value in settings.items()]
        ended = await node.run(["sh", "-c", _CONNECT, CARD, *words], check=False)
        if ended.code == _OTHER_NAMESPACE:
            raise Unsupported(
                f"layer aoe: the kernel speaks AoE in the first network namespace of a machine alone, and node "
                f'{node.name} is in another: write kind = "vm"'
            )
        ended.check(node.name)
        deadline = asyncio.get_running_loop().time() + UNTIL_THERE
        again = asyncio.get_running_loop().time() + _AGAIN
        while not await self._is_up(node, name):
            now = asyncio.get_running_loop().time()
            if now > deadline:
                where = f"{below.export} of node {below.node}"
                raise TrialError(f"node {node.name}: {where} did not answer in {UNTIL_THERE:g} s, and no disk appeared")
            if now > again:
                again = now + _AGAIN
                await put(node, "/dev/etherd/discover", "x")
            await asyncio.sleep(LOOK)
        return name

    async def _is_up(self, node: Node, name: str) -> bool:
        try:
            return (await node.read_text(f"{sysfs(name)}/state")).strip().startswith("up")
        except FileNotFoundError:
            return False

    async def session_facts(self, disk: str, context: LayerContext) -> dict[str, Any]:
        """``payload``: bytes of a frame, which follow from the MTU at both ends."""
        read = context.node.read_text
        payload = int(await read(f"{sysfs(disk)}/payload"))
        names = ("aoe_deadsecs", "aoe_maxout", "aoe_maxsectors")
        return {"payload": payload, "driver": {name: int(await read(f"{_PARAMETERS}/{name}")) for name in names}}

    async def sever(self, resource: Resource, context: LayerContext) -> None:
        """The driver fails what waits."""
        assert isinstance(resource, Disk)
        device = resource.name.removeprefix("etherd/")
        await context.node.run(["sh", "-c", _FORGET, "sever", device], check=False)
