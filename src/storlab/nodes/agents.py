"""Nodes whose agent is a command of the controller, over its standard streams: here, in a namespace, or by ssh.

They are there for the whole run. Leaving them ends all that their agents started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from storlab.base.errors import NodeError, StorlabError
from storlab.base.programs import agent_path, search_path
from storlab.base.text import one_line
from storlab.base.waiting import cancelled, to_its_end
from storlab.nodes.agent.connection import Connection
from storlab.nodes.demands import NO_DEMANDS, Demands
from storlab.nodes.identity import NodeIdentity, machine_of
from storlab.nodes.kind import K, Launcher, Prepared, Services
from storlab.nodes.node import Node
from storlab.nodes.processes import Agents, Controller, cgroup_name, end_marked, end_processes, mark

HELLO_TIMEOUT = 10.0  # s; a loaded machine needs far less
_EXIT_TIMEOUT = 10.0
_DRAIN_TIMEOUT = 1.0
_PIECE = 256 * 1024  # bytes
_RETRY = 2.0  # s
_MOST_SAID = 4096  # bytes
_LONGEST = 400  # characters

Why = Callable[[str, str], Awaitable[str]]
"""The sentence to say of a stream that closed, from the plain one and what was printed to standard error."""


@contextlib.asynccontextmanager
async def running_agent(
    name: str, argv: Sequence[str], *, hello: float | None = None, lease: float | None = None, why: Why | None = None
) -> AsyncIterator[Node]:
    """The agent that ``argv`` starts, for as long as the context lasts.

    ``lease``: seconds after which it ends if it hears nothing. With ``why``, what is printed to standard error is kept
    for that.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if why is None else asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": search_path()},
        # Ctrl-C in the terminal is for the controller alone: it decides what is stopped, and in which order.
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    said = bytearray()
    listening = asyncio.create_task(_keep_last(process.stderr, said))

    async def explained(reason: str) -> str:
        await asyncio.wait([listening], timeout=_DRAIN_TIMEOUT)
        return reason if why is None else await why(reason, said.decode("utf-8", "replace"))

    connection = Connection(name, process.stdout, process.stdin, why=explained)
    try:
        greeting = await connection.greet(hello or HELLO_TIMEOUT, lease)
        yield Node(name, connection, pid=greeting.pid)
    finally:
        await to_its_end(_end(connection, process))
        await to_its_end(cancelled(listening))


