"""Layer ``connect``: a server, or an export, that a load reaches itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

from storlab.errors import TrialError
from storlab.layers.base import Crossing, LayerContext
from storlab.layers.resources import Export, Resource, Server
from storlab.nodes.demands import Demands


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
        return replace(below, socket=None, disk=None) if isinstance(below, Server) else below

    async def facts(self, resource: Server | Export, context: LayerContext) -> dict[str, Any]:
        return dict(resource.words())
