"""One stream to one agent: requests out, events in, matched by ``id``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from storlab.errors import NodeLost, ProtocolError
from storlab.nodes.protocol import PREFACE, VERSION, Decoder, Frame, encode
from storlab.version import __version__

PATIENCE = 8.0  # s, for an agent to answer what takes it no time; a loaded machine needs far less
_FINAL = {"hello", "refused", "clock", "facts", "exit", "done", "error"}


class Connection:
    """Multiplexes requests over one stream. Every request's events come out of its own queue, in order.

    When the stream closes, or brings what is no frame, every open request gets ``NodeLost``. ``why`` may know more of
    the reason: it gets the sentence that would be said, and gives the one to say. ``patience``: seconds that the agent
    has to answer what takes it no time.
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
        self._open: dict[int, asyncio.Queue[Frame | None]] = {}
        self._lost: str | None = None
        self.gone = asyncio.Event()
        """Set once the stream is gone."""
        self._greeting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(), name=f"agent stream of {node}")

    @property
    def lost(self) -> str | None:
        """Why the stream is gone, or ``None`` while it stands."""
        return self._lost

    async def greet(self, timeout: float) -> dict[str, Any]:
        """Exchange ``hello``; returns the agent's. ``NodeLost`` on silence, ``ProtocolError`` on another version."""
        self._writer.write(PREFACE)
        try:
            async with asyncio.timeout(timeout):
                theirs = await asyncio.shield(self._greeting)
        except TimeoutError:
            raise NodeLost(f"node {self._node}: its agent did not say hello within {timeout:g} s") from None
        if theirs.get("protocol") != VERSION:
            raise ProtocolError(
                f"node {self._node}: its agent speaks protocol {theirs.get('protocol')} and Storlab {VERSION}; "
                "rebuild the agent with `make agent`"
            )
        async for frame in self.request("hello", protocol=VERSION, version=__version__):
            if frame.header.get("event") == "refused":
                raise ProtocolError(f"node {self._node}: the agent refused: {frame.header.get('message')}")
        return theirs

    def next_id(self) -> int:
        """A fresh request id, for those who must know it before the request goes out."""
        return next(self._ids)

    async def request(
        self, op: str, payload: bytes = b"", request_id: int | None = None, **fields: Any
    ) -> AsyncGenerator[Frame, None]:
        """Send a request and yield its events up to and with its final one. ``NodeLost`` where the stream ends."""
        identity = self.next_id() if request_id is None else request_id
        queue: asyncio.Queue[Frame | None] = asyncio.Queue()
        if self._lost is not None:
            raise NodeLost(self._lost)
        self._open[identity] = queue
        try:
            self._writer.write(encode(Frame({"id": identity, "op": op, **fields}, payload)))
            with contextlib.suppress(ConnectionError):  # the reader notices, and names the reason
                await self._writer.drain()
            while True:
                frame = await queue.get()
                if frame is None:
                    raise NodeLost(self._lost or f"node {self._node}: the stream to its agent closed")
                yield frame
                if frame.header.get("event") in _FINAL:
                    return
        finally:
            self._open.pop(identity, None)

    async def ask(self, op: str, payload: bytes = b"", **fields: Any) -> Frame:
        """Send a request that has one event, its final one, and return it."""
        last: Frame | None = None
        async for frame in self.request(op, payload, **fields):
            last = frame
        assert last is not None, "request() yields at least the final event"
        return last

    async def stop(self, identity: int, grace: float, signal: str | None = None) -> None:
        """Ask the agent to end the request ``identity``. One that does not even answer is given up: ``NodeLost``."""
        try:
            async with asyncio.timeout(self.patience):
                await self.ask("stop", run=identity, grace_ns=round(grace * 1e9), signal=signal)
        except TimeoutError:
            self.give_up(f"its agent has been silent for {self.patience:g} s")
            raise NodeLost(self._lost) from None

    def give_up(self, reason: str) -> None:
        """Regard the stream as gone, though it still stands: every open request gets ``NodeLost``."""
        self._fail(f"node {self._node}: {reason}")

    async def close(self) -> None:
        """Close the stream: the agent then kills all that it started. Idempotent."""
        if self._lost is not None and not self._writer.is_closing():
            self._writer.transport.abort()  # what was not sent yet would be waited for, and nobody reads it
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._fail(f"node {self._node}: its agent was closed")

    async def _read(self) -> None:
        decoder = Decoder()
        reason = f"node {self._node}: the stream to its agent closed"
        try:
            while chunk := await self._reader.read(256 * 1024):
                for frame in decoder.feed(chunk):
                    self._deliver(frame)
            if self._why is not None:
                reason = await self._why(reason)
        except (ProtocolError, ConnectionError) as error:
            reason = f"node {self._node}: {error}"
            if self._why is not None:
                reason = await self._why(reason)
        finally:
            self._fail(reason)

    def _deliver(self, frame: Frame) -> None:
        if frame.header.get("id") == 0 and frame.header.get("event") == "hello":
            if not self._greeting.done():
                self._greeting.set_result(frame.header)
            return
        queue = self._open.get(frame.header.get("id", -1))
        if queue is not None:  # else: the one who asked has gone, cancelled
            queue.put_nowait(frame)

    def _fail(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.gone.set()
        if not self._greeting.done():
            self._greeting.set_exception(NodeLost(reason))
            self._greeting.exception()  # marked as seen: nobody may be waiting for it
        for queue in self._open.values():
            queue.put_nowait(None)
