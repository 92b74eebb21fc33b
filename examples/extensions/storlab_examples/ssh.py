"""Nodes of kind ``ssh``: another machine, with an agent that ssh(1) starts there.

The agent is copied to the machine's cache folder, once for each version. It ends, with all that it started, when the
connection does; what outlives it is undone there, by ``storlab clean`` of this machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import platform
import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from storlab.api import (
    AgentLauncher,
    Launcher,
    Needs,
    Node,
    NodeError,
    NodeKind,
    Prepared,
    Services,
    StorlabError,
    UserError,
    agent_path,
    end_marked,
)

_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
_SSH = ("ssh", "-T", *(f"-o{option}" for option in _OPTIONS))
_FIND = 'uname -m; cd "${XDG_CACHE_HOME:-$HOME/.cache}" && ls -d "$PWD/storlab/%s" 2>/dev/null; true'
_COPY = (
    'mkdir -p "${XDG_CACHE_HOME:-$HOME/.cache}/storlab" && cd "${XDG_CACHE_HOME:-$HOME/.cache}/storlab" && '
    "cat >.$$ && chmod 755 .$$ && mv .$$ %s"
)


class SshKind(NodeKind):
    """Another machine, reached by SSH without a password."""

    kind: Literal["ssh"] = "ssh"
    destination: str = Field(
        pattern=r"^[^-]", description="As ssh(1) takes it: user@host, or a name in its configuration."
    )
    config: str | None = Field(None, pattern="^/", description="A configuration file for ssh, by default the user's.")

    session: ClassVar = True
    transports: ClassVar = frozenset({"network"})
    undoes: ClassVar = (end_marked,)

    def needs(self) -> Needs:
        return Needs(programs=("ssh",))

    def describe(self) -> str:
        return self.destination

    @classmethod
    def launcher(cls, services: Services) -> Launcher[SshKind]:
        return SshLauncher(services)


class SshLauncher(AgentLauncher[SshKind]):
    """Starts agents on other machines. ``address``: the words for ssh that say where."""

    hello: ClassVar = 30.0

    async def prepare(self, spec: SshKind, needs: Needs) -> Prepared:
        try:
            await self.stand_in(spec)
        except StorlabError as error:
            raise UserError(f"{spec.destination} can't be reached: {error}", ("destination",)) from None
        return Prepared()

    async def address_of(self, instance: str, spec: SshKind) -> str:
        return shlex.join([*(("-F", spec.config) if spec.config else ()), spec.destination])

    async def command(self, address: str, environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
        agent = await self._agent(address)
        words = ["env", *(f"{key}={value}" for key, value in environment.items()), agent, *arguments]
        return [*_SSH, *shlex.split(address), shlex.join(words)]

    async def took_in(self, node: Node) -> None:
        connection = (await node.output("sh", "-c", "echo $SSH_CONNECTION")).split()
        node.address = connection[2] if len(connection) == 4 else None  # where its machine can be reached

    async def _agent(self, address: str) -> str:
        """The agent's path on the machine, where it is copied to if it is not there yet."""
        content = await asyncio.to_thread(agent_path().read_bytes)
        name = f"agent-{hashlib.sha256(content).hexdigest()[:16]}"
        machine, *found = (await self._run(address, _FIND % name)).splitlines()
        if machine != platform.machine():
            raise NodeError(f"{address} is {machine}, and this machine's agent runs on {platform.machine()} only")
        if not found:
            await self._run(address, _COPY % name, content)
            _, *found = (await self._run(address, _FIND % name)).splitlines()
        return found[0]

    async def _run(self, address: str, script: str, stdin: bytes | None = None) -> str:
        ended = await self.services.host.run([*_SSH, *shlex.split(address), script], stdin=stdin)
        return ended.stdout.decode(errors="replace")
