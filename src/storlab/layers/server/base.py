"""A long-running program as a layer: started, watched, and stopped in order.

A subclass says which program, with which command and configuration, and how one knows that it answers. This module
gives it a user and folders of its own, a named cgroup, a log with times in the run's records, and an undo
(``running.py``) that ends what is left of it, whoever comes to do so.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field

from storlab.base.errors import CommandFailed, DiskFull, Killed, TimedOut, TrialError, Unsupported
from storlab.base.programs import unused_user
from storlab.layers.base import Below, Gives, Layer, LayerContext
from storlab.layers.resources import Dir, Disk, File
from storlab.layers.server.running import ServerLog, server_name, stop
from storlab.nodes.accounts import (
    SOCKETS,
    Account,
    find_user,
    hand_over,
    is_root,
    make_private,
    out_of_reach,
    private_name,
    remove_private,
)
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs, Numbers, numactl, numactl_programs
from storlab.nodes.node import Confinement, Exit, Node
from storlab.nodes.privileges import NONE, TOOLS, confinement
from storlab.nodes.process import telling
from storlab.nodes.undo import Undo

_LONGEST_SOCKET = 107  # bytes of a path, see unix(7)
_TRIES = 20  # ports that others have taken
TAKEN, _FULL = os.strerror(errno.EADDRINUSE), os.strerror(errno.ENOSPC)
_LOOK = 0.02  # s
_USERS = "passwd"
OWN_NAME = "server"
"""What a user of a server's own is called where that sees it."""


@dataclass(frozen=True)
class ServerContext(Generic[Below]):
    """Where one server works.

    ``folder`` is its own in the scratch folder, for its configuration and socket; ``data`` its own in the directory
    underneath, where there is one; ``sockets`` one for its socket, where the path in ``folder`` would be too long.
    ``account`` owns them, and it runs as that; ``None``: as Storlab's own user. ``host`` and ``port``: where
    it is to listen for other nodes; ``None``: its node is not in the run's network.
    """

    context: LayerContext
    below: Below
    folder: str
    data: str | None = None
    sockets: str | None = None
    account: Account | None = None
    host: str | None = None
    port: int | None = None
    socket_name: str = "socket"  # ``{port}`` stands for the port
    confinement: Confinement | None = None  # its own; ``None``: it is not confined

    @property
    def node(self) -> Node:
        return self.context.node

    @property
    def confined(self) -> Node:
        return self.node if self.confinement is None else self.node.confined(self.confinement)

    @property
    def name(self) -> str:
        """What its cgroup's name ends with; no other server's does."""
        return server_name(self.context.run, self.folder)

    @property
    def socket(self) -> str:
        return f"{self.sockets or self.folder}/{self.socket_name.replace('{port}', str(self.port))}"

    @property
    def user(self) -> str | None:
        return None if self.account is None else self.account.name

    @property
    def group(self) -> str | None:
        return None if self.account is None else self.account.group_name

    @property
    def folders(self) -> list[str]:
        return [self.folder, *filter(None, (self.data, self.sockets))]

    async def run(self, *argv: str) -> Exit:
        """Run a command to its end as the server's user. Raises where it fails."""
        return await self.confined.run([*self.as_user(), *argv], env={"HOME": self.folder}, cwd=self.folder)

    def as_user(self) -> list[str]:
        return [] if self.account is None else self.account.words()


