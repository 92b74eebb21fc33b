"""``Node``: a machine that runs commands, whatever kind of machine it is.

Everything above this package uses only what is here. Kinds of node differ in how their launcher opens the stream.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from storlab.errors import CommandFailed, DiskFull, NodeError, TimedOut
from storlab.nodes.connection import Connection
from storlab.nodes.protocol import CHUNK, Frame

_CLOCK_ROUNDS = 9


@dataclass(frozen=True)
class Exit:
    """How a command ended. Times in seconds, ``start`` on the node's monotonic clock."""

    argv: tuple[str, ...]
    code: int | None
    signal: str | None
    timed_out: bool
    stopped_by: str | None
    late: float | None
    start: float
    elapsed: float
    cpu_user: float
    cpu_system: float
    max_rss: int
    survivors: int
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.code == 0 and not self.timed_out and self.stopped_by is None

    def describe(self) -> str:
        """One sentence: the program and how it ended."""
        name = self.argv[0]
        if self.timed_out:
            return f"{name} was stopped at its time-out after {self.elapsed:.1f} s (by {self.stopped_by or 'TERM'})"
        if self.signal is not None:
            return f"{name} was killed by {self.signal}"
        return f"{name} ended with status {self.code}"

    def check(self, node: str) -> Exit:
        """This exit, if it is a success; else ``TimedOut``, ``DiskFull`` or ``CommandFailed``."""
        if self.ok:
            return self
        output = (self.stderr or self.stdout).decode(errors="replace").strip()
        last = output.splitlines()[-1] if output else "no output"
        message = f"node {node}: {self.describe()}: {last}"
        detail = f"$ {shlex.join(self.argv)}\n{output}"
        if self.timed_out:
            raise TimedOut(message, detail)
        if "No space left on device" in output:
            raise DiskFull(message, detail)
        raise CommandFailed(message, detail)


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


