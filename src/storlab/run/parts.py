"""Parts: the units of layouts that are set up, and what each stands on. All parts of a run make one graph.

The shape of a node's network is a part, too: what works over the network stands on it. A card has one shape at a time.
A cell that wants another for a node that is kept has the old one torn down first, and with it what was set up over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storlab.base.errors import StorlabError, Unsupported
from storlab.base.waiting import all_of
from storlab.layers.base import Crossing, LayerContext, Shared
from storlab.layers.resources import Resource
from storlab.layers.stack import BuiltStack
from storlab.nodes.node import Node
from storlab.nodes.shaping.apply import Ending, Port, connections, prove_size, round_trip, shape_interface, shape_tcp
from storlab.nodes.undo import Entry, RegisterUndo
from storlab.run.recovery.journal import Journal, Pending
from storlab.run.recovery.reclaim import Teardown, tear_down
from storlab.run.session import Session
from storlab.study.cells import Cell, node_names
from storlab.study.chains import Chain
from storlab.study.layout import Unit

_SEVER = 10.0  # s, for a crossing to let go of a server that is gone


@dataclass(frozen=True)
class LostLayer:
    """A layer's program that ended before its time. ``depth``: of its part in the graph, 0 stands on nothing."""

    part: str
    depth: int
    at: float
    reason: str
    log: str


@dataclass(frozen=True)
class Program:
    """A program that a layer keeps running: its first process, and the folder of its cgroup, where it has one.

    ``log`` gives the last lines of its log so far.
    """

    name: str
    pid: int
    cgroup: str | None
    log: Callable[[], str]


@dataclass(eq=False)
class Part:
    """A unit that is set up. ``slot``: what only one part can have at a time, such as the shape of a card."""

    unit: Unit
    key: str
    stands_on: tuple[Part, ...] = ()
    slot: str = ""
    node: Node | None = None
    started: bool = False  # it is the node itself, which ends with it
    booted: bool = False  # it is a boot of a machine that is there for the whole run
    stack: BuiltStack = field(default_factory=lambda: BuiltStack(None))
    shared: Shared = field(default_factory=Shared)
    crossings: list[tuple[Crossing, Resource, LayerContext]] = field(default_factory=list)
    entries: list[Pending] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    ready: bool = False
    doubtful: bool = False  # a trial that used it failed: it goes once no other uses it

    @property
    def depth(self) -> int:
        """How many parts lie between it and one that stands on nothing."""
        return 1 + max((part.depth for part in self.stands_on), default=-1)

    def all_below(self) -> Iterator[Part]:
        """Every part that it stands on, down to the lowest; some more than once."""
        for part in self.stands_on:
            yield part
            yield from part.all_below()

    def stands_on_any(self, nodes: set[str]) -> bool:
        """Whether one of these nodes, by instance, is somewhere below it."""
        return any(
            (part.node is not None and part.node.instance in nodes) or part.stands_on_any(nodes)
            for part in self.stands_on
        )

    @property
    def is_set_up(self) -> bool:
        """Whether it is more than a node that is there for the whole run anyway, which all cells of it stand on."""
        return self.started or self.booted or bool(self.entries or self.stack.resources)

    @property
    def sound(self) -> bool:
        """Whether it can be used: all of it was set up, and no node that it needs was lost."""
        alive = self.node is None or self.node.lost is None
        return self.ready and alive and all(part.sound for part in self.stands_on)


Make = Callable[[Part], Awaitable[None]]


