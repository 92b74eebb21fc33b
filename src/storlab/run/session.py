"""A run's nodes of all kinds: opened, launched again where one is lost, found for the journal, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from storlab.base.errors import NodeError, StorlabError
from storlab.layers.block.identity import DeviceIdentity
from storlab.layers.block.use import Claims
from storlab.nodes.accounts import make_private, private_name
from storlab.nodes.agent import steps
from storlab.nodes.agents import AgentLauncher
from storlab.nodes.demands import NO_DEMANDS, Demands
from storlab.nodes.identity import NodeIdentity
from storlab.nodes.kind import Launcher, Loss, NodeKind, Prepared, Services
from storlab.nodes.kinds.local import LocalKind
from storlab.nodes.needs import PROGRAMS, Needs, version_commands
from storlab.nodes.network import RunNetwork
from storlab.nodes.node import Node
from storlab.records.run_folder import Host
from storlab.registry import node_kinds, own_keys
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.temporary import remember_scratch
from storlab.run.recovery.undoing import remove_scratch
from storlab.study.cells import HOST

_AFTERMATH = 0.5  # s: where a server is gone, its clients may be known to be gone a moment earlier
_NOTHING = Path("/dev/null")  # an agent on this machine leaves nothing to be read


class Session:
    """The nodes of one run. ``host`` is this machine; it is there whether or not a workload runs on it."""

    def __init__(
        self, run: str, notify: Callable[[str], None] = lambda _: None, permissions: Permissions = NO_PERMISSIONS
    ) -> None:
        self.run, self.permissions = run, permissions
        self.facts: dict[str, dict[str, Any]] = {}
        """What each node is that was opened; which versions its programs are, only after ``ask_versions``."""
        self.scratch_root = "/var/tmp"
        self.losses: list[Loss] = []
        self.devices: dict[tuple[str, str], DeviceIdentity] = {}
        """Which devices the run uses: machine's id, name in the study → what it was when the run was planned."""
        self.claims = Claims(run)
        self._services = Services(run, notify=notify, on_loss=self._on_loss)
        self._launchers: dict[str, Launcher[Any]] = {}
        self._open: dict[str, Node] = {}
        self._prepared: dict[tuple[str, str], Prepared] = {}
        self._scratch: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._lost = asyncio.Event()
        self._unreachable: dict[tuple[str, str], str] = {}  # kind and address → why; asked once in each teardown

    @property
    def host(self) -> Node:
        return self._services.host

    def machines_of(self, nodes: Iterable[Node]) -> list[Host]:
        """This machine, and then each other one that these nodes are on."""
        known = {self.host.identity.machine.id: str(self.facts[HOST]["hostname"])}
        for node in nodes:
            machine = node.identity.machine
            if machine != self.host.identity.machine:
                name = self.facts.get(node.name, {}).get("hostname", node.identity.address)
                known.setdefault(machine.id, str(name))
        return [Host(name, machine) for machine, name in known.items()]

    async def start(self) -> None:
        self._services.host = await self.open(HOST, HOST, LocalKind(), NO_DEMANDS, _NOTHING)

    @property
    def network(self) -> RunNetwork:
        return self._services.network

    @property
    def nodes(self) -> dict[str, Node]:
        """Those that are open, by name; of several of one name, the one that was opened last."""
        return {node.name: node for node in self._open.values()}

    async def prepare(self, group: str, spec: NodeKind, needs: Needs) -> Prepared:
        """Find out, once, whether and with what a group's nodes can be had. Raises ``UserError`` with its ``key``."""
        own = own_keys(spec)
        key = group, own.model_dump_json()
        if key not in self._prepared:
            self._prepared[key] = await self._launcher(own.kind).prepare(own, needs)
        return self._prepared[key]

    async def stand_in(self, name: str, spec: NodeKind) -> Node | None:
        """A node that can be asked, while planning, what the node of this name has; ``None`` if there is none yet."""
        own = own_keys(spec)
        return await self._launcher(own.kind).stand_in(name, own)

    async def open(self, name: str, group: str, spec: NodeKind, demands: Demands, folder: Path) -> Node:
        """A node, ready for commands; of a kind that is there for the whole run, the same one each time."""
        own = own_keys(spec)
        prepared = await self.prepare(group, spec, Needs())
        node = await self._launcher(own.kind).open(name, own, prepared, demands, folder)
        if node.instance not in self._open:
            self._open[node.instance] = node
            self.facts[name] = await self._facts_of(node, own)
        return node

    async def boot(self, node: Node, spec: NodeKind) -> None:
        """Boot the machine of a node that is there for the whole run; nothing may be set up on it.

        Raises ``NodeError`` and ``TrialError``, as its launcher does.
        """
        own = own_keys(spec)
        await self._launcher(own.kind).boot(node, own)
        node.known.clear()
        self.facts[node.name] = await self._facts_of(node, own)
        async with self._locks.setdefault(node.instance, asyncio.Lock()):
            path = self._scratch.get(node.instance)
            if path is not None:
                (folder,) = await node.carry_out(steps.look(path), go_on=True)
                if folder.missing:  # it was in memory
                    del self._scratch[node.instance]
        await self.claim_devices()

    async def ask_versions(self) -> None:
        """Add to the facts which versions the programs of nodes are, for the records of a run.

        A plan need not wait for it: these are forty programs, and half a second of CPU time.
        """
        self.facts[HOST] = await self.host.facts(version_commands(PROGRAMS))
        for name, node in self.nodes.items():
            kind = node_kinds()[node.identity.kind]
            if kind.here:
                self.facts[name] = self.facts[HOST]
            elif not kind.volatile:
                self.facts[name] = await node.facts(version_commands(PROGRAMS))

    async def end(self, node: Node) -> None:
        """End a node that is not there for the whole run. Idempotent."""
        if not node_kinds()[node.identity.kind].session:
            self._open.pop(node.instance, None)
            await self._launcher(node.identity.kind).end(node)

    def planned_on(self, node: Node) -> dict[str, DeviceIdentity]:
        """The devices of a node's machine that were looked at when the run was planned, by their names in the study."""
        machine = node.identity.machine.id
        known = {} if node.identity.volatile else self.devices
        return {path: device for (on, path), device in known.items() if on == machine}

    async def claim_devices(self) -> None:
        """Keep all devices that the run uses from other runs. Raises ``SafetyError`` if one is in use by another."""
        nodes = {node.identity.machine.id: node for node in self._open.values() if not node.identity.volatile}
        for (machine, _), device in self.devices.items():
            if machine in nodes:
                await self.claims.claim(nodes[machine], device)

    async def scratch_on(self, node: Node) -> str:
        """This run's own folder on a node, for files of layers and workloads; made and journalled at first use."""
        async with self._locks.setdefault(node.instance, asyncio.Lock()):
            if node.instance not in self._scratch:
                self._scratch[node.instance] = await self._make_scratch(node)
        return self._scratch[node.instance]

    async def _make_scratch(self, node: Node) -> str:
        root = node.scratch or self.scratch_root
        if node.identity.volatile:  # whose root file system is new, and has no folder of this machine's
            await node.carry_out(steps.make_directory(root, parents=True))
        # The kernel names mounts and loop devices by real paths, and so must the journal.
        real = (await node.output("readlink", "--canonicalize-existing", root)).removesuffix("\n")
        path = f"{real.rstrip('/')}/{private_name(self.run)}"
        assert self._services.journal is not None, "nothing is set up before the run has a journal"
        self._services.journal.register(node.identity, remove_scratch.name, {"path": path})
        if node.identity.machine == self.host.identity.machine:
            remember_scratch(self.run, real)
        await make_private(node, path)
        return path

    def announce(self, undo: str, /, **arguments: Any) -> None:
        """Journal, durably, how to undo what is set up next on this machine."""
        self._services.announce(undo, **arguments)

    def begin(self, journal: Journal, scratch_root: str) -> None:
        """From now on things are set up, and are announced in the journal."""
        self._services.journal, self.scratch_root = journal, scratch_root
        for launcher in self._launchers.values():
            if isinstance(launcher, AgentLauncher):
                launcher.announce()

    async def node_of(self, identity: NodeIdentity) -> Node | None:
        """The node of a journal's entry; ``None`` where it is gone, with all that was on it.

        Raises ``NodeError`` where it can't be reached now, or another machine answers in its place.
        """
        node = self._open.get(identity.name)
        if node is None or node.lost is not None or not _is(node.identity, identity):
            if identity.kind not in node_kinds():
                raise NodeError(f"node {identity.name}: nothing that is installed here knows its kind, {identity.kind}")
            place = identity.kind, identity.address
            try:
                if place in self._unreachable:
                    raise NodeError(self._unreachable[place])
                node = await self._launcher(identity.kind).reach(identity)
            except StorlabError as error:
                self._unreachable[place] = str(error)
                raise NodeError(f"node {identity.name} can't be reached: {error}") from None
        if node is not None and not node.identity.machine.is_same(identity.machine):
            there = f"{identity.address} is" if identity.address else "this is"
            raise NodeError(
                f"node {identity.name} was on another machine than {there} now (its machine id was "
                f"{identity.machine.id or 'unknown'}): run `storlab clean` where it was"
            )
        return node

    async def revive(self) -> dict[str, str]:
        """Launch again every node that is lost and that is there for the whole run.

        Returns why nodes can't be had, by name.
        """
        self._unreachable.clear()
        lost: dict[str, str] = {}
        for launcher in self._launchers.values():
            lost |= await launcher.revive()
        return lost

    def try_again(self) -> None:
        """Look again for nodes that could not be reached."""
        self._unreachable.clear()

    async def until_one_is_lost(self) -> None:
        """Wait until something is lost, and then a moment for what it takes with it."""
        await self._lost.wait()
        await asyncio.sleep(_AFTERMATH)

    def forget_losses(self) -> None:
        self.losses.clear()
        self._lost.clear()

    async def close(self) -> None:
        """End all nodes; those that are there for the whole run come last."""
        async with AsyncExitStack() as together:
            for name in sorted(self._launchers, key=lambda name: not node_kinds()[name].session):
                together.push_async_callback(self._launchers[name].close)

    async def _facts_of(self, node: Node, kind: NodeKind) -> dict[str, Any]:
        if kind.volatile:
            return {"uid": 0}
        if kind.here and HOST in self.facts:
            return self.facts[HOST]
        return await node.facts({})

    def _launcher(self, kind: str) -> Launcher[Any]:
        if kind not in self._launchers:
            self._launchers[kind] = node_kinds()[kind].launcher(self._services)
        return self._launchers[kind]

    def _on_loss(self, loss: Loss) -> None:
        self.losses.append(loss)
        self._lost.set()


def _is(one: NodeIdentity, other: NodeIdentity) -> bool:
    """Whether it is the same node, in whatever boot of its machine; one that is volatile has only one."""
    same_place = (one.name, one.kind, one.address) == (other.name, other.kind, other.address)
    return same_place and (not one.volatile or one == other)


@asynccontextmanager
async def open_session(
    run: str, notify: Callable[[str], None] = lambda _: None, permissions: Permissions = NO_PERMISSIONS
) -> AsyncIterator[Session]:
    """A session with this machine in it; leaving the context ends all nodes and all that they started.

    ``notify`` gets a sentence for the user where something takes a while.
    """
    asyncio.get_running_loop().set_exception_handler(_of_nobody)
    session = Session(run, notify, permissions)
    try:
        await session.start()
        yield session
    finally:
        await session.close()


def _of_nobody(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What went wrong where nobody waits for it any more.

    A connection that breaks while it is closed is no news: who used it has heard of its end. qemu.qmp leaves such ones
    behind where QEMU is killed, and asyncio would print them with a traceback.
    """
    if not isinstance(context.get("exception"), ConnectionError):
        loop.default_exception_handler(context)
