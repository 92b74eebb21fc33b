"""Crossings over the network: layers ``nbd``, a disk of the kernel's, see nbd-client(8), and ``connect``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct
from pydantic import Field

from storlab.errors import TrialError
from storlab.layers.base import Crossing, LayerContext
from storlab.layers.block.queue import queue_facts
from storlab.layers.resources import Disk, Export, Resource, Server
from storlab.nodes.demands import Demands
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.processes import mark
from storlab.nodes.undo import RunId, undo
from storlab.units import Duration

_DEVICES = 16  # nbds_max of the module, unless somebody loaded it with another
_UNTIL_THERE = 30.0  # s
_LOOK = 0.05


class _Connected(Struct, frozen=True, forbid_unknown_fields=True):
    device: Annotated[str, Meta(pattern=r"^/dev/nbd[0-9]{1,4}$")]
    run: RunId


@undo("nbd.disconnect", arguments=_Connected)
async def _disconnect(node: Node, arguments: Mapping[str, Any]) -> str | None:
    device = arguments["device"]
    if not await _is_ours(node, device, arguments["run"]):
        return None
    await node.run(["nbd-client", "-d", device])
    return f"disconnected {device}"


async def _is_ours(node: Node, device: str, run: str) -> bool:
    if (pid := await _client_of(node, device)) is None:
        return False
    environment = (await node.run(["cat", f"/proc/{pid}/environ"], check=False)).stdout.split(b"\0")
    (word, *_) = (f"{name}={value}".encode() for name, value in mark(run, "").items())
    return word in environment


async def _client_of(node: Node, device: str) -> int | None:
    """The process that holds a device; ``None`` where it is free."""
    try:
        return int(await node.read_text(f"/sys/block/{device.removeprefix('/dev/')}/pid"))
    except (FileNotFoundError, ValueError):
        return None


class NbdLayer(Crossing):
    """A disk of the kernel's own NBD client."""

    layer: Literal["nbd"] = "nbd"
    connections: int = Field(1, ge=1, le=64, description="Connections to the server; the export must allow as many.")
    give_up: Duration = Field(10.0, gt=0, description="A request that takes longer fails.")

    takes: ClassVar = (Export,)
    gives: ClassVar = Disk
    transport: ClassVar = "network"
    undoes: ClassVar = (_disconnect,)

    def needs(self) -> Needs:
        return Needs(programs=("nbd-client", "blockdev"), modules=("nbd",), root="network block devices")

    def demands(self, below: Resource, slot: str) -> Demands:
        return Demands(network=True)

    async def set_up(self, below: Resource | None, context: LayerContext) -> Disk:
        assert isinstance(below, Export)
        node, server = context.node, below.server
        if server["type"] != "inet":
            raise TrialError(f"the export {below.export} of {below.node} listens on no network")
        await node.run(["modprobe", "nbd"], check=False)
        device = await self._free(context)
        await context.register_undo("nbd.disconnect", device=device, run=context.run)
        client = await node.start(
            [
                # In the foreground, and so within reach: the agent ends what a finished command leaves behind.
                *("nbd-client", "-nonetlink", "-nofork", server["host"], server["port"], device),
                *("-name", below.export, "-connections", str(self.connections)),
                *("-timeout", str(max(round(self.give_up), 1))),
            ]
        )
        for _ in range(int(_UNTIL_THERE / _LOOK)):
            if client.ended is not None:
                client.ended.check(node.name)
                raise TrialError(f"node {node.name}: nbd-client ended at once, without a word")
            if int(await node.read_text(f"/sys/block/{device.removeprefix('/dev/')}/size")):
                size = int(await node.output("blockdev", "--getsize64", device))
                return Disk(node.name, device, size, ours=True)
            await asyncio.sleep(_LOOK)
        await client.end()
        raise TrialError(f"node {node.name}: {device} had no size {_UNTIL_THERE:g} s after nbd-client began")

    async def _free(self, context: LayerContext) -> str:
        """A device that nobody uses. Several crossings of one node begin at different ones."""
        first = int(context.slot.removeprefix("disk") or 0)
        for number in range(_DEVICES):
            device = f"/dev/nbd{(first + number) % _DEVICES}"
            if await _client_of(context.node, device) is None:
                return device
        raise TrialError(f"node {context.node.name}: all {_DEVICES} devices of NBD are in use")

    async def sever(self, resource: Resource, context: LayerContext) -> None:
        assert isinstance(resource, Disk)
        await context.node.run(["nbd-client", "-d", resource.path], check=False)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Disk)
        queue = await queue_facts(context.node, resource.name)
        return {"device": resource.path, "size": resource.size, "connections": self.connections, "queue": queue}


class ConnectLayer(Crossing):
    """Takes a server, or an export that a load reads itself, to the nodes that use it."""

    layer: Literal["connect"] = "connect"

    takes: ClassVar = (Server, Export)
    gives: ClassVar = Server
    transport: ClassVar = "network"

    def gives_above(self, below: type[Resource] | None) -> type[Resource]:
        return below or Server

    def demands(self, below: Resource, slot: str) -> Demands:
        return Demands(network=True)

    async def set_up(self, below: Resource | None, context: LayerContext) -> Resource:
        assert isinstance(below, Server | Export)
        if "host" not in below.words():
            raise TrialError(f"what runs on {below.node} listens on no network, so {context.node.name} cannot reach it")
        # Its socket and its disk are there, not here.
        return replace(below, socket=None, disk=None) if isinstance(below, Server) else below

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        return dict(resource.words())
