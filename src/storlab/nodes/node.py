"""``Node``: a machine that runs commands, whatever kind of machine it is.

Everything above this package uses only what is here. Kinds of node differ in how their launcher opens the stream.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from storlab.base.errors import DiskFull, NodeError, TooMuch
from storlab.base.limits import SAMPLED
from storlab.base.reading import data_in
from storlab.base.units import size_text
from storlab.nodes.agent import protocol, steps
from storlab.nodes.agent.connection import Connection
from storlab.nodes.agent.protocol import CHUNK, Answer, Data, Event, Facts, Failed, Sampled, Stderr, Stdout
from storlab.nodes.agent.steps import Done, Step, carried_out, requests
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.nodes.process import Exit, OnOutput, Process

__all__ = ["Clock", "Confinement", "Exit", "Node", "Process", "Sample"]

MAX_READ = 64 * 1024**2  # bytes of a file that are held in memory
_PIECES_AT_ONCE = 32  # of a file that is sent
_TICKS_AHEAD = 16  # samples; more than there were intervals is no timer's inaccuracy
_CLOCK_ROUNDS = 9


@dataclass(frozen=True)
class Sample:
    """The contents of several files of a node at one instant. ``None``: that file could not be read.

    ``t`` is on the node's monotonic clock; ``late`` is how long after its due time the sample was taken. Seconds.
    """

    t: float
    realtime: float
    late: float
    contents: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Clock:
    """How a node's monotonic clock relates to the controller's: node = controller + ``offset`` ± ``error`` seconds."""

    offset: float
    error: float


@dataclass(frozen=True)
class Confinement:
    """What alone commands may do. ``writable``: absolute paths of directories and files with all below them.

    What isn't there is left out. ``shown``: pairs of what they see at another place as well, read-only, and that place;
    both must be there. ``visible``: what they see of folders that are hidden from them. No devices but ``devices`` can
    be opened at all. The caches of those ``flushed`` are emptied first. ``user``: whom a command of root's becomes;
    what is writable or ``visible``, and its devices, are handed to that user, and where a file system can't do that, it
    stays root. ``capabilities`` are all that it has of them then. ``io_uring``: it may use that. Without ``network`` it
    has one of its own, which reaches nothing. With ``mounts_only``, only mounts are its own, and system calls are not
    looked at. With ``bare``, it sees no file of the machine's but what is writable or ``visible``.
    """

    writable: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    visible: tuple[str, ...] = ()
    flushed: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    user: int | None = None
    io_uring: bool = False
    network: bool = False
    mounts_only: bool = False
    bare: bool = False

    def may_flush(self, device: str) -> bool:
        """Whether a command may itself empty the cache of one of the devices that are ``flushed``."""
        return device not in self.flushed or "CAP_SYS_ADMIN" in self.capabilities


class Ports:
    """Hands out ports of one node, so that two servers there don't try the same one."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def next_port(self, first: int) -> int:
        """The lowest port from ``first`` on that was not handed out before. Others on the machine may have it."""
        port = next(port for port in range(first, 65536) if port not in self._given)
        self._given.add(port)
        return port


_UNKNOWN = NodeIdentity("", "local", "", Machine("", ""))


