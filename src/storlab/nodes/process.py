"""A command on a node: how it is followed, stopped, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from storlab.base.errors import CommandFailed, DiskFull, NodeLost, TimedOut, TooMuch
from storlab.base.limits import OUTPUT
from storlab.base.record import Count, Seconds
from storlab.base.units import size_text
from storlab.base.waiting import to_its_end
from storlab.nodes.agent.connection import Connection
from storlab.nodes.agent.protocol import CHUNK, Counted, Event, Exited, Failed, Started, Stderr, Stdout, Turns

_FULL = "No space left on device"  # ENOSPC, see strerror(3)
MAX_LINE = 64 * 1024  # bytes of the first line that is waited for
_REST = 10.0  # s, for a command that was killed to be gone; one that hangs in the kernel never is


Turn = tuple[float, float]
"""From when to when a command works: seconds on its node's monotonic clock."""
OnOutput = Callable[[bytes, float], None]
"""Gets what a command prints, piece by piece, and when that was read, in seconds on its node's monotonic clock."""


@dataclass(frozen=True)
class ExitRecord:
    """How a command ended. Times in seconds, ``start`` on its node's monotonic clock; ``max_rss`` in bytes."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    code: int | None
    signal: str | None
    timed_out: bool
    stopped_by: str | None
    late: Seconds | None
    start: Seconds
    elapsed: Seconds
    cpu_user: Seconds
    cpu_system: Seconds
    max_rss: Count
    survivors: Count

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out and self.stopped_by is None

    def describe(self) -> str:
        name = self.argv[0]
        if self.timed_out:
            return f"{name} was stopped at its time-out after {self.elapsed:.1f} s (by {self.stopped_by or 'TERM'})"
        if self.signal is not None:
            return f"{name} was killed by {self.signal}"
        return f"{name} ended with status {self.code}"


@dataclass(frozen=True)
class Exit(ExitRecord):
    """The same with what it printed."""

    stdout: bytes = b""
    stderr: bytes = b""
    dropped: int = 0  # bytes of its output, beyond the first ``first_output`` of each stream
    counted: Counted | None = None  # where that was asked for

    def check(self, node: str) -> Exit:
        """This exit, if it is a success; else ``TimedOut``, ``DiskFull`` or ``CommandFailed``."""
        if self.ok:
            return self
        output = (self.stderr or self.stdout).decode(errors="replace").strip()
        lines = output.splitlines() or ["no output"]
        message = f"node {node}: {self.describe()}: {telling(lines)}"
        detail = f"$ {shlex.join(self.argv)}\n{output}"
        if self.timed_out:
            raise TimedOut(message, detail)
        if any(_FULL in line for line in lines):
            raise DiskFull(message, detail)
        raise CommandFailed(message, detail)


def telling(lines: Sequence[str]) -> str:
    """The line that says what was wrong.

    The last, but for programs that print their usage after it (mkfs.xfs, numactl), or how far they came (dd).
    """
    full = next((line for line in lines if _FULL in line), None)
    if full is not None:
        return full
    return lines[0] if any(line.lower().startswith("usage:") for line in lines[1:]) else lines[-1]


class Process:
    """A command that runs on a node. A task of its own follows it, so that nobody's cancellation loses sight of it."""

    def __init__(
        self,
        node: str,
        connection: Connection,
        argv: tuple[str, ...],
        fields: Mapping[str, Any],
        listeners: Mapping[type[Event], OnOutput | None],
        max_output: int | None = None,
    ) -> None:
        self._node, self._connection, self._argv, self._listeners = node, connection, argv, listeners
        self._id = connection.next_id()
        self._max_output = max_output or OUTPUT
        self._started, self._spoke = asyncio.Event(), asyncio.Event()
        self._first = b""
        self._following = asyncio.create_task(self._follow(fields), name=f"{argv[0]} on {node}")
        self._following.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen, if nobody waits
        self.pid: int | None = None
        self.cgroup: str | None = None  # the folder of its cgroup, where it has one

    async def started(self) -> None:
        """Wait until it exists. Raises ``CommandFailed`` where it can't be executed."""
        await self._started.wait()
        if self._following.done():
            self._following.result()
        if self.pid is None:
            raise CommandFailed(f"node {self._node}: {self._argv[0]} ended before it was started")

    async def first_line(self) -> bytes | None:
        """The first line that it prints, without its end; ``None`` where there was none before it ended."""
        await self._spoke.wait()
        line, end, _ = self._first.partition(b"\n")
        return line if end else None

    async def feed(self, data: bytes | AsyncIterator[bytes]) -> None:
        """Give it this as its whole standard input, or as much of it as it takes."""
        if isinstance(data, bytes):
            for offset in range(0, len(data), CHUNK):
                await self._connection.ask("stdin", data[offset : offset + CHUNK], run=self._id, eof=False)
        else:
            async for piece in data:
                if self._following.done():
                    break
                await self._connection.ask("stdin", piece, run=self._id, eof=False)
        await self._connection.ask("stdin", b"", run=self._id, eof=True)

    async def wait(self) -> Exit:
        """Wait for its end. A cancelled caller stops it, and waits until it is at rest."""
        try:
            return await asyncio.shield(self._following)
        except asyncio.CancelledError:
            await self.end()
            raise

    @property
    def ended(self) -> Exit | None:
        """How it ended; ``None`` while it runs, or where that is not known."""
        done = self._following.done() and not self._following.cancelled()
        return self._following.result() if done and self._following.exception() is None else None

    @property
    def lost(self) -> str | None:
        """Why it can't be known how it ends: the node's agent is gone. ``None`` while that is there."""
        return None if self.ended is not None else self._connection.lost

    async def rest(self) -> None:
        """Wait for its end without a say in it: cancelling this stops nothing."""
        await asyncio.wait([self._following])

    def when_ended(self, callback: Callable[[Exit | None], None]) -> None:
        """Call this once it has ended, with how; with ``None`` where that can't be known, as its agent is gone."""
        self._following.add_done_callback(lambda _: callback(self.ended))

    async def stop(self, grace: float = 2.0, signal: str | None = None) -> None:
        """TERM to its whole group now, KILL after ``grace`` seconds; ``wait`` then returns.

        A ``signal`` of its own, such as ``SIGINT``, goes to the first process alone.
        """
        await self._connection.stop(self._id, grace, signal)

    async def take_turns(self, turns: Sequence[Turn] = ()) -> list[Turn]:
        """Hold it at once, let it work in these turns alone, and hold it again; returns when it really worked.

        Until it is stopped, which lets it go. Seconds on its node's monotonic clock. Raises ``CommandFailed`` where it
        ended before its turns did.
        """
        wanted = [(round(begin * 1e9), round(end * 1e9)) for begin, end in turns]
        answered = await self._connection.ask("turns", run=self._id, turns=wanted)
        if not isinstance(answered, Turns):
            said = answered.message if isinstance(answered, Failed) else "no answer"
            raise CommandFailed(f"node {self._node}: {self._argv[0]} can't be held: {said}")
        taken = [(begin / 1e9, end / 1e9) for begin, end in answered.turns]
        steps = [edge for turn in taken for edge in turn]
        if len(taken) != len(wanted) or steps != sorted(steps):
            raise self._connection.give_up("its agent tells of other turns than it was asked for")
        return taken

    async def last_word(self, grace: float) -> Exit:
        """Stop it, and wait for its end with what it prints until then, for which it has ``grace`` seconds.

        A caller who is cancelled meanwhile wants none of that: it is killed. One that is not at rest soon after its
        grace counts as lost, with its node. Raises ``NodeLost``, ``TooMuch``.
        """
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace + self._connection.patience):
                    if not self._following.done():
                        await self.stop(grace)
                    await self.rest()
        finally:
            await self.end()
        return await self.wait()

    async def end(self) -> None:
        """Stop it and wait until it is at rest. A node that does not get that done counts as lost."""
        await to_its_end(self._end())

    async def _end(self) -> None:
        if self._following.done():
            return
        try:
            async with asyncio.timeout(max(_REST, self._connection.patience)):
                await self.stop(grace=0.5)
                await asyncio.wait([self._following])
        except TimeoutError:
            self._connection.give_up(f"{self._argv[0]} can't be stopped, not even by KILL: it hangs in the kernel")
        except NodeLost:
            pass  # with its agent it ends

    async def _follow(self, fields: Mapping[str, Any]) -> Exit:
        output: dict[type[Event], list[bytes]] = {Stdout: [], Stderr: []}
        collected = 0
        try:
            async with aclosing(self._connection.request("run", request_id=self._id, **fields)) as answers:
                async for answer in answers:
                    event = answer.event
                    match event:
                        case Started():
                            self.pid, self.cgroup = event.pid, event.cgroup
                            self._started.set()
                        case Stdout() | Stderr() if (listener := self._listeners[type(event)]) is not None:
                            listener(answer.payload, event.monotonic_ns / 1e9)
                        case Stdout() | Stderr():
                            output[type(event)].append(answer.payload)
                            collected += len(answer.payload)
                            if collected > self._max_output:
                                raise TooMuch(
                                    f"node {self._node}: {self._argv[0]} was killed, as it printed more than "
                                    f"{size_text(self._max_output)}: let it write to a file"
                                )
                        case Failed():
                            raise cannot_run(self._node, self._argv[0], event.message, event.errno)
                        case Exited():
                            return _ended(self._argv, event, b"".join(output[Stdout]), b"".join(output[Stderr]))
                    if isinstance(event, Stdout):
                        self._listen(answer.payload)
            raise AssertionError("a run ends with exit, error or NodeLost")
        except (CommandFailed, NodeLost):  # it has not begun, or its agent is gone
            raise
        except Exception:  # also of a listener, such as a full disk: nobody follows it any more
            with contextlib.suppress(NodeLost):
                await self.stop(grace=0.0)
            raise
        finally:
            self._started.set()
            self._spoke.set()

    def _listen(self, payload: bytes) -> None:
        if not self._spoke.is_set():
            self._first += payload[:MAX_LINE]
            if b"\n" in payload or len(self._first) > MAX_LINE:
                self._spoke.set()


def cannot_run(node: str, program: str, message: str, errno: str | None) -> CommandFailed:
    """What to raise for a program that could not be executed, for what its agent says of that."""
    missing = errno == "ENOENT" and message.startswith("can't execute")
    return CommandFailed(f"node {node}: {program} can't be run: {'no such program' if missing else message}")


def _ended(argv: tuple[str, ...], event: Exited, stdout: bytes, stderr: bytes) -> Exit:
    return Exit(
        argv=argv,
        code=event.code,
        signal=event.signal,
        timed_out=event.timed_out,
        stopped_by=event.stopped_by,
        survivors=event.survivors,
        late=None if event.late_ns is None else event.late_ns / 1e9,
        start=(event.start_ns or 0) / 1e9,
        elapsed=event.elapsed_ns / 1e9,
        cpu_user=event.user_ns / 1e9,
        cpu_system=event.system_ns / 1e9,
        max_rss=event.max_rss_bytes,
        stdout=stdout,
        stderr=stderr,
        dropped=event.dropped,
        counted=event.counted,
    )
