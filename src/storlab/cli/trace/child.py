"""The tracer as a child of this process: started, followed line by line, ended. It never outlives its parent.

It ends by itself when its parent dies (``PR_SET_PDEATHSIG``) or when nobody reads what it prints. It has a process
group of its own, so that Ctrl-C reaches it only through this program, after the command that is traced has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.errors import MissingTool, NodeError, UserError

if TYPE_CHECKING:
    from storlab.blockio.trace_output import Line, Started

_CHUNK = 1 << 20
_PREFIX = "storlab-agent: "
_LAST_WORD = 10.0  # s, for a tracer that was told to end
_NO_DISK_OR_OPTION = 2  # its exit status for what the user asked for wrongly


class TraceChild:
    """A running tracer. Made by ``tracing``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._rest = b""
        self._read: list[Line] = []

    async def started(self) -> Started:
        """Its first line: it is attached. Raises ``UserError`` or ``MissingTool`` with its reason where it can't be."""
        lines = await self.lines()
        if not lines:
            raise await self._refusal()
        from storlab.blockio.trace_output import Started

        first, *self._read = lines
        if not isinstance(first, Started):
            raise NodeError("the tracer did not say that it has started")
        return first

    async def lines(self) -> list[Line]:
        """The next lines, as many as there are; none once it has ended. Raises ``ParseError``."""
        if self._read:
            lines, self._read = self._read, []
            return lines
        from storlab.blockio.trace_output import decode_lines

        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_CHUNK):
            whole, newline, rest = chunk.rpartition(b"\n")
            if newline:
                text, self._rest = self._rest + whole, rest
                return decode_lines(text, "the tracer")
            self._rest += chunk
        return []

    def end(self) -> None:
        """Ask it for its last counts; ``lines`` then gives them."""
        send(self._process, signal.SIGTERM)

    async def close(self) -> None:
        """End it, whatever it does."""
        self.end()
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_LAST_WORD):
                while await self._process.stdout.read(_CHUNK):
                    pass
                await self._process.wait()
        except TimeoutError:
            send(self._process, signal.SIGKILL)
            await self._process.wait()

    async def _refusal(self) -> Exception:
        assert self._process.stderr is not None
        said = (await self._process.stderr.read()).decode(errors="replace")
        status = await self._process.wait()
        sentence = next((line for line in said.splitlines() if line), "").removeprefix(_PREFIX)
        if not sentence:
            return NodeError(f"the tracer ended with status {status} and said nothing")
        if status == _NO_DISK_OR_OPTION:
            return UserError(sentence)
        remedy = "run it as root, or with sudo" if _not_root() else "`storlab doctor` says what this machine lacks"
        return MissingTool(f"{sentence}; {remedy}")


@asynccontextmanager
async def tracing(agent: Path, arguments: Sequence[str]) -> AsyncIterator[TraceChild]:
    """A tracer for as long as the context lasts."""
    process = await asyncio.create_subprocess_exec(
        str(agent),
        "trace",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_CHUNK,
        process_group=0,
    )
    child = TraceChild(process)
    try:
        yield child
    finally:
        await child.close()


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a child that asyncio waits for.

    ``Process.send_signal`` first looks whether it still runs: of one that has just ended, it takes the status away from
    asyncio, which then says 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _not_root() -> bool:
    return os.geteuid() != 0