@dataclass
class Node:
    """Runs commands, reads and writes files, samples counters. Owned by the launcher that made it."""

    name: str
    connection: Connection
    identity: NodeIdentity = _UNKNOWN
    pid: int | None = None  # of the agent, on its node
    environment: Mapping[str, str | None] = field(default_factory=dict)  # given to every command
    scratch: str | None = None  # the folder for Storlab's own there, where that is not the study's
    address: str | None = None  # in the network among a run's nodes, where it is in one
    ports: Ports = field(default_factory=Ports)
    named: dict[str, Process] = field(default_factory=dict)  # of the commands that were started here, those with a name
    watching: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # what looks after something here, by name
    taken: set[str] = field(default_factory=set)  # of what a kernel has only one of, that which Storlab set up here
    machine: str = ""  # the boot id of the machine that it is, or is on
    about: Mapping[str, Any] = field(default_factory=dict)  # how it was started, for the records
    here: bool = False  # whether its files are the controller's own
    known: dict[str, str] = field(default_factory=dict)  # what was asked of it once and stays so, by the question
    process: int | None = None  # on the controller's machine, of the program that is this machine: QEMU
    complaint: Callable[[], str | None] = lambda: None  # what explains failures on it, such as too little memory
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    confinement: Confinement | None = None  # of all commands that are started through this object

    @property
    def instance(self) -> str:
        """Its name, unique in the run: nodes of the same ``name`` may be there at the same time."""
        return self.identity.name or self.name

    def confined(self, confinement: Confinement, **environment: str) -> Node:
        """The same node, but for its commands, which are confined; files are still read and written freely."""
        return replace(self, confinement=confinement, environment={**self.environment, **environment})

    @property
    def lost(self) -> str | None:
        return self.connection.lost

    def lock(self, what: str) -> asyncio.Lock:
        """For what only one at a time may do here."""
        return self.locks.setdefault(what, asyncio.Lock())

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = 2.0,
        start_at: float | None = None,
        stdin: bytes | AsyncIterator[bytes] | Path | None = None,
        stdout_file: str | None = None,
        name: str | None = None,
        on_output: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        max_output: int | None = None,
        first_output: int | None = None,
        keep_survivors: bool = False,
        count: bool = False,
    ) -> Process:
        """Start a command; returns once its process exists. ``start_at``: seconds on the node's monotonic clock.

        ``stdin``: a path is a file of the node's, which its agent opens.
        ``name`` is what the name of its cgroup ends with, and by which ``named`` has it. What it prints goes to
        ``on_output``, where that is given, and is not collected; else it is killed where that is more than
        ``max_output`` bytes, by default ``OUTPUT``, and who waits for it gets ``TooMuch``. ``on_stderr`` gets what
        goes to standard error, in place of ``on_output``. Of each of the two, only the ``first_output`` bytes leave the
        node, where that is given. With ``keep_survivors``, processes that outlive the first one stay in the command's
        cgroup, unless it is stopped. With ``count``, perf events count what its processes do: ``Exit.counted``.

        Raises ``CommandFailed`` where the program can't be executed.
        """
        fields: dict[str, Any] = {
            "argv": list(argv),
            "env": {**self.environment, **(env or {})},
            "cwd": cwd,
            "stdin": "none" if stdin is None else {"file": str(stdin)} if isinstance(stdin, Path) else "stream",
            "stdout": "stream" if stdout_file is None else {"file": stdout_file},
            "stderr": "stream",
            "most_output": first_output,
            "timeout_ns": None if timeout is None else round(timeout * 1e9),
            "grace_ns": round(grace * 1e9),
            "start_at_ns": None if start_at is None else round(start_at * 1e9),
            "name": name,
            "confine": None if self.confinement is None else asdict(self.confinement),
            "survivors": "keep" if keep_survivors else "kill",
            "count": count,
        }
        listeners = {Stdout: on_output, Stderr: on_stderr or on_output}
        process = Process(self.name, self.connection, tuple(argv), fields, listeners, max_output)
        try:
            await process.started()
            if stdin is not None and not isinstance(stdin, Path):
                await process.feed(stdin)
        except BaseException:
            await process.end()  # nobody else knows of it yet
            raise
        if name is not None:
            self.named[name] = process
        return process

    async def run(self, argv: Sequence[str], *, check: bool = True, **options: Any) -> Exit:
        """Run a command to its end; options as for ``start``. With ``check``, raises where it did not succeed.

        A cancelled caller stops the command.
        """
        process = await self.start(argv, **options)
        ended = await process.wait()
        return ended.check(self.name) if check else ended

    async def output(self, *argv: str) -> str:
        """What a short command prints; raises where it fails."""
        return (await self.run(argv)).stdout.decode(errors="replace")

    async def first_line(self, *argv: str) -> str | None:
        """The first line that a program prints of itself, such as its version; asked once, ``None`` where it fails."""
        key = shlex.join(argv)
        if key not in self.known:
            tool = (await self.facts({argv[0]: argv}))["tools"][argv[0]]
            self.known[key] = "" if tool is None else tool["version"] or ""
        return self.known[key] or None

    async def pieces(self, path: str, most: int) -> AsyncGenerator[bytes, None]:
        """A file's contents as they come. Raises ``FileNotFoundError``, ``NodeError``; ``TooMuch`` beyond ``most``."""
        size = 0
        async with aclosing(self.connection.request("read", path=path, offset=0, limit=most + 1)) as answers:
            async for answer in answers:
                self._raise_on_error(answer.event, path)
                size += len(answer.payload)
                if size > most:
                    raise TooMuch(f"node {self.name}: {path} holds more than the {size_text(most)} that are read of it")
                if isinstance(answer.event, Data):
                    yield answer.payload

    async def read(self, path: str, most: int = MAX_READ) -> bytes:
        """A file's contents. Raises ``FileNotFoundError``, ``NodeError``, or ``TooMuch`` beyond ``most`` bytes."""
        async with aclosing(self.pieces(path, most)) as pieces:
            return b"".join([piece async for piece in pieces])

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode(errors="replace")

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file. Raises ``FileNotFoundError``, ``DiskFull`` or ``NodeError``."""
        offset = 0
        while True:
            chunk = data[offset : offset + CHUNK]
            answered = await self.connection.ask(
                "write", chunk, path=path, offset=offset, truncate=offset == 0, mode=mode, sync=False
            )
            self._raise_on_error(answered, path)
            offset += len(chunk)
            if offset >= len(data):
                return

    async def fill(self, path: str, source: Path) -> None:
        """Write a file of the controller's to an existing file or device, all but its holes; it is on the disk then.

        Raises ``FileNotFoundError``, ``DiskFull`` or ``NodeError``.
        """
        with source.open("rb") as file:
            pieces = [
                (at, min(at + CHUNK, end)) for begin, end in data_in(file.fileno()) for at in range(begin, end, CHUNK)
            ]
            for first in range(0, len(pieces), _PIECES_AT_ONCE):  # a guest takes its time to answer each one
                some = pieces[first : first + _PIECES_AT_ONCE]
                await asyncio.gather(*(self._write_piece(path, file.fileno(), *piece) for piece in some))
        await self.run(["sync", "--", path])

    async def _write_piece(self, path: str, source: int, begin: int, end: int) -> None:
        answered = await self.connection.ask(
            "write",
            os.pread(source, end - begin, begin),
            path=path,
            offset=begin,
            truncate=False,
            mode=0o600,
            sync=False,
        )
        self._raise_on_error(answered, path)

    async def carry_out(self, *wanted: Step, go_on: bool = False) -> list[Done]:
        """Small operations on files, one after the other, without a process for any of them.

        Raises ``FileNotFoundError``, ``DiskFull`` or ``NodeError`` where one fails, and leaves out the rest; with
        ``go_on`` all are tried, and what is returned says which failed. A cancelled caller stops them.
        """
        done = await self.attempt(*wanted, go_on=go_on)
        if not go_on and done:
            done[-1].check(self.name)
        return done

    async def attempt(self, *wanted: Step, go_on: bool = False) -> list[Done]:
        """The same, but for errors: without ``go_on``, what failed is the last of what is returned."""
        done: list[Done] = []
        for request in requests(wanted):
            done += await carried_out(self.connection, request, go_on=go_on)
            if not go_on and not done[-1].ok:
                break
        return done

    def command(self, argv: Sequence[str], *, env: Mapping[str, str | None] | None = None) -> Step:
        """A command as one of the steps that ``carry_out`` takes; it is confined as others are, and has to succeed."""
        confine = None if self.confinement is None else asdict(self.confinement)
        return steps.run(argv, {**self.environment, **(env or {})}, confine)

    async def texts(self, *paths: str) -> list[str | None]:
        """What files such as those of sysfs say, without white space around it; ``None`` where one can't be read."""
        found = await self.carry_out(*(steps.read(path) for path in paths), go_on=True)
        return [each.text if each.ok else None for each in found]

    async def sample(self, paths: Sequence[str], interval: float) -> AsyncGenerator[Sample, None]:
        """Read these files every ``interval`` seconds, on the node, until the iteration is closed."""
        identity = self.connection.next_id()
        ended = False
        size, count, began = 0, 0, time.monotonic()
        try:
            async for answer in self.connection.request(
                "sample", request_id=identity, paths=list(paths), interval_ns=round(interval * 1e9), count=None
            ):
                self._raise_on_error(answer.event, "sample")
                if not isinstance(answer.event, Sampled):
                    ended = True
                    continue
                size, count = size + len(answer.payload), count + 1
                if size > SAMPLED:
                    raise TooMuch(
                        f"node {self.name}: one sampling brought more than {size_text(SAMPLED)}: sample less often"
                    )
                if count > (time.monotonic() - began) / interval + _TICKS_AHEAD:
                    raise self.connection.give_up("its agent sends samples faster than it was asked to")
                yield self._sample(answer, answer.event, len(paths))
        finally:
            if not ended and self.lost is None:
                await self.connection.stop(identity, grace=0.0)

    async def facts(self, tools: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """What this machine is; ``tools`` maps a name to the argv that prints its version."""
        answered = await self.connection.ask("facts", tools={name: list(argv) for name, argv in tools.items()})
        self._raise_on_error(answered, "facts")
        assert isinstance(answered, Facts), "the connection lets no other event through"
        if answered.tools.keys() != tools.keys():
            raise self.connection.give_up("its agent tells of other programs than it was asked for")
        facts: dict[str, Any] = msgspec.to_builtins(answered)
        return {name: fact for name, fact in facts.items() if name != "event"}

    async def clock(self) -> Clock:
        """Compare clocks: of several exchanges the one with the shortest round trip counts (as in NTP, RFC 5905)."""
        best: Clock | None = None
        for _ in range(_CLOCK_ROUNDS):
            sent = time.monotonic()
            answered = await self.connection.ask("clock")
            received = time.monotonic()
            self._raise_on_error(answered, "clock")
            assert isinstance(answered, protocol.Clock), "the connection lets no other event through"
            theirs = answered.monotonic_ns / 1e9
            clock = Clock(offset=theirs - (sent + received) / 2, error=(received - sent) / 2)
            if best is None or clock.error < best.error:
                best = clock
        assert best is not None
        return best

    def _raise_on_error(self, event: Event, what: str) -> None:
        if not isinstance(event, Failed):
            return
        if event.errno == "ENOENT":
            raise FileNotFoundError(what)
        if event.errno == "ENOSPC":
            raise DiskFull(f"no space left on the file system of {what}")
        raise NodeError(f"{what}: {event.message}")

    def _sample(self, answer: Answer, event: Sampled, files: int) -> Sample:
        contents: list[bytes | None] = []
        at = 0
        for size in event.sizes:
            contents.append(None if size < 0 else answer.payload[at : at + size])
            at += max(size, 0)
        if (len(contents), at) != (files, len(answer.payload)):
            raise self.connection.give_up("its agent sent a sample whose sizes are not those of its contents")
        return Sample(event.monotonic_ns / 1e9, event.realtime_ns / 1e9, event.late_ns / 1e9, tuple(contents))
