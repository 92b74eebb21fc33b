"""Layer ``aoe``: a disk of the kernel's ATA-over-Ethernet driver, see Documentation/admin-guide/aoe in its sources."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from pydantic import Field

from storlab.base.errors import TrialError, Unsupported
from storlab.layers.base import Layer, LayerContext, not_raw
from storlab.layers.block.queue import has_volatile_cache, sysfs
from storlab.layers.net.initiator import LOOK, UNTIL_THERE, InitiatorLayer
from storlab.layers.resources import Disk, Export, File, Protocol
from storlab.layers.server.base import ServerContext, ServerLayer, network_address, to_what_it_serves
from storlab.layers.server.running import Reachable
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.network import INTERFACE, interface_of, interface_toward
from storlab.nodes.node import Confinement, Node
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
    # A driver that listens makes a disk of whatever announces itself, with nobody to forget it.
    (disks,) = await node.carry_out(steps.names("/sys/block"), go_on=True)
    if not any(name.startswith("etherd") for name in disks.entries):
        await node.carry_out(steps.write(_INTERFACES, "-"), go_on=True)  # which is no card's name
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
        while not ((await node.texts(f"{sysfs(name)}/state"))[0] or "").startswith("up"):
            now = asyncio.get_running_loop().time()
            if now > deadline:
                where = f"{below.export} of node {below.node}"
                raise TrialError(f"node {node.name}: {where} did not answer in {UNTIL_THERE:g} s, and no disk appeared")
            if now > again:
                again = now + _AGAIN
                await node.carry_out(steps.write(_DISCOVER, "x"), go_on=True)
            await asyncio.sleep(LOOK)
        return name

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


# Layer ``aoe-target``: what lies below as an ATA disk on the Ethernet itself, served by vblade(8).

_FIRST = 1  # number of a target on its node, from which its slot follows
_SHELVES = 65000  # 0xffff means all of them

_AOE = "88a2"  # in /proc/net/packet, which has the protocol and the inode of each socket


class AoeTargetLayer(ServerLayer[File | Disk, Export]):
    """The underlying file or disk, served by `vblade` to whoever is on the same Ethernet.

    The protocol has no flush, and its disks say that they have no cache. So by default each write is on the disk before
    it is answered.
    """

    layer: Literal["aoe-target"] = "aoe-target"
    direct: bool = Field(True, description="Past the server's page cache.")
    sync: bool = Field(True, description="Each write is on the disk before it is answered: nothing else flushes it.")
    buffers: int = Field(64, ge=1, le=1024, description="Most frames in flight that the target asks of its clients.")

    compared: ClassVar = ("server", "direct", "sync", "buffers", "mtu")
    program: ClassVar = "vblade"
    first_port: ClassVar = _FIRST
    protocol: ClassVar[Protocol] = "aoe"
    start_patience: ClassVar = 30.0
    stop_patience: ClassVar = 5.0

    def check_above(self, below: Layer | None) -> str | None:
        return not_raw(below, "it serves", "serve that by nbd-export, or make it a raw one")

    def needs(self) -> Needs:
        return super().needs() | Needs(root="raw Ethernet")

    async def prepare(self, server: ServerContext) -> None:
        network_address(server.node)
        await interface_of(server.node)  # which the command names

    async def reach(self, server: ServerContext) -> Confinement | None:
        return to_what_it_serves(server, self.program)

    def command(self, server: ServerContext) -> list[str]:
        options = ["-b", str(self.buffers), *(["-d"] if self.direct else []), *(["-s"] if self.sync else [])]
        where = map(str, _shelf_and_slot(server))
        return [self.program, *options, *where, server.node.known[INTERFACE], server.below.path]

    async def answers(self, server: ServerContext) -> bool:
        process = server.node.named.get(server.name)
        if process is None or process.pid is None:
            return False
        # It listens once its socket is one that receives AoE.
        look = steps.read("/proc/net/packet"), steps.names(f"/proc/{process.pid}/fd", targets=True)
        sockets, files = await server.node.carry_out(*look, go_on=True)
        lines = [line.split() for line in sockets.text.splitlines()]
        receiving = {f"socket:[{line[8]}]" for line in lines if len(line) > 8 and line[3] == _AOE}
        return not receiving.isdisjoint(files.targets.values())

    async def resource(self, server: ServerContext) -> Export:
        below = server.below
        interface = await interface_of(server.node)
        mac = (await server.node.read_text(f"/sys/class/net/{interface}/address")).strip()
        shelf, slot = _shelf_and_slot(server)
        cache = not self.sync and (not self.direct or await has_volatile_cache(server.node, below))
        where = {"type": "ethernet", "mac": mac.replace(":", ""), "host": network_address(server.node)}
        size = below.size // _SECTOR * _SECTOR
        return Export(server.node.name, where, f"e{shelf}.{slot}", size, self.protocol, cache)

    async def facts(self, resource: Export, context: LayerContext) -> dict[str, Any]:
        mtu = int(await context.node.read_text(f"/sys/class/net/{await interface_of(context.node)}/mtu"))
        own = {"direct": self.direct, "sync": self.sync, "buffers": self.buffers}
        return {"server": self.program, "address": resource.export, **own, "mtu": mtu}


def _shelf_and_slot(server: ServerContext) -> tuple[int, int]:
    """A shelf for each server, by its address in the run's network; the slots of one count its targets."""
    assert server.host is not None and server.port is not None
    return int(ip_address(server.host)) % _SHELVES, server.port - _FIRST
