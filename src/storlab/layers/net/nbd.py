"""Layer ``nbd``: a disk of the kernel's NBD client, see nbd-client(8)."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from storlab.base.errors import TrialError
from storlab.base.text import is_whole
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import put, sysfs
from storlab.layers.net.initiator import LOOK, UNTIL_THERE, InitiatorLayer
from storlab.layers.resources import Disk, Export
from storlab.layers.server.running import Reachable
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node, Process
from storlab.nodes.processes import mark
from storlab.nodes.undo import RunId, undo

_BUSY = 10  # s; the client's limit is for a request, which may wait behind many of a server that is only busy
_DEVICES = 16  # nbds_max of the module, unless somebody loaded it with another
_TAKEN = 75  # the status of flock(1) where another has the lock; none of nbd-client's own
_chosen: dict[tuple[str, str], int] = {}  # when each device of a kernel was, which several nodes may share
_turns = itertools.count(1)
_Device = Annotated[str, Meta(pattern=r"^/dev/nbd[0-9]{1,4}$")]
_Cache = Literal["write back", "write through"]


@undo("nbd.disconnect")
async def _disconnect(node: Node, device: _Device, run: RunId) -> str | None:
    if not await _is_ours(node, device, run):
        return None
    await node.run(["nbd-client", "-d", device])
    for _ in range(int(UNTIL_THERE / LOOK)):  # the client ends a moment later, and holds the device until then
        if await _client_of(node, device) is None:
            return f"disconnected {device}"
        await asyncio.sleep(LOOK)
    raise TrialError(f"node {node.name}: nbd-client does not let go of {device}")


@undo("nbd.write-cache")
async def _restore_cache(node: Node, device: _Device, cache: _Cache, run: RunId) -> str | None:
    if await _client_of(node, device) is not None and not await _is_ours(node, device, run):
        return None  # it is somebody else's by now
    queue = f"{sysfs(device.removeprefix('/dev/'))}/queue"
    (now,) = await node.texts(f"{queue}/write_cache")
    if now is None or now.strip() == cache:
        return None
    await put(node, queue, {"write_cache": cache})
    return f"set the cache of {device} to {cache}, as it was"


async def _is_ours(node: Node, device: str, run: str) -> bool:
    if (pid := await _client_of(node, device)) is None:
        return False
    (said,) = await node.carry_out(steps.read(f"/proc/{pid}/environ"), go_on=True)
    environment = said.contents.split(b"\0")
    (word, *_) = (f"{name}={value}".encode() for name, value in mark(run, "").items())
    return word in environment


async def _client_of(node: Node, device: str) -> int | None:
    """The process that holds a device; ``None`` where it is free. While the file goes, reading it is ENODEV."""
    (said,) = await node.texts(f"/sys/block/{device.removeprefix('/dev/')}/pid")
    return int(said) if said is not None and is_whole(said) else None


async def _holds(node: Node, device: str, client: Process) -> bool:
    """Whether it is this client that holds a device that has a size, and so a holder.

    The kernel tells its number as the host has it, which is nobody's in a container with numbers of its own.
    """
    holder = await _client_of(node, device)
    if holder in (None, client.pid):
        return holder is not None
    (other,) = await node.carry_out(steps.look(f"/proc/{holder}"), go_on=True)
    return other.missing


class NbdLayer(InitiatorLayer):
    """A disk of the kernel's own NBD client. With several queues, the export must be shared by as many."""

    layer: Literal["nbd"] = "nbd"

    protocol: ClassVar = "nbd"
    undoes: ClassVar = (_disconnect, _restore_cache, *Reachable.undoes)

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("nbd-client", "flock"), modules=("nbd",))

    async def connect(self, below: Export, context: LayerContext) -> str:
        await load_modules(context.node, "nbd")
        for _ in range(_DEVICES):
            device = await self._free(context)
            if await self._connected(device, below, context):
                return device.removeprefix("/dev/")
        raise TrialError(f"node {context.node.name}: others were faster to take each of the {_DEVICES} devices of NBD")

    async def _connected(self, device: str, below: Export, context: LayerContext) -> bool:
        """Start the client; whether it has got the device, or ``False`` where somebody else was faster.

        While the client is not connected, nothing in sysfs tells that the device is taken, and a second client would
        set the size of the first one's disk: so each of Storlab's holds a lock on its device for as long as it lives.
        """
        node, server = context.node, below.server
        await context.register_undo("nbd.disconnect", device=device, run=context.run)
        command = (
            # In the foreground, and so within reach: the agent ends what a finished command leaves behind.
            *("nbd-client", "-nonetlink", "-nofork", server["host"], server["port"], device),
            *("-name", below.export, "-connections", str(self.queues)),
            *("-timeout", str(round(self.give_up) + _BUSY)),
        )
        client = await node.start(
            ["flock", "--nonblock", "--no-fork", "--conflict-exit-code", str(_TAKEN), device, *command],
            env=mark(context.run, node.instance),  # guests are a run's own, and their commands have no mark
        )
        for _ in range(int(UNTIL_THERE / LOOK)):
            if client.ended is not None:
                if client.ended.code == _TAKEN or await _client_of(node, device) is not None:
                    return False
                replace(client.ended, argv=command).check(node.name)  # flock had become it
                raise TrialError(f"node {node.name}: nbd-client ended at once, without a word")
            if int(await node.read_text(f"/sys/block/{device.removeprefix('/dev/')}/size")):
                if await _holds(node, device, client):
                    return True
                await client.end()
                return False
            await asyncio.sleep(LOOK)
        await client.end()
        raise TrialError(f"node {node.name}: {device} had no size {UNTIL_THERE:g} s after nbd-client began")

    async def _free(self, context: LayerContext) -> str:
        """A device that nobody uses, and of these the one that was chosen longest ago: the last may be connecting."""
        names = [f"nbd{number}" for number in range(_DEVICES)]
        clients = await context.node.texts(*(f"/sys/block/{name}/pid" for name in names))
        kernel = context.node.machine
        free = [name for name, client in zip(names, clients, strict=True) if client is None]
        if not free:
            raise TrialError(f"node {context.node.name}: all {_DEVICES} devices of NBD are in use")
        chosen = min(free, key=lambda name: _chosen.get((kernel, name), 0))
        _chosen[kernel, chosen] = next(_turns)
        return f"/dev/{chosen}"

    async def remember_cache(self, name: str, cache: str, context: LayerContext) -> None:
        """Since Linux 6.11 the device keeps what was written there, and whoever has it next would have it, too."""
        await context.register_undo("nbd.write-cache", device=f"/dev/{name}", cache=cache, run=context.run)

    async def sever(self, resource: Disk, context: LayerContext) -> None:
        await context.node.run(["nbd-client", "-d", resource.path], check=False)