@dataclass
class Parts:
    """Every part that is set up. Parts of one graph are set up at the same time, each after what it stands on."""

    session: Session
    journal: Journal
    lost: list[LostLayer] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # of the trial that runs
    _parts: dict[str, Part] = field(default_factory=dict)  # in the order in which they were begun
    _underway: set[str] = field(default_factory=set)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _making: Shared = field(default_factory=Shared)
    _loss: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(
        self, unit: Unit, key: str, stands_on: Sequence[Part], make: Make, used: dict[str, Part], slot: str = ""
    ) -> Part:
        """The part of this key, made by ``make`` unless it is there and sound. It is noted among those ``used``.

        Concurrent callers share one attempt. What fails stays, not ready, until it is torn down.
        """
        async with self._lock:  # whoever finds one that is not sound tears it down before anybody makes it again
            known = self._parts.get(key)
            if known is not None and key not in self._underway and not known.sound:
                await self.tear_down([known])
                known = None
            if known is None:
                known = self._parts[key] = Part(unit, key, tuple(stands_on), slot)
                self._underway.add(key)
        part = used[key] = known
        if not part.ready:
            await self._making.once(key, lambda: self._made(part, make))
        return part

    async def make_room(self, slot: str, key: str = "") -> None:
        """Tear down what has this slot, and is not the part of this key, with all that stands on it."""
        async with self._lock:
            others = [part for part in self._parts.values() if part.slot == slot and part.key != key]
            if others:
                result = await self.tear_down(others)
                self.warnings += [f"could not be torn down: {reason}" for reason in result.failed]

    async def _made(self, part: Part, make: Make) -> None:
        try:
            await make(part)
            part.ready = True
        finally:
            self._underway.discard(part.key)

    def registering(self, part: Part, node: Node) -> RegisterUndo:
        """How what ``part`` sets up on ``node`` is journalled: it is torn down with the part."""

        async def register(*entries: Entry) -> None:
            part.entries += self.journal.register_all(node.identity, entries)

        return register

    def losing(self, part: Part) -> Callable[[str, str], None]:
        """What a layer of ``part`` calls when its program is gone before its time: a reason, and its last lines."""

        def notify_lost(reason: str, log: str) -> None:
            part.ready = False
            self.lost.append(LostLayer(part.key, part.depth, time.monotonic(), reason, log))
            self._loss.set()

        return notify_lost

    async def until_lost(self) -> None:
        await self._loss.wait()

    def forget_losses(self) -> None:
        self.lost.clear()
        self.warnings.clear()
        self._loss.clear()

    def all(self) -> list[Part]:
        return list(self._parts.values())

    async def end_nodes(self, parts: Iterable[Part]) -> None:
        """End the nodes that were started among these parts, all at once."""
        started = [part for part in parts if part.started and part.node is not None]
        await all_of(*(self.session.end(part.node) for part in started if part.node is not None))

    async def tear_down(self, parts: Iterable[Part], *, severed: bool = False) -> Teardown:
        """Undo these parts and all that stand on them, newest first.

        ``severed``: something failed, so crossings first let go of what may be gone.
        """
        doomed = self._with_dependents(parts)
        ending = {part.node.instance for part in doomed if part.started and part.node is not None}
        if severed:
            await self.sever(doomed, ending)
        for part in doomed:
            part.ready = False
            self._parts.pop(part.key, None)
            self._making.forget(part.key)
        # What uses a node that ends, and stays itself, lets go of it first. What is on such a node ends with it.
        first = [part for part in doomed if part.node is not None and part.node.instance not in ending]
        result = await self._undo([part for part in first if part.stands_on_any(ending)])
        await self.end_nodes(doomed)
        return result + await self._undo(doomed)

    async def _undo(self, parts: Iterable[Part]) -> Teardown:
        mine = {entry.number for part in parts for entry in part.entries}
        return await tear_down(self.journal, self.session, lambda entry: entry.number in mine)

    async def sever(self, doomed: Iterable[Part], ending: Collection[str] = ()) -> None:
        """Let the crossings of these parts go of what may be gone, but on nodes that end anyway."""
        for crossing, resource, context in [each for part in doomed for each in reversed(part.crossings)]:
            if context.node.lost is None and context.node.instance not in ending:
                with contextlib.suppress(StorlabError, TimeoutError, FileNotFoundError):  # it may be gone already
                    async with asyncio.timeout(_SEVER):
                        await crossing.sever(resource, context)

    def _with_dependents(self, parts: Iterable[Part]) -> list[Part]:
        doomed = {part.key for part in parts}
        for part in self._parts.values():  # what stands on a part was begun after it
            if any(below.key in doomed for below in part.stands_on):
                doomed.add(part.key)
        return [part for part in reversed(self._parts.values()) if part.key in doomed]


