"""Nodes of kind ``ssh``: other machines, each with an agent over one SSH connection of the run's own.

The agent is brought to each machine once for each version. It ends, with all that it started, when the connection does,
or when it hears nothing for the time of its lease; what outlives it is undone there, by ``storlab clean`` here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from storlab.errors import NodeError, SshError, StorlabError, UnreachableError, UserError
from storlab.limits import GROUP_NODES
from storlab.nodes.agent.binary import agent_path
from storlab.nodes.agents import AgentLauncher
from storlab.nodes.kind import Launcher, NodeKind, Prepared, Services
from storlab.nodes.machine_network import IPAddress, MachineNetwork
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.processes import end_marked
from storlab.nodes.shaping.apply import SHAPING_UNDOES
from storlab.ssh.machine import DESTINATION, Machine, connected

LEASE = 20.0
"""Seconds that an agent lives without a word from its controller. By then ssh has given up the connection, too."""
_NOTICE = 3.0  # s, for a host to answer whose agent has ended

_Host = Annotated[str, Field(pattern=DESTINATION, max_length=255)]


class SshKind(MachineNetwork, NodeKind):
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
    become: Literal["sudo", "doas"] | None = Field(
        None, description="How the agent becomes root there, if the login is not root's. It must not ask."
    )

    session: ClassVar = True
    transports: ClassVar = frozenset({"network"})
    undoes: ClassVar = (end_marked, *SHAPING_UNDOES)

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
        return self

    @property
    def _addresses(self) -> tuple[str, ...]:
        return (self.address,) if isinstance(self.address, str) else self.address or ()

    def number(self) -> int | None:
        return len(self.hosts)

    def one(self, number: int) -> SshKind:
        address = self._addresses[number] if self._addresses else None
        return self.model_copy(update={"hosts": (self.hosts[number],), "address": address})

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
        self._connecting: dict[str, asyncio.Lock] = {}

    async def prepare(self, spec: SshKind, needs: Needs) -> Prepared:
        """Connect to all hosts at once, and bring the agent there. What is wrong with any of them is said of all."""
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
        if become is not None:
            await _refuse_asking(machine, become)
        return await _agent(machine)

    async def address_of(self, instance: str, spec: SshKind) -> str:
        address = " ".join([spec.hosts[0], *filter(None, [spec.become])])
        if spec.address is not None:
            assert isinstance(spec.address, str), "of one host"
            self._addresses[address] = spec.address
        return address

    async def command(self, address: str, environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
        host, _, become = address.partition(" ")
        if become not in ("", "sudo", "doas"):
            raise NodeError(f"{address!r} is no address of a node over SSH")
        agent = await self._ready(host, become or None)
        machine = await self._machine(host)
        marks = [f"{key}={value}" for key, value in environment.items()]  # after sudo, which keeps no environment
        return machine.argv(*_becoming(become), "env", *marks, agent, *arguments)

    async def took_in(self, node: Node) -> None:
        address = node.identity.address
        machine = await self._machine(address.partition(" ")[0])
        node.address = self._addresses.get(address, machine.address)

    async def why(self, name: str, address: str, reason: str, stderr: str) -> str:
        """Whether the host is lost, or only the agent there."""
        known = self._machines.get(address.partition(" ")[0])
        if known is None or await known[0].answers(_NOTICE):
            return await super().why(name, address, reason, stderr)
        return f"node {name}: host lost: {known[0].lost()}"

    async def close(self) -> None:
        await super().close()
        machines, self._machines = self._machines, {}
        await asyncio.gather(*(stack.aclose() for _, stack in machines.values()))

    async def _machine(self, host: str) -> Machine:
        """The connection to a host; a new one where it was lost."""
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


async def _agent(machine: Machine) -> str:
    """The agent's path on a machine, where it is brought unless it is there."""
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