class ServerLayer(Layer[Below, Gives]):
    """A program that serves what lies below it to others, for as long as it is set up.

    It runs in the foreground: the agent ends whatever a finished command leaves behind.
    """

    undoes: ClassVar[tuple[Undo, ...]] = (stop, remove_private)
    program: ClassVar[str]
    """Its executable."""
    first_port: ClassVar[int | None] = None
    """The port that it has by custom, which is tried first; ``None`` for a program that other nodes don't reach."""
    socket_name: ClassVar[str] = "socket"
    """Of its socket, where it insists on one; ``{port}`` stands for the port, which is then the customary one."""
    keeps_data: ClassVar[bool] = True
    """Whether it has a folder of its own in the underlying directory; else it serves the directory itself."""
    ends_with_its_client: ClassVar[bool] = False
    """Whether it ends by itself, with status 0, once its client is gone."""
    users: ClassVar[tuple[str, ...]] = ()
    """For programs that refuse root: where Storlab is root, it runs as the first of these system users that exists."""
    own_user: ClassVar[bool] = False
    """Whether, where Storlab is root, it runs as a user that nobody else is, another one in each run. As any user, it
    may write to its folders and nothing else: whoever may talk to it can have it do what it can do.
    """
    stop_signal: ClassVar[str] = "SIGTERM"
    """What asks it to end in order; its first process gets it."""
    start_patience: ClassVar[float] = 60.0
    """Seconds until it must answer."""
    stop_patience: ClassVar[float] = 60.0
    """Seconds after which it is killed where it has not ended."""

    pin: Numbers | None = Field(None, description='CPUs of its machine that the server may use: "0-1,4".')
    numa: Numbers | None = Field(None, description="NUMA nodes of its machine for the server: CPUs and memory.")

    def executable(self) -> str:
        """The program, for layers that have a choice of several."""
        return self.program

    @abstractmethod
    def command(self, server: ServerContext[Below]) -> Sequence[str]:
        """The program with its arguments, to run in the foreground and to print its log."""

    @abstractmethod
    async def answers(self, server: ServerContext[Below]) -> bool:
        """Whether it does what clients ask of it by now."""

    @abstractmethod
    async def resource(self, server: ServerContext[Below]) -> Gives:
        """What clients get, now that it answers."""

    def configuration(self, server: ServerContext[Below]) -> Mapping[str, str]:
        """Files in its folder that it reads at its start: name → contents. They are kept in the run's records."""
        return {}

    def listens_on_socket(self, server: ServerContext[Below]) -> bool:
        """Whether clients reach it by its socket, and so have to get into its folder."""
        return False

    def launcher(self, server: ServerContext[Below]) -> list[str]:
        """The words before its command: by default those that make it run as its user."""
        return server.as_user()

    async def reach(self, server: ServerContext[Below]) -> Confinement | None:
        """What alone it may write to; ``None`` for one that is not confined.

        By default that is one with a user of its own, who has a name there: some programs insist on one.
        """
        if not self.own_user:
            return None
        users = () if server.account is None else ((f"{server.folder}/{_USERS}", "/etc/passwd"),)
        privileges = TOOLS.get(self.layer, TOOLS["server"])
        network = server.host is not None
        own = confinement(server.node, privileges, writable=tuple(server.folders), network=network)
        return replace(own, shown=users)

    async def make_folders(self, server: ServerContext[Below]) -> None:
        made = (steps.make_directory(folder, self.mode(server, folder)) for folder in server.folders)
        await server.node.carry_out(*made)

    def mode(self, server: ServerContext[Below], folder: str) -> int:
        """Of one of its folders. Where another user has its socket, clients that are root's pass by their group.

        They are confined, and so have not what else lets root in everywhere.
        """
        clients = server.user is not None and folder != server.data and self.listens_on_socket(server)
        return 0o710 if clients else 0o700

    async def prepare(self, server: ServerContext[Below]) -> None:
        """What is to be done before it starts, such as making its database."""

    def complaint(self, lines: Sequence[str]) -> str:
        """Of the last lines of its log, that which says why it ended."""
        return telling(lines)

    def reason(self, how: str, lines: Sequence[str]) -> str:
        """Why it is gone, from how it ended and the last lines of its log."""
        return f"{how}: {self.complaint(lines)}"

    def needs(self) -> Needs:
        return Needs(programs=(self.executable(), *numactl_programs(self.pin, self.numa)))

    async def set_up(self, below: Below, context: LayerContext) -> Gives:
        server = await self._context(below, context)
        await self.register_stop(server, server.folders)
        await self.make_folders(server)
        if self.listens_on_socket(server) and len(server.socket.encode()) > _LONGEST_SOCKET:
            private = f"{SOCKETS}/{private_name(context.run)}"
            await context.register_undo(remove_private.name, path=private)
            await make_private(server.node, private)
            server = replace(server, sockets=f"{private}/s")  # within: the folder itself remains Storlab's own user's
            await server.node.carry_out(steps.make_directory(f"{private}/s", self.mode(server, f"{private}/s")))
        if server.user is not None:
            await self._hand_over(server, server.folders)
        if self.own_user and (own := server.account) is not None:
            await self.write(server, _USERS, f"{OWN_NAME}:x:{own.user}:{own.group}::{server.folder}:/bin/sh\n")
        server = replace(server, confinement=await self.reach(server))
        await self.prepare(server)
        return await self.resource(await self._start(server))

    async def register_stop(self, server: ServerContext[Below], folders: Sequence[str]) -> None:
        end = {"signal": self.stop_signal, "patience": self.stop_patience, "folders": list(folders)}
        await server.context.register_undo("server.stop", name=server.name, program=self.executable(), **end)

    async def kill(self, context: LayerContext) -> None:
        """End what was set up in this context at once, and without a word: what it does is given up."""
        process = context.node.named.pop(ServerContext(context, None, context.path(self.layer)).name, None)
        if process is not None and process.ended is None:
            await process.stop(grace=0.0)
            await process.rest()

    async def facts(self, resource: Gives, context: LayerContext) -> dict[str, Any]:
        """Its version. What its settings came to is for the subclass to read back."""
        return {"version": await context.node.first_line(self.program, "--version")}

    async def _context(self, below: Below, context: LayerContext) -> ServerContext[Below]:
        data = f"{below.path}/{self.layer}" if self.keeps_data and isinstance(below, Dir) else None
        host = None if self.first_port is None else context.node.address
        socket = self.socket_name if host is not None else self.socket_name.replace("{port}", str(self.first_port))
        server = ServerContext(context, below, context.path(self.layer), data, host=host, socket_name=socket)
        if not (self.users or self.own_user) or not await is_root(context.node):
            return server
        if self.own_user:
            return replace(server, account=Account.of_run(context.run, self.layer))
        for name in self.users:
            if (user := await find_user(context.node, name)) is not None:
                return replace(server, account=user)
        users = " nor ".join(self.users)
        raise Unsupported(f"{self.program} refuses to run as root, and node {server.node.name} has no user {users}")

    async def _hand_over(self, server: ServerContext[Below], folders: Sequence[str]) -> None:
        """Give the folders to the server's user, and let everybody pass through those of Storlab's that they lie in."""
        assert server.account is not None
        passed = [folder for folder in folders if self.mode(server, folder) == 0o710]
        await hand_over(server.node, server.account, [folder for folder in folders if folder not in passed])
        await hand_over(server.node, replace(server.account, group=0), passed)
        if (folder := await out_of_reach(server.node, server.as_user(), folders)) is not None:
            raise Unsupported(
                f"{self.program} runs as the user {server.user}, who can't reach {folder}: set scratch to a folder "
                "that everybody may pass through, such as /var/tmp"
            )

    async def write(self, server: ServerContext[Below], name: str, text: str) -> None:
        path = f"{server.folder}/{name}"
        account = server.account
        given = [] if account is None else [steps.own(path, account.user, account.group)]
        await server.node.carry_out(steps.create(path, text.encode()), *given)

    async def _start(self, server: ServerContext[Below]) -> ServerContext[Below]:
        async def at(port: int) -> ServerContext[Below]:
            here = replace(server, port=port)
            await self.start_at(here)
            return here

        if server.host is not None and self.first_port is not None:
            return await on_free_port(server.node, self.first_port, at)
        await self.start_at(server)
        return server

    async def start_at(self, server: ServerContext[Below]) -> None:
        """Start it, and wait until it answers. Raises ``TrialError`` if it ends instead, or takes too long."""
        context, node = server.context, server.node
        for name, text in self.configuration(server).items():
            await self.write(server, name, text)
            if (kept := context.record(name)) is not None:
                kept.write_text(text, "utf-8")
        command = list(self.command(server))
        log = ServerLog(context.record(f"{self.layer}.log"))
        process = await server.confined.start(
            [*numactl(self.pin, self.numa), *self.launcher(server), *command],
            env={"HOME": server.folder},
            cwd=server.folder,
            name=server.name,
            on_output=log.take,
        )
        process.when_ended(log.close)

        def sentence(how: str) -> str:
            return f"node {node.name}: {self.reason(how, log.lines)}"

        def why(ended: Exit) -> str:
            argv = (f"{self.executable()} of {context.owner}",) if self.serves_one else tuple(command)
            return sentence(replace(ended, argv=argv).describe())

        def when_ended(ended: Exit | None) -> None:
            if ended is None or node.named.get(server.name) is not process:
                return  # its node is lost, which is known elsewhere, or it was given up
            if self.ends_with_its_client and ended.ok:
                return  # whatever became of the client is known elsewhere
            if ended.stopped_by is None:
                context.notify_lost(why(ended), log.tail)
            elif ended.stopped_by == "KILL":
                context.warn(f"node {node.name}: {self.executable()} had to be killed")

        try:
            async with asyncio.timeout(self.start_patience):
                answers = False
                while process.ended is None and not answers:
                    await asyncio.sleep(_LOOK)
                    answers = await self.answers(server)
        except TimeoutError:
            await process.end()
            how = f"{self.executable()} did not answer within {self.start_patience:g} s"
            raise TimedOut(sentence(how), log.tail) from None
        if process.ended is not None:
            killed = process.ended.signal == "SIGKILL"
            error = Killed if killed else DiskFull if _FULL in log.tail else CommandFailed
            raise error(why(process.ended), f"$ {shlex.join(command)}\n{log.tail}")
        assert process.pid is not None
        context.notify_running(self.executable(), process.pid, process.cgroup, lambda: log.tail)
        process.when_ended(when_ended)


