"""One stream to one agent: requests out, events in, matched by ``id``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from storlab.base.errors import NodeLost, ProtocolError
from storlab.base.programs import agent_remedy
from storlab.nodes.agent.protocol import (
    FINAL,
    PREFACE,
    VERSION,
    Answer,
    Decoder,
    Event,
    Frame,
    Hello,
    Refused,
    answer_of,
    check_answers,
    encode,
)
from storlab.version import __version__

PATIENCE = 8.0  # s, for an agent to answer what takes it no time; a loaded machine needs far less
MAX_UNREAD = 64 * 1024**2  # bytes of events that nobody has taken yet; who asked takes them as they come
_RENEWALS = 5  # in the time of a lease
_PER_EVENT = 1024  # bytes, at least, that an event takes here, however short it is


@dataclass
class _Request:
    op: str
    queue: asyncio.Queue[Answer | None] = field(default_factory=asyncio.Queue)


class Connection:
    """Multiplexes requests over one stream. Every request's events come out of its own queue, in order.

    When the stream closes, or brings what no agent sends, every open request gets ``NodeLost``: whoever is at the other
    end may be hostile, and is not asked again. ``why`` may know more of the reason: it gets the sentence that would be
    said, and gives the one to say. ``patience``: seconds that the agent has to answer what takes it no time.
    """

    def __init__(
        self,
        node: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        patience: float = PATIENCE,
        why: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._node = node
        self._reader, self._writer = reader, writer
        self._why = why
        self.patience = patience
        self._ids = itertools.count(1)
        self._last_id = 0
        self._open: dict[int, _Request] = {}
        self._unread = 0  # bytes
        self._lost: str | None = None
        self.gone = asyncio.Event()
        """Set once the stream is gone."""
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(), name=f"agent stream of {node}")
        self._renewing = asyncio.create_task(asyncio.sleep(0))  # there is no lease yet

    @property
    def lost(self) -> str | None:
        return self._lost

    async def greet(self, timeout: float, lease: float | None = None) -> Hello:
        """Exchange ``hello``; returns the agent's. ``NodeLost`` on silence, ``ProtocolError`` on another version.

        With a ``lease``, the agent ends if it hears nothing for so many seconds, and is given up if it says nothing.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._greet(lease)
        except TimeoutError:
            raise NodeLost(f"node {self._node}: its agent did not say hello within {timeout:g} s") from None

    async def _greet(self, lease: float | None) -> Hello:
        self._writer.write(PREFACE)
        theirs = await asyncio.shield(self._greeting)
        if theirs.protocol != VERSION:
            raise ProtocolError(
                f"node {self._node}: its agent speaks protocol {theirs.protocol} and Storlab {VERSION}: "
                f"{agent_remedy()}"
            )
        wanted: dict[str, Any] = {} if lease is None else {"lease_ns": round(lease * 1e9)}
        async for answer in self.request("hello", protocol=VERSION, version=__version__, **wanted):
            if isinstance(answer.event, Refused):
                raise ProtocolError(f"node {self._node}: the agent refused: {answer.event.message}")
            if isinstance(answer.event, Hello) and answer.event.lease_ns is not None:
                renewing = self._renew(answer.event.lease_ns / 1e9)
                self._renewing = asyncio.create_task(renewing, name=f"lease of {self._node}")
        return theirs

    async def _renew(self, lease: float) -> None:
        """Let the agent hear something, often enough; it has as long to answer as it lives without."""
        with contextlib.suppress(NodeLost):
            while True:
                try:
                    async with asyncio.timeout(lease):
                        await self.ask("clock")
                except TimeoutError:
                    self.give_up(f"host lost: its agent has been silent for {lease:g} s")
                    return
                await asyncio.sleep(lease / _RENEWALS)

    def next_id(self) -> int:
        self._last_id = next(self._ids)
        return self._last_id

    async def request(
        self, op: str, payload: bytes = b"", request_id: int | None = None, **fields: Any
    ) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its events up to and with its final one. ``NodeLost`` where the stream ends."""
        identity = self.next_id() if request_id is None else request_id
        if self._lost is not None:
            raise NodeLost(self._lost)
        self._open[identity] = _Request(op)
        queue = self._open[identity].queue
        try:
            self._writer.write(encode(Frame({"id": identity, "op": op, **fields}, payload)))
            with contextlib.suppress(ConnectionError):  # the reader notices, and names the reason
                await self._writer.drain()
            while True:
                answer = await queue.get()
                if answer is None:
                    raise NodeLost(self._lost or f"node {self._node}: the stream to its agent closed")
                self._unread -= _size(answer)
                yield answer
                if isinstance(answer.event, FINAL):
                    return
        finally:
            self._open.pop(identity, None)
            self._unread -= sum(_size(queue.get_nowait()) for _ in range(queue.qsize()))

    async def ask(self, op: str, payload: bytes = b"", **fields: Any) -> Event:
        last: Event | None = None
        async for answer in self.request(op, payload, **fields):
            last = answer.event
        assert last is not None, "request() yields at least the final event"
        return last

    async def stop(self, identity: int, grace: float, signal: str | None = None) -> None:
        """Ask the agent to end the request ``identity``. One that does not even answer is given up: ``NodeLost``."""
        try:
            async with asyncio.timeout(self.patience):
                await self.ask("stop", run=identity, grace_ns=round(grace * 1e9), signal=signal)
        except TimeoutError:
            raise self.give_up(f"its agent has been silent for {self.patience:g} s") from None

    def give_up(self, reason: str) -> NodeLost:
        """Regard the stream as gone, though it still stands: every open request gets this ``NodeLost``."""
        self._fail(f"node {self._node}: {reason}")
        return NodeLost(self._lost)

    async def close(self) -> None:
        """Close the stream: the agent then kills all that it started. Idempotent."""
        if self._lost is not None and not self._writer.is_closing():
            self._writer.transport.abort()  # what was not sent yet would be waited for, and nobody reads it
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        self._reading.cancel()
        self._renewing.cancel()
        await asyncio.wait([self._reading, self._renewing])
        self._fail(f"node {self._node}: its agent was closed")

    async def _read(self) -> None:
        decoder = Decoder()
        reason = f"node {self._node}: the stream to its agent closed"
        try:
            while chunk := await self._reader.read(256 * 1024):
                for frame in decoder.feed(chunk):
                    self._deliver(answer_of(frame))
            if self._why is not None:
                reason = await self._why(reason)
        except (ProtocolError, ConnectionError) as error:
            reason = f"node {self._node}: {error}"
            if self._why is not None:
                reason = await self._why(reason)
        finally:
            self._fail(reason)

    def _deliver(self, answer: Answer) -> None:
        if answer.id == 0 and isinstance(answer.event, Hello):
            if not self._greeting.done():
                self._greeting.set_result(answer.event)
            return
        if not 0 < answer.id <= self._last_id:
            raise ProtocolError(f"its agent answered a request that there was not, number {answer.id}")
        request = self._open.get(answer.id)
        if request is None:  # the one who asked has gone, cancelled
            return
        check_answers(request.op, answer.event)
        self._unread += _size(answer)
        if self._unread > MAX_UNREAD:
            raise ProtocolError(f"its agent sends more than is taken: {MAX_UNREAD >> 20}M wait")
        request.queue.put_nowait(answer)

    def _fail(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.gone.set()
        if not self._greeting.done():
            self._greeting.set_exception(NodeLost(reason))
            self._greeting.exception()  # marked as seen: nobody may be waiting for it
        for request in self._open.values():
            request.queue.put_nowait(None)


def _size(answer: Answer | None) -> int:
    return 0 if answer is None else _PER_EVENT + len(answer.payload)
