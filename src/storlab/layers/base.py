"""The layer protocol: what a new layer must say of itself, and what it gets to work with.

Crossings are layers whose resource is on another node than what lies below them. What is below stands on the node that
serves; the crossing and all above it on the node that consumes. Kinds of crossing differ in their transport alone.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, get_args

from pydantic import Field, field_validator
from typing_extensions import TypeVar

from storlab.base.errors import Unsupported
from storlab.base.reach import OwnName
from storlab.base.waiting import to_its_end
from storlab.layers.block.identity import DeviceIdentity
from storlab.layers.block.queue_keys import Queue
from storlab.layers.resources import Disk, File, Format, Resource
from storlab.model import Model
from storlab.nodes.demands import Demands
from storlab.nodes.kind import Transport
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.raw_folders import make_raw_folder
from storlab.nodes.undo import RegisterUndo, Undo

T = TypeVar("T")
Below = TypeVar("Below", default=Any)
Gives = TypeVar("Gives", bound=Resource, default=Any)


@dataclass
class _Making:
    task: asyncio.Task[Any]
    waiting: int = 0


@dataclass
class Shared:
    """One for each foundation. ``register_undo`` journals what is undone together with the foundation itself."""

    register_undo: RegisterUndo | None = None
    _made: dict[str, _Making] = field(default_factory=dict)

    async def once(self, key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the first call with this key. What failed is tried again by whoever asks next.

        It is stopped where nobody waits for it any more, and has come to rest when the last one's cancellation goes on.
        """
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = _Making(asyncio.create_task(make(), name=key))
        making.waiting += 1
        try:
            result: T = await asyncio.shield(making.task)
            return result
        finally:
            making.waiting -= 1
            if not making.waiting and not making.task.done():
                making.task.cancel()
                await to_its_end(asyncio.wait([making.task]))
            failed = making.task.done() and (making.task.cancelled() or making.task.exception() is not None)
            if failed and self._made.get(key) is making:
                del self._made[key]

    def forget(self, key: str) -> None:
        self._made.pop(key, None)


Keep = Literal["trial", "round", "run"]
"""How long something stays set up, the shortest first."""

KEEPS: tuple[Keep, ...] = ("trial", "round", "run")


async def _no_system(size: int) -> Path:
    raise Unsupported("nothing has a root file system here that could be put on a disk")


async def _unclaimed(node: Node, device: DeviceIdentity) -> None:
    """Outside a run there is nobody to claim it for."""