T = TypeVar("T")


async def on_free_port(node: Node, first: int, serve: Callable[[int], Awaitable[T]], *taken: str) -> T:
    """What ``serve`` gives for the first port that is free; an error with one of ``taken`` in its detail: it is not."""
    for _ in range(_TRIES - 1):
        try:
            return await serve(node.ports.next_port(first))
        except TrialError as error:
            if not any(word in error.detail for word in (TAKEN, *taken)):
                raise
    return await serve(node.ports.next_port(first))


def network_address(node: Node) -> str:
    """Where other nodes reach it. Raises ``Unsupported``."""
    if node.address is None:
        raise Unsupported(f"node {node.name} is in no network of the run: make it a netns or vm")
    return node.address


# What confines a server of disks: it parses what its clients send, and has what it serves and its folder.


def to_what_it_serves(server: ServerContext[File | Disk], program: str) -> Confinement | None:
    """As a user that nobody is, to whom the file or disk is handed; or as root, among its own files alone.

    ``None`` in a guest, which is the wall.
    """
    below = server.below
    if server.node.identity.volatile:
        return None
    privileges = TOOLS.get(program, NONE)
    files, disks = ((below.path,), ()) if isinstance(below, File) else ((), (below.path,))
    return confinement(
        server.node,
        privileges,
        writable=(*server.folders, *files),
        devices=disks,
        visible=() if isinstance(below, Disk) or below.backing is None else (below.backing,),
        user=unused_user(),
        network=server.host is not None,
        bare=privileges.as_root,
    )
