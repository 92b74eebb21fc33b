"""Two real guests in one network, for layers that cross it: what serves is set up on one, what mounts it on the other.

Guests are slow to start where they are emulated, so the tests of a module share a pair, on one event loop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from storlab.base.errors import NodeLost
from storlab.layers import stack
from storlab.layers.base import Crossing, Layer, LayerContext, Shared
from storlab.layers.resources import Disk, Resource
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.guest import Guest
from storlab.nodes.kinds.vm.qmp import execute
from storlab.nodes.network import RunNetwork, remove_network
from storlab.nodes.node import Node
from storlab.nodes.processes import Agents, Controller, cgroup_name
from storlab.nodes.undo import Entry
from storlab.run.recovery.undoing import undo_table

from .sites import RUN, guest, parse

T = TypeVar("T")

SCRATCH = f"/tmp/storlab-{RUN}/host"
MAPPED = "dmsetup ls --noheadings 2> /dev/null | grep -v '^No devices'; ls /dev/mapper | grep -vx control; true"
"""Lists what device mapper has in a guest."""


@dataclass
class End:
    """One of the two guests, with a journal of what is set up there."""

    guest: Guest
    journal: list[Entry] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    losing: asyncio.Event = field(default_factory=asyncio.Event)
    warnings: list[str] = field(default_factory=list)
    shared: Shared = field(init=False)

    def __post_init__(self) -> None:
        self.shared = Shared(self._register)

    @property
    def node(self) -> Node:
        return self.guest.node

    def _lose(self, reason: str) -> None:
        self.lost.append(reason)
        self.losing.set()

    async def _register(self, *entries: Entry) -> None:
        self.journal.extend(entries)

    def context(self, position: int, owner: str = "", slot: str = "disk0") -> LayerContext:
        told: dict[str, Any] = {"notify_lost": lambda reason, tail: self._lose(reason), "warn": self.warnings.append}
        return LayerContext(self.node, SCRATCH, position, RUN, self._register, owner, self.shared, slot, **told)

    async def tear_down(self) -> list[str]:
        """Undo everything, newest first; a second time nothing may be left to do."""
        entries, self.journal = [*self.journal], []
        did = [await undo_table()[name].function(self.node, **arguments) for name, arguments in reversed(entries)]
        again = [await undo_table()[name].function(self.node, **arguments) for name, arguments in reversed(entries)]
        assert again == [None] * len(entries), again
        self.shared = Shared(self._register)
        self.lost.clear()
        self.losing.clear()
        return [words for words in did if words is not None]

    async def cut(self, *, up: bool = False) -> None:
        """Take its network card off the network, or put it back."""
        await execute(self.guest.qmp, "set_link", {"name": "nic0", "up": up})

    async def output(self, script: str) -> str:
        return (await self.node.run(["sh", "-c", script])).stdout.decode().strip()


@dataclass
class Crossed:
    """What was set up on both: the layers of one stack, with what each gave and really got."""

    layers: list[Layer]
    resources: list[Resource]
    facts: list[dict[str, Any]]
    contexts: list[LayerContext]

    @property
    def resource(self) -> Resource:
        return self.resources[-1]

    def fact(self, layer: str) -> dict[str, Any]:
        return next(each for each in self.facts if each["layer"] == layer)

    async def sever(self) -> None:
        """As a run does once a trial has failed."""
        for layer, resource, context in zip(self.layers, self.resources, self.contexts, strict=True):
            if isinstance(layer, Crossing):
                await layer.sever(resource, context)


@dataclass
class Pair:
    """Both guests."""

    server: End
    client: End

    async def set_up(self, *layers: Mapping[str, Any], owner: str = "") -> Crossed:
        """A stack from its tables in a study file: all up to the crossing on the server, the rest on the client."""
        parsed = parse(layers)
        across = next((at for at, layer in enumerate(parsed) if isinstance(layer, Crossing)), len(parsed))

        async def on(end: End, begin: int, own: list[Layer], below: Resource | None) -> stack.BuiltStack:
            built = await stack.set_up(own, lambda at: end.context(begin + at, owner or "client"), below)
            await built.read_facts()
            return built

        below = await on(self.server, 0, parsed[:across], None)
        above = await on(self.client, across, parsed[across:], below.resource)
        contexts = [context for _, context in (*below.layers, *above.layers)]
        return Crossed(parsed, [*below.resources, *above.resources], [*below.facts, *above.facts], contexts)

    async def disks(self, *sizes: str, ours: bool = True, owner: str = "disk") -> list[Disk]:
        """Loop devices on the server."""
        made = []
        for number, size in enumerate(sizes):
            below = await self.set_up({"layer": "file", "size": size}, {"layer": "loop"}, owner=f"{owner}{number}")
            assert isinstance(below.resource, Disk)
            made.append(replace(below.resource, ours=ours))
        return made

    async def moved(self, *disks: Disk) -> list[tuple[int, int]]:
        """Bytes that each of these disks of the server has read and written so far."""
        stats = " ".join(f"/sys/block/{disk.name}/stat" for disk in disks)
        lines = [line.split() for line in (await self.server.output(f"cat {stats}")).splitlines()]
        return [(int(line[2]) * 512, int(line[6]) * 512) for line in lines]

    @asynccontextmanager
    async def left_clean(self, listing: str) -> AsyncIterator[None]:
        """What is set up meanwhile is torn down, and then this script prints nothing on the server."""
        try:
            yield
        finally:
            await self.tear_down()
        assert await self.server.output(listing) == ""

    async def mount(self, layer: Mapping[str, Any], below: Crossed) -> None:
        """One more layer, on the client, above what was set up on the server."""
        await parse([layer])[0].set_up(below.resource, self.client.context(len(below.layers), "client"))

    async def tear_down(self) -> list[str]:
        """The client first."""
        return [*await self.client.tear_down(), *await self.server.tear_down()]

    @asynccontextmanager
    async def crossed(self, *layers: Mapping[str, Any]) -> AsyncIterator[Crossed]:
        """As ``set_up``, for as long as the context lasts; nothing of it is left in either guest."""
        try:
            yield await self.set_up(*layers)
        finally:
            for end in (self.server, self.client):
                await end.cut(up=True)
            await self.tear_down()
        for end in (self.server, self.client):
            assert await end.output(f"find {SCRATCH} -mindepth 1; grep {SCRATCH} /proc/self/mountinfo || true") == ""


@asynccontextmanager
async def two_guests(memory: str = "512M") -> AsyncIterator[Pair]:
    """A server and a client, booted, with scratch folders on file systems of their own."""
    async with AsyncExitStack() as stack:
        # By its cgroup's name the run is alive: else `storlab clean`, as other tests call it, would take its network.
        cgroup = cgroup_name(Agents(RUN, Controller.this(), "host"), secrets.randbelow(1 << 31))
        host = await stack.enter_async_context(local_node("host", cgroup=cgroup))
        network = RunNetwork(f"{RUN}-{secrets.token_hex(8)}", lambda: host, lambda *names, **arguments: None)
        stack.push_async_callback(remove_network, host, name=network.name)
        within = tuple(await network.enter())

        async def start(name: str) -> End:
            card = await network.tap()
            made = guest(host, name, [], memory=memory, card=card, within=within)
            end = End(await stack.enter_async_context(made))
            await end.node.run(["mkdir", "--parents", SCRATCH])
            return end

        yield Pair(await start("server"), await start("client"))


class Shop:
    """A pair on an event loop of its own, which all tests of a module use one after the other.

    Where a test loses a guest, the next ones get others: only that test fails.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._open()

    def _open(self) -> None:
        self._guests = two_guests()
        self.pair = self._runner.run(self._guests.__aenter__())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except NodeLost:
            self.close()
            self._open()
            raise

    def close(self) -> None:
        self._runner.run(self._guests.__aexit__(None, None, None))


def open_shop() -> Iterator[Shop]:
    """For a fixture of a module."""
    with asyncio.Runner() as runner, closing(Shop(runner)) as shop:
        yield shop