@dataclass(frozen=True)
class LayerContext:
    """Where a layer works: a node, and a scratch folder there that is Storlab's own and exists.

    ``owner`` is the node for which it is made, where that is another than the one it is made on: several owners may
    share a foundation (a pool, a directory), and what each has there bears its name.
    """

    node: Node
    scratch: str
    position: int  # of the layer in its stack, from 0: for names that differ
    run: str  # the run's id, part of every name that others could see
    register: RegisterUndo
    owner: str = ""  # a node's name; by default this node's
    shared: Shared = field(default_factory=Shared)
    slot: str = "disk0"  # a crossing's name among those that end on this node
    others: Mapping[str, Sequence[Resource]] = field(default_factory=dict)  # what the node's further chains give
    records: Path | None = None  # on the controller: the folder of this stack among the run's raw records
    notify_running: Callable[[str, int, str | None, Callable[[], str]], None] = lambda name, pid, cgroup, log: None
    """A server calls it once it runs: its name, its first process, its cgroup's folder, for probes to watch; and what
    gives the last lines of its log."""
    notify_lost: Callable[[str, str], None] = lambda reason, log_tail: None
    """A server calls it where it ended before its time, with the reason and the last lines of its log."""
    warn: Callable[[str], None] = lambda text: None
    """For what went wrong and does not make the trial fail: a warning of the trial."""
    planned: Mapping[str, DeviceIdentity] = field(default_factory=dict)
    """What the devices that the study names were when the run was planned, by their names there."""
    claim: Callable[[Node, DeviceIdentity], Awaitable[None]] = _unclaimed
    """Keep other runs from using a device until the run ends; raises ``SafetyError`` where one does so."""
    system: Callable[[int], Awaitable[Path]] = _no_system
    """A file on the controller that holds a disk of so many bytes with the root file system of the chain's nodes."""

    def __post_init__(self) -> None:
        if not self.owner:
            object.__setattr__(self, "owner", self.node.name)

    async def register_undo(self, undo_name: str, **arguments: Any) -> None:
        """Journal, durably, how to tear down what is set up next. Call it *before* setting it up."""
        await self.register((undo_name, arguments))

    def path(self, name: str) -> str:
        """A path of this layer's own in the scratch folder; what is made for another node bears its name."""
        owner = "" if self.owner == self.node.name else f"{self.owner}-"
        return f"{self.scratch}/{self.position}-{owner}{name}"

    def record(self, name: str) -> Path | None:
        """A path of this layer's own among the run's raw records, where these are kept; its folder exists."""
        if self.records is None:
            return None
        make_raw_folder(self.records, levels=3)
        return self.records / self.path(name).rpartition("/")[2]

    async def once(self, key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What ``make`` gives, made only once among all contexts that share a foundation; the others wait for it.

        What outlives it is announced with ``foundation.register_undo``, and so goes away with the foundation.
        """
        return await self.shared.once(key, make)

    @property
    def foundation(self) -> LayerContext:
        """This context, for what several owners share: its entries are undone with what all of them stand on."""
        return replace(self, register=self.shared.register_undo or self.register)


class Layer(Model, Generic[Below, Gives], defer_build=True):
    """One piece of a stack. The fields of a subclass are its keys in the study file.

    ``class Loop(Layer[File, Disk])`` says what may lie below (``None``: it can be the lowest) and what comes out.
    ``undoes`` are the ways to undo what it announces with ``context.register_undo``. ``keep`` and ``once`` are for the
    set-up, which decides how long a layer stays and who shares it; the layer itself need not look at them.
    """

    takes: ClassVar[tuple[type[Resource] | None, ...]]
    gives: ClassVar[type[Resource]]
    further: ClassVar[tuple[type[Resource], ...]] = (Disk, File)
    """What chains may end as that it takes in addition to what lies below it."""
    overwrites: ClassVar[bool] = False
    """Whether it writes where it likes on the disks that it takes, so that none of them may hold a file system."""
    undoes: ClassVar[tuple[Undo, ...]] = ()
    serves_one: ClassVar[bool] = False
    """Whether what it gives is for one node alone, so that each node of a group has one of its own."""
    compared: ClassVar[tuple[str, ...]] = ()
    """Which of its facts are the same wherever it is set up in the same way: patterns as ``mount.*`` of dotted names,
    without sizes in use, ids, paths and ports. A report begins with those that differ all the same. The settings of a
    disk's queue are always among them.
    """
    read_only: ClassVar[bool] = False
    """Whether what it gives can only be read, so that no layer can be set up on it."""
    flush: ClassVar[tuple[str, ...]] = ()
    """A command that writes back what this kind of layer holds back and ``sync`` does not write."""
    drop: ClassVar[tuple[str, ...]] = ()
    """A command that empties a cache of this kind of layer's own, which stays when the kernel's caches are dropped."""

    layer: OwnName  # the layer's name in study files; a subclass narrows it to a literal with that default
    keep: Keep | None = Field(
        None, description="How long it stays set up: for a `trial`, a `round` or the `run`; by default as its nodes."
    )
    once: bool | None = Field(
        None,
        description="Whether all nodes of the group share it; by default all up to the last pool, directory or share.",
    )
    queue: Queue | None = Field(
        None, description="Of a layer that gives a disk: settings of [its queue](#queue), as a table."
    )

    @field_validator("queue")
    @classmethod
    def _of_a_disk(cls, queue: Queue | None) -> Queue | None:
        if queue is not None and not issubclass(cls.gives, Disk):
            raise ValueError(f"only disks have one, and this layer gives another kind of resource: {cls.gives.kind}")
        return queue

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        if parameters := cls.__pydantic_generic_metadata__["args"]:
            below, gives = parameters
            cls.takes = tuple(None if each is type(None) else each for each in get_args(below) or (below,))
            cls.gives = (get_args(gives) or (gives,))[0]

    def label(self) -> str:
        """A few characters for people: ``mkfs xfs``."""
        return self.layer

    def needs(self) -> Needs:
        """What the node must have."""
        return Needs()

    def space(self) -> int:
        """Bytes that this layer may take up on the file system that the scratch folder lies on."""
        return 0

    def overcommitted(self) -> int:
        """Bytes beyond ``space`` that it may grow to, for which the study waives a check."""
        return 0

    def start_time(self) -> float:
        """Seconds that setting it up and tearing it down take beyond what any layer does, as an estimate for plans."""
        return 0.0

    def capacity(self) -> int | None:
        """Bytes that fit into what it gives, where its keys say so; ``None`` where it holds what lies below it."""
        return None

    def existing_directory(self, scratch: str) -> str | None:
        """The directory of the node's own that loads fill; ``None`` for a layer that makes what they fill."""
        return None

    def claims(self) -> str | None:
        """What of the machine only one stack can have at a time: a device's path."""
        return None

    def claims_on(self, node: Node) -> str | None:
        """The same by the name that it has on a node, where names differ. Raises ``UserError`` where it has none."""
        return self.claims()

    async def identify(self, node: Node) -> DeviceIdentity | None:
        """Which device it is that it claims, now. Raises ``UserError`` where there is none."""
        return None

    def file_format(self) -> Format:
        """How the bytes of the file that it gives are to be read; layers that give something else say ``raw``."""
        return "raw"

    def boots(self, slot: str) -> str:
        """The serial number of the disk that its node boots from, which its chain's crossing has in ``slot``."""
        return ""

    def chains(self) -> tuple[str, ...]:
        """Names of the node's further chains that it takes in addition to what lies below it."""
        return ()

    def check_further(self, count: int) -> str | None:
        """What is wrong with so many resources of further chains; ``None`` where nothing is."""
        return None

    def check_sizes(self, below: Sequence[int | None], others: Mapping[str, Sequence[int | None]]) -> str | None:
        """What is wrong with the bytes of each disk below it and in its further chains, ``None`` where the study does
        not say how many; ``None`` where nothing is.
        """
        return None

    def gives_above(self, below: type[Resource] | None) -> type[Resource]:
        """What comes out above a resource of this type."""
        return self.gives

    def check_above(self, below: Layer | None) -> str | None:
        """What is wrong with this layer above that one, beyond its type; ``None`` where nothing is."""
        return None

    def check_chain(self, below: Sequence[Layer], main: bool) -> str | None:
        """What is wrong with this layer above all these of its chain; ``main``: it is the node's own stack."""
        return None

    async def check_node(self, node: Node) -> None:
        """Look, without changing anything, whether this can go ahead on the node, before anything runs.

        Raises ``SafetyError`` or another ``UserError``.
        """

    @abstractmethod
    async def set_up(self, below: Below, context: LayerContext) -> Gives:
        """Make the resource. Everything that outlives the call is announced with ``context.register_undo`` first.

        Raises ``Unsupported`` where this machine can't provide it, ``TrialError`` where it failed.
        """

    async def facts(self, resource: Gives, context: LayerContext) -> dict[str, Any]:
        """What was really got: read back from the system, not repeated from the study."""
        return {}

    def moments(self) -> tuple[float, ...]:
        """Seconds after the loads began, warm-up included, at which something is done to it."""
        return ()

    async def midway(self, below: Below, context: LayerContext) -> Sequence[Sequence[str]]:
        """What is done at each of ``moments``: a command that its node's agent starts then.

        Asked for right before the loads start: what an earlier trial's commands did to it is put back first.
        """
        return ()


def not_raw(below: Layer | None, what: str, remedy: str) -> str | None:
    """What is wrong below a layer that takes the bytes of a file as they are."""
    if below is None or below.file_format() == "raw":
        return None
    return f"{what} a file as it is, and layer {below.layer} gives a {below.file_format()} file: {remedy}"


class Crossing(Layer[Below, Gives]):
    """Takes a resource of one node to another."""

    transport: ClassVar[Transport]
    requests: ClassVar[Literal["fuse", "9p"] | None] = None
    """How the consumer's kernel asks for what it mounts, where such requests can be counted."""

    @abstractmethod
    def demands(self, below: Below, slot: str) -> Demands:
        """What the consumer must get before it starts. ``slot`` names the crossing among those that end there."""

    async def sever(self, resource: Gives, context: LayerContext) -> None:
        """Cut the consumer off, so that undoing what is above can't wait for a server that is gone. May be repeated."""

    def exported(self) -> Layer | None:
        """What serves the resource below it to a hypervisor that runs on another machine, if it doesn't cross yet."""
        return None

    def at_home(self, below: Layer) -> tuple[Layer, ...] | None:
        """What stands in for it where nothing has to be crossed; ``None`` where nothing can."""
        return None
