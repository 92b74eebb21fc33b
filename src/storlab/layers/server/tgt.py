"""The iSCSI target that is a program: tgtd(8) of the Linux SCSI target framework, told by tgtadm(8) what to serve.

One serves one disk, at a port of its own. Its first unit (LUN 0) is its controller, so the disk is unit 1. The socket
on which tgtadm reaches it is in a folder of its own (TGT_IPC_SOCKET), not in /var/run/tgtd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from storlab.layers.base import LayerContext
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.resources import Disk, Export, File
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.layers.server.serving import to_what_it_serves
from storlab.nodes.needs import Needs
from storlab.nodes.node import Confinement
from storlab.text import number_or_text

_TARGET, _UNIT = ["--lld", "iscsi", "--mode", "target", "--tid", "1"], ["--mode", "logicalunit", "--lun", "1"]
_SETTINGS = ("MaxBurstLength", "FirstBurstLength", "ImmediateData", "InitialR2T", "MaxRecvDataSegmentLength")


class Tgt(ServerLayer[File | Disk, Export]):
    """What ``iscsi-target`` sets up with ``implementation = "tgt"``; no study names it itself.

    ``export``: the target's name; ``settings``: by their names in RFC 7143.
    """

    layer: Literal["tgt"] = "tgt"
    export: str
    direct: bool
    discard: bool
    settings: dict[str, str]

    program: ClassVar = "tgtd"
    first_port: ClassVar = 3260
    start_patience: ClassVar = 30.0
    stop_patience: ClassVar = 10.0

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("tgtadm", "env"))

    def listens_on_socket(self, server: ServerContext) -> bool:
        return True

    async def reach(self, server: ServerContext) -> Confinement | None:
        return to_what_it_serves(server, self.program)

    def command(self, server: ServerContext) -> list[str]:
        return ["env", _socket(server), self.program, "--foreground", "--iscsi", f"portal={server.host}:{server.port}"]

    def reason(self, how: str, lines: Sequence[str]) -> str:
        return super().reason(how.replace("env ", f"{self.program} ", 1), lines)

    async def answers(self, server: ServerContext) -> bool:
        return (await server.confined.run(_admin(server, "show", "--mode", "sys"), check=False)).ok

    async def resource(self, server: ServerContext[File | Disk]) -> Export:
        below, node = server.below, server.confined  # it heeds its own user alone
        await node.run(_admin(server, "new", *_TARGET, "--targetname", self.export))
        for name, value in self.settings.items():
            await node.run(_admin(server, "update", *_TARGET, "--name", name, "--value", value))
        flags = ["--bsoflags", "direct"] if self.direct else []
        unit = [*_TARGET[:2], *_UNIT, "--tid", "1"]
        await node.run(_admin(server, "new", *unit, "--backing-store", below.path, *flags))
        if self.discard:
            await node.run(_admin(server, "update", *unit, "--params", "thin_provisioning=1"))
        await node.run(_admin(server, "bind", *_TARGET, "--initiator-address", "ALL"))
        cache = await has_volatile_cache(node, below) or not self.direct
        where = {"type": "inet", "host": str(server.host), "port": str(server.port)}
        said = (line.partition("=") for line in (await node.output(*_admin(server, "show", *_TARGET))).splitlines())
        limits = {name: number_or_text(value.strip()) for name, _, value in said if name in _SETTINGS}
        return Export(node.name, where, self.export, below.size, "iscsi", cache, limits)

    async def facts(self, resource: Export, context: LayerContext) -> dict[str, Any]:
        limits = dict(resource.advertised)
        return {
            "server": self.program,
            **await super().facts(resource, context),
            "direct": self.direct,
            "limits": limits,
        }


def _socket(server: ServerContext) -> str:
    return f"TGT_IPC_SOCKET={server.socket}"


def _admin(server: ServerContext, operation: str, *words: str) -> list[str]:
    return ["env", _socket(server), "tgtadm", "--op", operation, *words]
