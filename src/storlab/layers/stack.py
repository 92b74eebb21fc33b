"""Stacks: layers in order, checked for type before anything runs, set up from the lowest.

A layer that knows beforehand what sets it up has a plan. Plans of several are carried out by one request to an agent,
for a round trip takes longer over SSH than most steps do.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic

from storlab.base.errors import CommandFailed, StorlabError
from storlab.base.waiting import all_of
from storlab.layers.base import Below, Crossing, Gives, Layer, LayerContext
from storlab.layers.block.queue import remember, scheduler_facts, tune
from storlab.layers.resources import Disk, Resource
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


def type_errors(layers: Sequence[Layer], wanted: Sequence[type[Resource]]) -> list[tuple[int, str]]:
    """Where a stack can't be: the position of the layer at fault, and the two types that don't meet.

    ``wanted`` are the resources that the workloads above can use.
    """
    problems: list[tuple[int, str]] = []
    below: Layer | None = None
    given: type[Resource] | None = None
    for position, layer in enumerate(layers):
        if not any(given is taken or (given and taken and issubclass(given, taken)) for taken in layer.takes):
            problems.append((position, _mismatch(layer, below, given)))
        elif below is not None and below.read_only:
            problems.append((position, f"layer {layer.layer}: what layer {below.layer} gives can only be read"))
        elif layer.overwrites and below is not None and below.layer == "mkfs":
            lost = f"it would overwrite the file system that mkfs makes: write {layer.layer} below mkfs"
            problems.append((position, f"layer {layer.layer}: {lost}"))
        elif (reason := layer.check_above(below)) is not None:
            problems.append((position, f"layer {layer.layer}: {reason}"))
        below, given = layer, layer.gives_above(given)
    if given is not None and not problems and not issubclass(given, tuple(wanted)):
        ends, needed = _a([given.kind]), _a([kind.kind for kind in wanted])
        problems.append((len(layers) - 1, f"the stack ends as {ends}, but its workload needs {needed}"))
    return problems


def _mismatch(layer: Layer, below: Layer | None, given: type[Resource] | None) -> str:
    name = layer.layer
    needed = [taken.kind for taken in layer.takes if taken is not None]
    if below is None or given is None:
        return f"layer {name} takes {_a(needed)} and can't be the lowest of a stack"
    gives = f"layer {below.layer} gives {_a([given.kind])}"
    if not needed:
        return f"layer {name} takes nothing, so it must be the lowest of its stack, but {gives}"
    return f"layer {name} takes {_a(needed)}, but {gives}"


def _a(kinds: Sequence[str]) -> str:
    text = " or ".join(kinds)
    return f"{'an' if text[0] in 'AEIOU' else 'a'} {text}"


@dataclass
class BuiltStack:
    """A stack that is set up: what its top gives, and what each layer really got.

    ``resource`` is ``None`` where there is no layer, and nothing below. ``memory`` is for workloads to note what they
    have already done on it. ``facts`` are as they were when they were read last.
    """

    resource: Resource | None
    resources: list[Resource] = field(default_factory=list)  # of each layer
    facts: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, str] = field(default_factory=dict)
    layers: list[tuple[Layer, LayerContext]] = field(default_factory=list)
    below: Resource | None = None  # the lowest layer

    async def midway(self) -> list[tuple[Node, float, Sequence[str]]]:
        """What is done to its layers while loads run: node, seconds after these began, command."""
        found: list[tuple[Node, float, Sequence[str]]] = []
        for (layer, context), below in zip(self.layers, (self.below, *self.resources), strict=False):
            if moments := layer.moments():
                with understood(context.node.name, f"preparing {layer.label()}"):
                    commands = await layer.midway(below, context)
                found += ((context.node, *each) for each in zip(moments, commands, strict=True))
        return found

    async def read_facts(self) -> None:
        """Ask all layers at once what they are now: a round trip may take long.

        Raises ``TrialError`` where something is not as it was asked for: of several, the lowest layer's.
        """
        if not self.layers:
            return  # what it has is no layer's: the shape of a network
        asked = (_facts(*each, resource) for each, resource in zip(self.layers, self.resources, strict=True))
        found: list[dict[str, Any]] = []
        for answer in await all_of(*asked):
            if isinstance(answer, Exception):
                raise answer
            found.append(answer)
        self.facts = found


async def _facts(layer: Layer, context: LayerContext, resource: Resource) -> dict[str, Any] | Exception:
    try:
        with understood(context.node.name, f"looking at {layer.label()}"):
            found = {"layer": layer.layer, **await layer.facts(resource, context)}
            if layer.queue is not None and isinstance(resource, Disk):
                found |= await scheduler_facts(context.node, resource, layer.queue)
            return found
    except (StorlabError, FileNotFoundError) as error:
        return error


async def set_up(
    layers: Sequence[Layer],
    context_of: Callable[[int], LayerContext],
    below: Resource | None = None,
    first: Sequence[Step] = (),
) -> BuiltStack:
    """Set the layers up, lowest first, the first of them on ``below``, and after these steps on their node.

    On failure, what is set up stays: the journal knows it, the caller undoes it. Its facts are not read yet.
    """
    built = BuiltStack(below, below=below)
    if not layers:
        return built
    plans = Plans(context_of(0).node, first)
    for position, layer in enumerate(layers):
        context = context_of(position)
        if isinstance(layer, PlannedLayer):
            resource = await plans.add(layer, built.resource, context)
        else:
            await plans.carry_out()
            with understood(context.node.name, f"setting up {layer.label()}"):
                resource = await layer.set_up(built.resource, context)
        if layer.queue is not None and isinstance(resource, Disk):
            await plans.carry_out()
            with understood(context.node.name, f"setting up the queue of {layer.label()}"):
                # The disk of a guest ends with it; clients set up theirs whenever they connect.
                if not (context.node.identity.volatile or isinstance(layer, Crossing)):
                    await remember(resource, context)
                await tune(context.node, resource, layer.queue)
        built.resource = resource
        built.resources.append(resource)
        built.layers.append((layer, context))
    await plans.carry_out()
    return built