async def _end(connection: Connection, process: asyncio.subprocess.Process) -> None:
    if connection.lost is not None:
        _kill(process)  # it may still live, and stand still
    try:
        async with asyncio.timeout(_EXIT_TIMEOUT):
            await connection.close()
            await _gone(process)
    except TimeoutError:  # something that it started hangs in the kernel, or it sends without end
        _kill(process)
        await _gone(process)
        await connection.close()


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait for its end. What it still sends is dropped: unread, it would keep it from ending, and asyncio its pipe."""
    assert process.stdout is not None
    dropping = asyncio.create_task(_drop(process.stdout))
    try:
        await process.wait()
        await asyncio.wait([dropping], timeout=_DRAIN_TIMEOUT)  # what it started, and can't be killed, may have it open
    finally:
        await cancelled(dropping)


async def _keep_last(stream: asyncio.StreamReader | None, into: bytearray) -> None:
    while stream is not None and (piece := await stream.read(_PIECE)):
        into += piece
        del into[:-_MOST_SAID]


async def _drop(stream: asyncio.StreamReader) -> None:
    while await stream.read(_PIECE):
        pass


def _kill(process: asyncio.subprocess.Process) -> None:
    # Not process.kill(): that reaps the child behind asyncio's back, which then warns of it (Python 3.11).
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@dataclass
class _Launched:
    """A node that is there, or was and is lost."""

    node: Node
    cgroup: str
    context: AsyncExitStack


class AgentLauncher(Launcher[K]):
    """What the launchers of such kinds have in common. A subclass says where an agent is, and how it is started."""

    hello: ClassVar[float] = HELLO_TIMEOUT
    here: ClassVar[bool] = False
    """Its agents are on this machine: so the journal can name them, and their cgroups, before they are there."""
    lease: ClassVar[float | None] = None
    """Seconds after which an agent ends that hears nothing; ``None``: it learns of its controller's end at once."""
    patience: ClassVar[float] = 0.0
    """Seconds that a lost node is waited for before the run goes on without it."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._nodes: dict[tuple[str, str], _Launched] = {}  # by the node's name and what it is
        self._launches = 0
        self._locks: dict[str, asyncio.Lock] = {}  # by the node's name

    @abstractmethod
    async def address_of(self, instance: str, spec: K) -> str:
        """Where a new node's agent is to be, in words that ``command`` understands in another process, too."""

    async def command(self, address: str, environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
        return ["env", *(f"{key}={value}" for key, value in environment.items()), str(agent_path()), *arguments]

    async def took_in(self, node: Node) -> None:
        """Its agent answers: what else the launcher knows of a node."""

    async def why(self, name: str, address: str, reason: str, stderr: str) -> str:
        """Why the stream to a node's agent closed, as far as is known; ``stderr``: what was printed there."""
        lines = stderr.strip().splitlines()
        return f"{reason} ({one_line(lines[-1])[:_LONGEST]})" if lines else reason

    async def stand_in(self, name: str, spec: K) -> Node | None:
        return await self.open(name, spec, Prepared(), NO_DEMANDS, Path("/dev/null"))

    async def open(self, name: str, spec: K, prepared: Prepared, demands: Demands, folder: Path) -> Node:
        key = name, spec.model_dump_json()
        async with self._locks.setdefault(name, asyncio.Lock()):
            if key not in self._nodes:
                instance = self.services.new_instance(name)
                self._nodes[key] = await self._launch(name, instance, spec.kind, await self.address_of(instance, spec))
        return self._nodes[key].node

    def announce(self) -> None:
        """Journal, now that there is a journal, how to end what the agents leave, should they be killed themselves."""
        for known in self._nodes.values():
            self._announce(known.node.identity, known.cgroup)

    async def end(self, node: Node) -> None:
        """It is there for the whole run."""

    async def close(self) -> None:
        async with AsyncExitStack() as together:
            for known in self._nodes.values():
                together.push_async_callback(known.context.aclose)
        self._nodes.clear()

    async def revive(self) -> dict[str, str]:
        lost = [known for known in self._nodes.values() if known.node.lost is not None]
        found = await asyncio.gather(*(self._revived(known) for known in lost))
        return {known.node.name: reason for known, reason in zip(lost, found, strict=True) if reason is not None}

    async def _revived(self, known: _Launched) -> str | None:
        until, waiting = time.monotonic() + self.patience, False
        while True:
            try:
                await self._revive(known)
            except StorlabError as error:
                if time.monotonic() >= until:
                    return str(error)
                if not waiting:
                    self.services.notify(f"Waiting for node {known.node.name}: {error}")
                waiting = True
            else:
                return None
            await asyncio.sleep(_RETRY)

    async def reach(self, identity: NodeIdentity) -> Node | None:
        for known in self._nodes.values():
            if (known.node.instance, known.node.identity.address) == (identity.name, identity.address):
                if known.node.lost is not None:
                    await self._revive(known)
                return known.node
        known = await self._launch(identity.name, identity.name, identity.kind, identity.address)
        self._nodes[identity.name, identity.address] = known
        return known.node

    async def _launch(self, name: str, instance: str, kind: str, address: str) -> _Launched:
        self._launches += 1
        # A run that is resumed, and an agent that is launched again, use another than what may be left of the first.
        cgroup = cgroup_name(Agents(self.services.run, Controller.this(), instance), self._launches)
        environment = mark(self.services.run, instance)
        announced = self.here and self.services.journal is not None
        if announced:
            machine = self.services.host.identity.machine
            self._announce(NodeIdentity(instance, kind, address, machine), cgroup)
        argv = await self.command(address, environment, ["serve", "--cgroup", cgroup])
        context = AsyncExitStack()
        why = None if self.here else partial(self.why, name, address)
        node = await context.enter_async_context(running_agent(name, argv, hello=self.hello, lease=self.lease, why=why))
        try:
            node.environment, node.here = environment, self.here
            machine = await machine_of(node)
            node.identity, node.machine = NodeIdentity(instance, kind, address, machine), machine.boot
            await self.took_in(node)
        except BaseException:
            await context.aclose()
            raise
        if not announced:
            self._announce(node.identity, cgroup)
        return _Launched(node, cgroup, context)

    async def _revive(self, known: _Launched) -> None:
        """Launch an agent again, and let it end all that the lost one could have left. The ``Node`` stays the same."""
        node, before, machine = known.node, known.cgroup, known.node.identity.machine
        await known.context.aclose()
        new = await self._launch(node.name, node.instance, node.identity.kind, node.identity.address)
        if not new.node.identity.machine.is_same(machine):
            await new.context.aclose()
            raise NodeError(f"another machine answers at {node.identity.address}, whose machine id is another")
        if new.node.machine != node.machine:  # what was known of it was of its last boot
            self.services.notify(f"Node {node.name} has rebooted.")
            node.known.clear()
            node.taken.clear()
        node.connection, node.pid = new.node.connection, new.node.pid
        node.identity, node.machine = new.node.identity, new.node.machine
        known.cgroup, known.context = new.cgroup, new.context
        with contextlib.suppress(StorlabError):  # what hangs in the kernel stays in the journal, and is reported later
            await end_processes(node, self.services.run, node.instance, before)

    def _announce(self, identity: NodeIdentity, cgroup: str) -> None:
        if self.services.journal is not None:
            arguments = {"run": self.services.run, "node": identity.name, "cgroup": cgroup}
            self.services.journal.register(identity, end_marked.name, arguments)
