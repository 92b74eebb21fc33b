"""Nodes of kind ``ssh``: other machines, each with an agent over one SSH connection of the run's own.

The agent is brought to each machine once for each version. It ends, with all that it started, when the connection does,
or when it hears nothing for the time of its lease; what outlives it is undone there, by ``storlab clean`` here.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from storlab.base.errors import NodeError, SshError, StorlabError, UnreachableError, UserError
from storlab.base.limits import GROUP_NODES
from storlab.base.programs import ADMINISTRATION, agent_path
from storlab.base.reach import HostName, WritesFile
from storlab.nodes import identity
from storlab.nodes.agents import AgentLauncher
from storlab.nodes.booting import RELEASE_FILE, Bootable, Booted, boot, boot_back
from storlab.nodes.console import Console, kept_console
from storlab.nodes.demands import Demands
from storlab.nodes.kind import IPAddress, Launcher, MachineNetwork, NodeKind, Prepared, Services
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.processes import end_marked
from storlab.nodes.shaping.apply import SHAPING_UNDOES
from storlab.ssh.machine import DESTINATION, Machine, connected
from storlab.ssh.reservation import Reservation, refuse_reserved, reservation_of

LEASE = 20.0
"""Seconds that an agent lives without a word from its controller. By then ssh has given up the connection, too."""
_START = f'PATH="$PATH:{":".join(ADMINISTRATION)}"; export PATH; exec env "$@"'
"""Logins that are not root's have no folders of administration in their path, and sudo may leave it so."""
_NOTICE = 3.0  # s, for a host to answer whose agent has ended

_Host = Annotated[HostName, Field(pattern=DESTINATION, max_length=255)]
_Folder = Annotated[WritesFile, Field(pattern=r"^/([^/.][^/]*/?|\.[^/.][^/]*/?)*$", max_length=1024)]


