"""Layers ``connect`` and ``relay``: servers and exports that loads reach themselves; and who speaks what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.base.errors import TrialError
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.resources import Export, Protocol, Resource, Server
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.nodes.demands import Demands
from storlab.nodes.needs import Needs, numactl_programs


@dataclass(frozen=True)
class _Names:
    title: str
    target: str
    initiator: str


_NAMES: dict[Protocol, _Names] = {
    "nbd": _Names("NBD", "nbd-export", "nbd"),
    "iscsi": _Names("iSCSI", "iscsi-target", "iscsi"),
    "nvme-tcp": _Names("NVMe/TCP", "nvme-target", "nvme-tcp"),
    "aoe": _Names("AoE", "aoe-target", "aoe"),
}

_STAGING = "it was among Linux's staging drivers for some releases, and is gone from the kernel"
_NOT_BUILT = "the kernel that guests boot is built without it"
ABSENT: dict[str, str] = {
    "dst": f"{_STAGING}; nbd and nvme-tcp do what it did",
    "pohmelfs": f"{_STAGING}; nfs does what it did",
    "rnbd": f"{_NOT_BUILT}, and it needs RDMA; nbd and nvme-tcp go over TCP",
    "siw": f"{_NOT_BUILT}, so there is no RDMA over TCP; nvme-tcp needs none",
}
"""Protocols that people look for and no guest has: why not, and what to take instead."""


def title(protocol: Protocol) -> str:
    return _NAMES[protocol].title


def served_by(layer: Layer | None) -> Protocol | None:
    """What a layer serves by; ``None`` where it serves nothing, or that shows only once it is set up (``connect``)."""
    named = getattr(layer, "protocol", None)
    known = next((protocol for protocol in _NAMES if protocol == named), None)
    return "nbd" if known is None and layer is not None and layer.gives is Export else known


def mismatch(wanted: Protocol, below: Layer | None) -> str | None:
    """What is wrong where something that speaks ``wanted`` is above this layer; ``None`` where nothing is."""
    found = served_by(below)
    if below is None or found is None or found == wanted:
        return None
    here, there = _NAMES[wanted], _NAMES[found]
    return (
        f"it speaks {here.title}, but layer {below.layer} below it serves {there.title}: "
        f'put {{ layer = "{there.initiator}" }} here, or {{ layer = "{here.target}" }} below'
    )


def refused_by_qemu(below: Layer | None) -> str | None:
    """What is wrong where QEMU is to open what this layer serves."""
    found = served_by(below)
    if below is None or found in (None, "nbd"):
        return None
    served = _NAMES[found]
    return (
        f"QEMU opens exports of NBD alone, but layer {below.layer} below it serves {served.title}: "
        f'put {{ layer = "nbd-export" }} there, or {{ layer = "{served.initiator}" }} here'
    )


class ConnectLayer(Crossing[Server | Export, Server | Export]):
    """Takes a server, or an export that a load reads itself, to the nodes that use it."""

    layer: Literal["connect"] = "connect"

    transport: ClassVar = "network"

    def gives_above(self, below: type[Resource] | None) -> type[Resource]:
        return below or Server

    def demands(self, below: Server | Export, slot: str) -> Demands:
        return Demands(network=True)

    async def set_up(self, below: Server | Export, context: LayerContext) -> Server | Export:
        if "host" not in below.words():
            raise TrialError(f"what runs on {below.node} listens on no network, so {context.node.name} cannot reach it")
        # Its socket and its disk are there, not here.
        return replace(below, socket=None, disks=()) if isinstance(below, Server) else below

    async def facts(self, resource: Server | Export, context: LayerContext) -> dict[str, Any]:
        return dict(resource.words())


# Layer ``relay``: the agent between a server and its clients, to do to replies what some servers do by themselves.
#
# DST, once a network block device among Linux's staging drivers, sent a reply when all of it had been read. Other
# servers leave Nagle's algorithm on (RFC 896) and write a header before the data: where both are less than a segment,
# the data wait for the header's ACK, which the client delays (RFC 1122, 4.2.3.2). Linux holds back a small segment
# only behind another small one (tcp_minshall_check), so a reply in one write is never held. With a relay, one server
# does all of these, or none.

_AGENT = "/proc/self/exe"  # the agent becomes what it starts


class RelayLayer(ServerLayer[Server | Export, Server | Export]):
    """The agent between what lies below and its clients, over TCP: the same server, answering differently."""

    layer: Literal["relay"] = "relay"
    nagle: bool = Field(False, description="Leave Nagle's algorithm on: small segments wait for ACKs of those before.")
    whole: bool = Field(
        False,
        description="Answer when a whole reply is there. By default each piece is passed on as it comes. Of NBD the "
        "relay knows how long a reply is; of other servers it is over when nothing more came for 5 ms, or it has 1M.",
    )

    head: int = Field(
        0,
        ge=0,
        le=65536,
        description="Leading bytes of each reply to write separately, as by servers that send a header before data: "
        "16 for NBD.",
    )

    compared: ClassVar = ("nagle", "whole", "head")
    protocol: ClassVar = "nbd"  # the only exports that it can be in front of
    program: ClassVar = "storlab-agent"
    first_port: ClassVar = 10909
    start_patience: ClassVar = 30.0
    stop_patience: ClassVar = 5.0

    def gives_above(self, below: type[Resource] | None) -> type[Resource]:
        return below or Server

    def check_above(self, below: Layer | None) -> str | None:
        protocol = getattr(below, "protocol", "nbd")
        if protocol == "nbd":
            return None
        return f"it can stand above nbd-export and servers; what {protocol} serves names its own address to clients"

    def needs(self) -> Needs:
        return Needs(programs=numactl_programs(self.pin, self.numa))

    def command(self, server: ServerContext) -> list[str]:
        # numactl would be its own executable.
        agent = _AGENT if self.pin is None and self.numa is None else f"/proc/{server.node.pid}/exe"
        to = server.below.words()
        switches = [f"--{name}" for name in ("nagle", "whole") if getattr(self, name)]
        switches += ["--nbd"] if isinstance(server.below, Export) else []  # other exports can't be below
        switches += ["--head", str(self.head)] if self.head else []
        listen = ["--listen", f"{server.host}:{server.port}", "--to", f"{to['host']}:{to['port']}"]
        return [agent, "relay", *listen, "--ready", _ready(server), *switches]

    async def set_up(self, below: Server | Export, context: LayerContext) -> Server | Export:
        if context.node.address is None or "host" not in below.words():
            raise TrialError(f"layer relay: what runs on {below.node} listens on no network, so nothing can be relayed")
        return await super().set_up(below, context)

    async def answers(self, server: ServerContext) -> bool:
        """It writes a file once it listens; asking it would be one more client of the server."""
        try:
            return bool(await server.node.read(_ready(server), 4096))
        except FileNotFoundError:
            return False

    async def resource(self, server: ServerContext[Server | Export]) -> Server | Export:
        below, port = server.below, server.port
        if isinstance(below, Export):
            return replace(below, server={**below.server, "host": str(server.host), "port": str(port)})
        return replace(below, host=server.host, port=port, socket=None)

    async def facts(self, resource: Server | Export, context: LayerContext) -> dict[str, Any]:
        words = resource.words()
        return {
            "nagle": self.nagle,
            "whole": self.whole,
            "head": self.head,
            "listens": f"{words['host']}:{words['port']}",
        }


def _ready(server: ServerContext) -> str:
    return f"{server.folder}/ready"