class Shapes:
    """Those of one cell."""

    def __init__(self, session: Session, parts: Parts, cell: Cell) -> None:
        self._session, self._parts, self._cell = session, parts, cell
        self._found: dict[str, Part] = {}  # by node

    async def of(self, unit: Unit, key: str, below: Sequence[Part], used: dict[str, Part]) -> Part:
        node = below[0].node
        assert node is not None
        await self.make_room(node, key)
        part = await self._parts.get(unit, key, below, self._shape, used, _slot(node))
        self._found[unit.node] = part
        return part

    async def make_room(self, node: Node, key: str = "") -> None:
        """Tear down any other shape of a node's network."""
        await self._parts.make_room(_slot(node), key)

    async def _shape(self, part: Part) -> None:
        node = part.node = part.stands_on[0].node
        host, network = self._session.host, self._session.network
        interface, tcp = self._cell.nodes[part.unit.on].shaped, self._cell.nodes[part.unit.on].tcp
        assert node is not None and interface is not None, "checked when the study was loaded"
        register = self._parts.registering(part, node)
        if self._cell.network is not None and self._cell.network.shapes:
            card = network.card_of(node.address or "")
            port = None if card is None else Port(host, network.name, card, self._parts.registering(part, host))
            got = await shape_interface(node, interface, port, self._cell.network, register)
            part.stack.facts.append({"layer": "network", **got, "peers": {}})
        if tcp is not None:
            part.stack.facts.append({"layer": "tcp", **await shape_tcp(node, interface, tcp, register)})

    async def open_way(self, chain: Chain, node: Node | None) -> None:
        """Let nodes of the run's network reach the machine that serves a chain; ``node``: the one that does so itself.

        Raises ``Unsupported``, and ``TrialError`` if nothing comes back.
        """
        if not self._cell.by_uplink(chain):
            return
        for served in (self._session.nodes[name] for name in node_names(chain.source, self._cell.nodes[chain.source])):
            if served.address is None:
                raise Unsupported(f"node {served.name} has no address at which others reach it")
            if node is None:
                await self._session.network.open_to(served.address)
            else:
                await self._session.network.route(node, served.address)

    async def cross(self, chain: Chain, node: Part) -> None:
        """Before a chain crosses to a node: packets of full size pass between that and what serves it, both ways.

        Else connections are made, and hang at the first that is full. Raises ``TrialError`` that says where they end.
        """
        assert node.node is not None and chain.crossing is not None
        if chain.crossing.transport == "network":
            await self.open_way(chain, node.node)
        asked, mine = self._cell.network, self._found.get(node.node.name)
        network = asked if asked is not None and asked.shapes else None
        for peer in self._servers(chain):
            theirs = self._found.get(peer)
            if network is None or mine is None or theirs is None or mine.node is None or theirs.node is None:
                continue
            here = Ending(mine.node, self._cell.nodes[chain.group].shaped or "")
            there = Ending(theirs.node, self._cell.nodes[chain.source].shaped or "")
            ends = [(here, there), *([] if self._cell.by_uplink(chain) else [(there, here)])]  # no way in: it is NAT
            await all_of(*(prove_size(one, other, network) for one, other in ends))

    async def look(self) -> None:
        """Add to the facts what is known once all is set up: round trips to the nodes that serve, and connections."""
        for chain in self._cell.chains:
            for peer in self._servers(chain):
                for name in node_names(chain.group, self._cell.nodes[chain.group]):
                    await self._look_from(name, peer)

    def _servers(self, chain: Chain) -> list[str]:
        """The nodes that a chain comes from over the network."""
        if chain.crossing is None or chain.crossing.transport != "network" or chain.source not in self._cell.nodes:
            return []
        return node_names(chain.source, self._cell.nodes[chain.source])

    async def _look_from(self, name: str, peer: str) -> None:
        mine, theirs = self._found.get(name), self._found.get(peer)
        facts = next((each for each in mine.stack.facts if each["layer"] == "network"), None) if mine else None
        if facts is None or mine is None or mine.node is None or theirs is None or theirs.node is None:
            return
        address = theirs.node.address
        assert address is not None
        known = facts["peers"].setdefault(peer, {})
        if "round_trip" not in known:
            known["round_trip"] = await round_trip(mine.node, address)
        known |= {"mss": [], "path_mtu": [], **await connections(mine.node, address)}


def _slot(node: Node) -> str:
    return f"network of {node.instance}"
