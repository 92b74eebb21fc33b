"""Layer ``aoe-target``: what lies below as an ATA disk on the Ethernet itself, served by vblade(8)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.resources import Disk, Export, File, Protocol
from storlab.layers.server.base import ServerContext, ServerLayer, network_address
from storlab.layers.server.configfs import not_raw
from storlab.layers.server.serving import to_what_it_serves
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.network import INTERFACE, interface_of
from storlab.nodes.node import Confinement

_SECTOR = 512
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
        return not_raw(below)

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
