"""Layers that know beforehand what sets them up, and plans of several of them, carried out by one request to an agent.

A request costs a round trip, which takes a machine over SSH longer than most steps do.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Generic

from storlab.errors import CommandFailed
from storlab.layers.base import Below, Gives, Layer, LayerContext
from storlab.layers.resources import Resource
from storlab.nodes.agent.steps import Done, Step
from storlab.nodes.answers import understood
from storlab.nodes.node import Node
from storlab.nodes.undo import Entry


@dataclass(frozen=True)
class Plan(Generic[Gives]):
    """What sets a layer up on what is, or will be, below it.

    ``undo`` is journalled before any of ``steps`` is carried out; undoing what never came to be does nothing.
    ``gives``: the resource, or, if only the results of the steps tell, what makes it of them. ``check`` looks right
    before the steps, when all that is below is set up, whether they may be carried out. ``explain`` gives the error to
    raise for a program that failed, and the results of the steps up to that one.
    """

    gives: Gives | Callable[[Sequence[Done]], Awaitable[Gives]]
    steps: tuple[Step, ...] = ()
    undo: tuple[Entry, ...] = ()
    check: Callable[[], Awaitable[None]] | None = None
    explain: Callable[[CommandFailed, Sequence[Done]], Awaitable[Exception]] | None = None


class PlannedLayer(Layer[Below, Gives]):
    """A layer that has a plan. In a stack, it is set up together with those next to it that have one, too."""

    @abstractmethod
    def plan(self, below: Below, context: LayerContext) -> Plan[Gives]:
        """What sets it up on ``below``, which need not be there yet: nothing may be asked of the node.

        Raises ``Unsupported`` where this machine can't provide it.
        """

    async def set_up(self, below: Below, context: LayerContext) -> Gives:
        plans = Plans(context.node)
        resource = await plans.add(self, below, context)
        await plans.carry_out()
        return resource


@dataclass
class Plans:
    """Plans on one node that are carried out together, the lowest layer's first; ``steps`` come before all of them."""

    node: Node
    steps: Sequence[Step] = ()
    _planned: list[tuple[str, LayerContext, Plan]] = field(default_factory=list)

    async def add(self, layer: PlannedLayer[Below, Gives], below: Below, context: LayerContext) -> Gives:
        """What the layer gives. It need not be there before ``carry_out``."""
        with understood(context.node.name, f"setting up {layer.label()}"):
            plan = layer.plan(below, context)
        if plan.check is not None:
            await self.carry_out()
        self._planned.append((layer.label(), context, plan))
        if isinstance(plan.gives, Resource):
            return plan.gives
        done = await self.carry_out()
        with understood(context.node.name, f"setting up {layer.label()}"):
            return await plan.gives(done)

    async def carry_out(self) -> Sequence[Done]:
        """Set up what was added since: journalled as one, sent as one. The results of the last plan's steps.

        On failure, what is set up stays: the journal knows it, the caller undoes it.
        """
        planned, self._planned = self._planned, []
        first, self.steps = self.steps, ()
        for register, those in groupby(planned, key=lambda each: each[1].register):
            if entries := [entry for _, _, plan in those for entry in plan.undo]:
                await register(*entries)
        for _, _, plan in planned:
            if plan.check is not None:
                await plan.check()
        done = await self.node.attempt(*first, *(step for _, _, plan in planned for step in plan.steps))
        for result in done[: len(first)]:
            result.check(self.node.name)
        at, own = len(first), list[Done]()
        for label, _, plan in planned:
            own = done[at : at + len(plan.steps)]
            at += len(own)
            with understood(self.node.name, f"setting up {label}"):
                try:
                    for result in own:
                        result.check(self.node.name)
                except CommandFailed as error:
                    if plan.explain is None:
                        raise
                    raise await plan.explain(error, own) from None
        return own
