"""Crossings: layers whose resource is on another node than what lies below them.

What is below stands on the node that serves; the crossing and all above it on the node that consumes. Kinds of
crossing differ in their transport alone: QEMU hands over a disk or a folder, or the network does.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from storlab.layers.base import Layer, LayerContext
from storlab.layers.resources import Resource
from storlab.nodes.demands import Demands
from storlab.nodes.kind import Transport


class Crossing(Layer):
    """Takes a resource of one node to another."""

    transport: ClassVar[Transport]

    @abstractmethod
    def demands(self, below: Resource, slot: str) -> Demands:
        """What the consumer must get before it starts. ``slot`` names the crossing among those that end there."""

    async def sever(self, resource: Resource, context: LayerContext) -> None:
        """Cut the consumer off, so that undoing what is above can't wait for a server that is gone. May be repeated."""

    def exported(self) -> Layer | None:
        """What serves the resource below it to a hypervisor that runs on another machine, if it doesn't cross yet."""
        return None

    def at_home(self, below: Layer) -> tuple[Layer, ...] | None:
        """What stands in for it where nothing has to be crossed; ``None`` where nothing can."""
        return None
