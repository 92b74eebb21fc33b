"""The layer protocol: what a new layer must say of itself, and what it gets to work with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from storlab.layers.resources import Format, Resource
from storlab.layers.shared import Shared
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node

T = TypeVar("T")

Undo = Callable[[Node, Mapping[str, Any]], Awaitable[str | None]]
"""Takes down one thing that was put up; returns what it did, or ``None`` where nothing stood any more."""

WillUndo = Callable[[str, Mapping[str, Any]], Awaitable[None]]

UNDO: dict[str, Undo] = {}
"""Every way of taking something down, by the name that journals use."""

PATIENCE: dict[str, float] = {}
"""Seconds that each may take; beyond, it has hung."""

LONG = 3600.0
"""For files of any size: a file system may tell its disk of every block that a large one frees."""


def undo(name: str, patience: float = 120.0) -> Callable[[Undo], Undo]:
    """Register a function as the way to take ``name`` down, within ``patience`` seconds.

    The default is for unmounting, which writes back whatever the page cache still holds. The function must be
    idempotent, and must touch nothing but what its arguments name: it may run long after, by ``storlab clean``, when
    somebody else has taken what was ours.
    """

    def register(function: Undo) -> Undo:
        assert name not in UNDO, f"two ways to undo {name}"
        UNDO[name], PATIENCE[name] = function, patience
        return function

    return register


@dataclass(frozen=True)
class Site:
    """Where a layer works: a node, and a scratch folder there that is Storlab's own and exists.

    ``owner`` is the node for which it is made, where that is another than the one it is made on: several owners may
    share a foundation (a pool, a directory), and what each has there bears its name.
    """

    node: Node
    scratch: str
    position: int  # of the layer in its stack, from 0: for names that differ
    run: str  # the run's id, part of every name that others could see
    will_undo: WillUndo
    owner: str = ""  # a node's name; by default this node's
    shared: Shared = field(default_factory=Shared)

    def __post_init__(self) -> None:
        if not self.owner:
            object.__setattr__(self, "owner", self.node.name)

    async def will(self, undo_name: str, **arguments: Any) -> None:
        """Journal, durably, how to take down what is put up next. Call it *before* putting it up."""
        assert undo_name in UNDO, f"no way to undo {undo_name}"
        await self.will_undo(undo_name, arguments)

    def path(self, name: str) -> str:
        """A path of this layer's own in the scratch folder; what is made for another node bears its name."""
        owner = "" if self.owner == self.node.name else f"{self.owner}-"
        return f"{self.scratch}/{self.position}-{owner}{name}"

    async def once(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """What ``make`` gives, made only once among all sites that share a foundation; the others wait for it.

        What outlives it is announced with ``foundation.will``, and so goes away with the foundation.
        """
        return await self.shared.once(key, make)

    @property
    def foundation(self) -> Site:
        """This site, for what several owners share: its journal's entries are undone with what all of them stand on."""
        return replace(self, will_undo=self.shared.will_undo or self.will_undo)


class Layer(BaseModel):
    """One piece of a stack. The fields of a subclass are its keys in the study file.

    ``takes`` lists what may lie beneath (``None``: it can be the lowest), ``gives`` what comes out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    takes: ClassVar[tuple[type[Resource] | None, ...]]
    gives: ClassVar[type[Resource]]

    layer: str  # the layer's name in study files; a subclass narrows it to a literal with that default

    def label(self) -> str:
        """A few characters for people: ``mkfs xfs``."""
        return self.layer

    def needs(self) -> Needs:
        """What the node must have."""
        return Needs()

    def space(self) -> int:
        """Bytes that this layer may take up on the file system that the scratch folder lies on."""
        return 0

    def claims(self) -> str | None:
        """What of the machine only one stack can have at a time: a device's path."""
        return None

    def file_format(self) -> Format:
        """How the bytes of the file that it gives are to be read; layers that give something else say ``raw``."""
        return "raw"

    def check_above(self, below: Layer | None) -> str | None:
        """What is wrong with this layer above that one, beyond its type; ``None`` where nothing is."""
        return None

    async def check_node(self, node: Node) -> None:
        """Look, without changing anything, whether this can go ahead on the node, before anything runs.

        Raises ``SafetyError`` or another ``UserError``.
        """

    @abstractmethod
    async def put_up(self, below: Resource | None, site: Site) -> Resource:
        """Make the resource. Everything that outlives the call is announced with ``site.will`` first.

        Raises ``Unsupported`` where this machine can't provide it, ``TrialError`` where it failed.
        """

    async def facts(self, resource: Resource, site: Site) -> dict[str, Any]:
        """What was really got: read back from the system, not repeated from the study."""
        return {}