@dataclass
class Node:
    """Runs commands, reads and writes files, samples counters. Owned by the launcher that made it."""

    name: str
    connection: Connection
    kind: str = "local"
    pid: int | None = None  # of the agent, on its node
    environment: Mapping[str, str | None] = field(default_factory=dict)  # given to every command

    @property
    def lost(self) -> str | None:
        """Why the node is gone, or ``None`` while it answers."""
        return self.connection.lost

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = 2.0,
        start_at: float | None = None,
        stdin: bytes | None = None,
        stdout_file: str | None = None,
    ) -> Process:
        """Start a command; returns once its process exists. ``start_at``: seconds on the node's monotonic clock.

        Raises ``CommandFailed`` where the program can't be executed.
        """
        fields: dict[str, Any] = {
            "argv": list(argv),
            "env": {**self.environment, **(env or {})},
            "cwd": cwd,
            "stdin": "none" if stdin is None else "stream",
            "stdout": "stream" if stdout_file is None else {"file": stdout_file},
            "stderr": "stream",
            "timeout_ns": None if timeout is None else round(timeout * 1e9),
            "grace_ns": round(grace * 1e9),
            "start_at_ns": None if start_at is None else round(start_at * 1e9),
        }
        identity = self.connection.next_id()
        events = self.connection.request("run", request_id=identity, **fields)
        process = Process(self, tuple(argv), identity, events)
        await process.await_start()
        if stdin is not None:
            await process.feed(stdin)
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

    async def read(self, path: str) -> bytes:
        """A file's contents. Raises ``FileNotFoundError`` or ``NodeError``."""
        chunks = []
        async with aclosing(self.connection.request("read", path=path, offset=0, limit=None)) as events:
            async for frame in events:
                self._raise_on_error(frame, path)
                if frame.header["event"] == "data":
                    chunks.append(frame.payload)
        return b"".join(chunks)

    async def read_text(self, path: str) -> str:
        """A file's contents as text."""
        return (await self.read(path)).decode(errors="replace")

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file."""
        offset = 0
        while True:
            chunk = data[offset : offset + CHUNK]
            frame = await self.connection.ask(
                "write", chunk, path=path, offset=offset, truncate=offset == 0, mode=mode, sync=False
            )
            self._raise_on_error(frame, path)
            offset += len(chunk)
            if offset >= len(data):
                return

    async def sample(self, paths: Sequence[str], interval: float) -> AsyncGenerator[Sample, None]:
        """Read these files every ``interval`` seconds, on the node, until the iteration is closed."""
        identity = self.connection.next_id()
        ended = False
        try:
            async for frame in self.connection.request(
                "sample", request_id=identity, paths=list(paths), interval_ns=round(interval * 1e9), count=None
            ):
                self._raise_on_error(frame, "sample")
                if frame.header["event"] == "sample":
                    yield _sample(frame)
                else:
                    ended = True
        finally:
            if not ended and self.lost is None:
                await self.connection.ask("stop", run=identity, grace_ns=0)

    async def facts(self, tools: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """What this machine is; ``tools`` maps a name to the argv that prints its version."""
        frame = await self.connection.ask("facts", tools={name: list(argv) for name, argv in tools.items()})
        self._raise_on_error(frame, "facts")
        return {key: value for key, value in frame.header.items() if key not in ("id", "event")}

    async def clock(self) -> Clock:
        """Compare clocks: of several exchanges the one with the shortest round trip counts (as in NTP, RFC 5905)."""
        best: Clock | None = None
        for _ in range(_CLOCK_ROUNDS):
            sent = time.monotonic()
            frame = await self.connection.ask("clock")
            received = time.monotonic()
            theirs = frame.header["monotonic_ns"] / 1e9
            clock = Clock(offset=theirs - (sent + received) / 2, error=(received - sent) / 2)
            if best is None or clock.error < best.error:
                best = clock
        assert best is not None
        return best

    @staticmethod
    def _raise_on_error(frame: Frame, what: str) -> None:
        if frame.header.get("event") != "error":
            return
        if frame.header.get("errno") == "ENOENT":
            raise FileNotFoundError(what)
        if frame.header.get("errno") == "ENOSPC":
            raise DiskFull(f"no space left on the file system of {what}")
        raise NodeError(f"{what}: {frame.header.get('message')}")


def _sample(frame: Frame) -> Sample:
    contents: list[bytes | None] = []
    at = 0
    for size in frame.header["sizes"]:
        contents.append(None if size < 0 else frame.payload[at : at + size])
        at += max(size, 0)
    return Sample(
        t=frame.header["monotonic_ns"] / 1e9,
        realtime=frame.header["realtime_ns"] / 1e9,
        late=frame.header["late_ns"] / 1e9,
        contents=tuple(contents),
    )


class Process:
    """A command that runs on a node."""

    def __init__(self, node: Node, argv: tuple[str, ...], identity: int, events: AsyncIterator[Frame]) -> None:
        self._node, self._argv, self._id, self._events = node, argv, identity, events
        self._output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._exit: Exit | None = None
        self.pid: int | None = None

    async def await_start(self) -> None:
        """Wait until the process exists; called once, by ``Node.start``."""
        async for frame in self._events:
            if frame.header["event"] == "started":
                self.pid = frame.header["pid"]
                return
            self._take(frame)
            if self._exit is not None:
                return

    async def feed(self, data: bytes) -> None:
        """Give it this as its whole standard input."""
        offset = 0
        while True:
            chunk = data[offset : offset + CHUNK]
            offset += CHUNK
            last = offset >= len(data)
            await self._node.connection.ask("stdin", chunk, run=self._id, eof=last)
            if last:
                return

    async def wait(self) -> Exit:
        """Wait for its end. A cancelled caller stops the command before the cancellation goes on."""
        try:
            async for frame in self._events:
                self._take(frame)
        except BaseException:
            if self._exit is None and self._node.lost is None:
                await self.stop(grace=0.5)
            raise
        assert self._exit is not None, "a run ends with exit, error or NodeLost"
        return self._exit

    async def stop(self, grace: float = 2.0) -> None:
        """TERM to its whole group now, KILL after ``grace`` seconds; ``wait`` then returns."""
        await self._node.connection.ask("stop", run=self._id, grace_ns=round(grace * 1e9))

    def _take(self, frame: Frame) -> None:
        header = frame.header
        match header["event"]:
            case "stdout" | "stderr" as stream:
                self._output[stream].append(frame.payload)
            case "exit":
                self._exit = self._ended(header)
            case "error":
                reason = header.get("message", "unknown error")
                if header.get("errno") == "ENOENT":
                    reason = "no such program"
                raise CommandFailed(f"node {self._node.name}: {self._argv[0]} can't be run: {reason}")

    def _ended(self, header: Mapping[str, Any]) -> Exit:
        late = header["late_ns"]
        return Exit(
            argv=self._argv,
            code=header["code"],
            signal=header["signal"],
            timed_out=header["timed_out"],
            stopped_by=header["stopped_by"],
            late=None if late is None else late / 1e9,
            start=(header["start_ns"] or 0) / 1e9,
            elapsed=header["elapsed_ns"] / 1e9,
            cpu_user=header["user_ns"] / 1e9,
            cpu_system=header["system_ns"] / 1e9,
            max_rss=header["max_rss_bytes"],
            survivors=header["survivors"],
            stdout=b"".join(self._output["stdout"]),
            stderr=b"".join(self._output["stderr"]),
        )