class SshKind(Bootable, MachineNetwork, NodeKind):
    """Other machines, reached over SSH without a password: one node per host."""

    kind: Literal["ssh"] = "ssh"
    hosts: tuple[_Host, ...] = Field(
        min_length=1,
        max_length=GROUP_NODES,
        description="The machines, as ssh(1) takes them: names in `~/.ssh/config`, `host` or `user@host`. `count` "
        "follows from it.",
    )
    address: IPAddress | tuple[IPAddress, ...] | None = Field(
        None,
        description="Where other nodes reach them over the network: one address per host, in the same order. By "
        "default the address at which sshd answers.",
    )
    scratch: _Folder | tuple[_Folder, ...] | None = Field(
        None,
        description="Where Storlab puts files of its own there, in place of the study's `scratch`: one folder, or one "
        "per host, in the same order.",
    )
    become: Literal["sudo", "doas"] | None = Field(
        None, description="How the agent becomes root there, if the login is not root's. It must not ask."
    )

    session: ClassVar = True
    transports: ClassVar = frozenset({"network"})
    undoes: ClassVar = (end_marked, boot_back, *SHAPING_UNDOES)

    @field_validator("hosts")
    @classmethod
    def _once_each(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if twice := next((host for host in hosts if hosts.count(host) > 1), None):
            raise ValueError(f"{twice} is named twice, and is one node: name each machine once")
        return hosts

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if self.address is not None and len(self._addresses) != len(self.hosts):
            many = f"{len(self._addresses)} for {len(self.hosts)} hosts"
            raise ValueError(f"address must name one address per host, and these are {many}")
        if isinstance(self.scratch, tuple) and len(self.scratch) != len(self.hosts):
            many = f"{len(self.scratch)} for {len(self.hosts)} hosts"
            raise ValueError(f"scratch must name one folder, or one per host, and these are {many}")
        return self

    @property
    def _addresses(self) -> tuple[str, ...]:
        return (self.address,) if isinstance(self.address, str) else self.address or ()

    def number(self) -> int | None:
        return len(self.hosts)

    def one(self, number: int) -> SshKind:
        address = self._addresses[number] if self._addresses else None
        scratch = self.scratch[number] if isinstance(self.scratch, tuple) else self.scratch
        return self.model_copy(update={"hosts": (self.hosts[number],), "address": address, "scratch": scratch})

    def needs(self) -> Needs:
        return Needs(programs=("ssh",))

    def describe(self) -> str:
        return ", ".join(self.hosts)

    @classmethod
    def launcher(cls, services: Services) -> Launcher[SshKind]:
        return SshLauncher(services)


class SshLauncher(AgentLauncher[SshKind]):
    """Starts agents on other machines. ``address``: the destination, and how the agent becomes root there, if it does.

    There is one connection per destination, which all that is done there shares.
    """

    hello: ClassVar = 30.0
    lease: ClassVar = LEASE
    patience: ClassVar = 60.0

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._machines: dict[str, tuple[Machine, AsyncExitStack]] = {}
        self._addresses: dict[str, str] = {}
        self._scratch: dict[str, str] = {}
        self._reservations: dict[str, Reservation | None] = {}  # when the run began: it may go on
        self._connecting: dict[str, asyncio.Lock] = {}
        self._kernels: dict[str, set[str]] = {}  # that are booted for one boot, by host
        self._usual: dict[str, str] = {}  # the release of the kernel that a node ran before, by its instance
        self._consoles: dict[str, Console] = {}  # by host
        self._showing = AsyncExitStack()

    async def prepare(self, spec: SshKind, needs: Needs) -> Prepared:
        for host in spec.hosts if spec.kernel else ():
            self._kernels.setdefault(host, set()).add(spec.kernel)
        found = await asyncio.gather(*(self._ready(host, spec.become) for host in spec.hosts), return_exceptions=True)
        wrong = [(number, each) for number, each in enumerate(found) if isinstance(each, BaseException)]
        for _, error in wrong:
            if not isinstance(error, StorlabError):
                raise error
        if wrong:
            raise UserError("; ".join(dict.fromkeys(str(error) for _, error in wrong)), ("hosts", wrong[0][0]))
        return Prepared()

    async def _ready(self, host: str, become: str | None) -> str:
        machine = await self._machine(host)
        if host not in self._reservations:
            self._reservations[host] = await reservation_of(machine)
        refuse_reserved(host, self._reservations[host])
        if become is not None:
            await _refuse_asking(machine, become)
        return await agent_on(machine)

    async def address_of(self, instance: str, spec: SshKind) -> str:
        address = " ".join([spec.hosts[0], *filter(None, [spec.become])])
        if spec.address is not None:
            assert isinstance(spec.address, str), "of one host"
            self._addresses[address] = spec.address
        if spec.scratch is not None:
            assert isinstance(spec.scratch, str), "of one host"
            self._scratch[address] = spec.scratch
        return address

    async def command(self, address: str, environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
        host, _, become = address.partition(" ")
        if become not in ("", "sudo", "doas"):
            raise NodeError(f"{address!r} is no address of a node over SSH")
        agent = await self._ready(host, become or None)
        machine = await self._machine(host)
        marks = [f"{key}={value}" for key, value in environment.items()]  # after sudo, which keeps no environment
        return machine.argv(*_becoming(become), "sh", "-c", _START, "sh", *marks, agent, *arguments)

    async def open(self, name: str, spec: SshKind, prepared: Prepared, demands: Demands, folder: Path) -> Node:
        # A machine is one node, whichever kernel it boots.
        node = await super().open(name, spec.model_copy(update={"kernel": ""}), prepared, demands, folder)
        (host,) = spec.hosts
        if spec.boot is not None and node.instance not in self._usual:
            self._usual[node.instance] = (await node.read_text(RELEASE_FILE)).strip()
        if spec.console is not None and host not in self._consoles and self.services.journal is not None:
            shown = kept_console(self.services.host, name, spec.console, host, folder / "console.log")
            self._consoles[host] = await self._showing.enter_async_context(shown)
            node.complaint = self._consoles[host].complaint
        return node

    def announce(self) -> None:
        # First of all, as a machine that boots can do nothing else any more: what was announced first is undone last.
        for known in self._nodes.values():
            kernels = sorted(self._kernels.get(_host_at(known.node.identity.address), ()))
            usual = self._usual.get(known.node.instance)
            if kernels and usual is not None and usual not in kernels and self.services.journal is not None:
                arguments = {"release": usual, "kernels": kernels}
                self.services.journal.register(known.node.identity, boot_back.name, arguments)
        super().announce()

    async def boot(self, node: Node, spec: SshKind) -> None:
        known = next(each for each in self._nodes.values() if each.node is node)
        (host,), program = spec.hosts, spec.boot
        assert program is not None, "it boots again"
        self.services.notify(f"Booting {node.name}{f' with Linux {spec.kernel}' if spec.kernel else ''}")
        before, began = node.identity.machine, time.monotonic()
        if node.lost is None:
            await known.context.aclose()  # its agent ends, with all that it started
        async with self._connecting.setdefault(host, asyncio.Lock()):
            if (connection := self._machines.pop(host, None)) is not None:
                await connection[1].aclose()
        try:
            booted = await boot(
                self.services.host, program, host, spec.kernel, before, partial(_look_at, host), spec.boot_time
            )
        finally:
            if (console := self._consoles.get(host)) is not None:
                console.begin()
        await self._revive(known)
        took = round(time.monotonic() - began, 3)
        node.about = {"kernel": booted.release, "boot_id": booted.machine.boot, "boot_seconds": took}

    async def took_in(self, node: Node) -> None:
        address = node.identity.address
        machine = await self._machine(address.partition(" ")[0])
        node.address = self._addresses.get(address, machine.address)
        node.scratch = self._scratch.get(address)

    async def why(self, name: str, address: str, reason: str, stderr: str) -> str:
        console = self._consoles.get(_host_at(address))
        if console is not None and (said := console.reason()) is not None:
            return said
        known = self._machines.get(address.partition(" ")[0])
        if known is None or await known[0].answers(_NOTICE):
            return await super().why(name, address, reason, stderr)
        return f"node {name}: host lost: {known[0].lost()}"

    async def close(self) -> None:
        await super().close()
        for console in self._consoles.values():
            if (trouble := console.trouble()) is not None:
                self.services.notify(trouble)
        await self._showing.aclose()
        machines, self._machines = self._machines, {}
        await asyncio.gather(*(stack.aclose() for _, stack in machines.values()))

    async def _machine(self, host: str) -> Machine:
        async with self._connecting.setdefault(host, asyncio.Lock()):
            machine, stack = self._machines.get(host, (None, None))
            if machine is not None and machine.connected:
                return machine
            if stack is not None:
                self._machines.pop(host)
                await stack.aclose()
            stack = AsyncExitStack()
            machine = await stack.enter_async_context(connected(host))
            self._machines[host] = machine, stack
            return machine


def _host_at(address: str) -> str:
    return address.partition(" ")[0]


async def _look_at(host: str) -> Booted:
    """Which boot and kernel a machine has now, over a connection of its own: it may be about to go down."""
    async with connected(host) as machine:
        release = (await machine.run("cat", RELEASE_FILE)).decode("utf-8", "replace").strip()
        return Booted(identity.Machine(machine.machine, machine.boot), release)


async def agent_on(machine: Machine) -> str:
    """The agent's path on a machine, where it is brought. Raises ``UserError`` if there is none for it."""
    try:
        path = agent_path(machine.architecture)
    except UserError as error:
        raise UserError(f"{machine.host}: {error}") from None
    content = await asyncio.to_thread(path.read_bytes)
    return await machine.upload(content, f"agent-{hashlib.sha256(content).hexdigest()}", 0o755)


def _becoming(become: str) -> list[str]:
    return [become, "-n", *(["--"] if become == "sudo" else [])] if become else []


async def _refuse_asking(machine: Machine, become: str) -> None:
    try:
        await machine.run(*_becoming(become), "true")
    except UnreachableError:
        raise
    except SshError as error:
        where = "NOPASSWD in its sudoers" if become == "sudo" else "nopass in its doas.conf"
        raise SshError(
            f"{error}: install {become} there and let this login use it without a password ({where}), or log in as root"
        ) from None
