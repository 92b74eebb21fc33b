"""Nodes of kind ``local``: an agent on this machine, as a subprocess over its standard streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping

from storlab.nodes.agent_binary import agent_path
from storlab.nodes.connection import Connection, Stream
from storlab.nodes.node import Node
from storlab.nodes.waiting import to_its_end

HELLO_TIMEOUT = 10.0  # s; a loaded machine needs far less
_EXIT_TIMEOUT = 10.0
_DRAIN_TIMEOUT = 1.0


@contextlib.asynccontextmanager
async def local_node(
    name: str, *, cgroup: str | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Node]:
    """An agent on this machine for as long as the context lasts; leaving it ends all that the agent started.

    ``environment`` is added to the agent's own and to that of every command. ``cgroup`` names the agent's cgroup, so
    that what an agent killed from outside leaves can be found.
    """
    argv = [str(agent_path()), "serve", *(["--cgroup", cgroup] if cgroup else [])]
    process = await asyncio.create_subprocess_exec(
        *argv,
        env={**os.environ, **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C in the terminal is for the controller alone: it decides what is stopped, and in which order.
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    connection = Connection(name, Stream(process.stdout, process.stdin))
    try:
        greeting = await connection.greet(HELLO_TIMEOUT)
        yield Node(name, connection, "local", greeting["pid"], environment or {})
    finally:
        await to_its_end(_end(connection, process))


async def _end(connection: Connection, process: asyncio.subprocess.Process) -> None:
    if connection.lost is not None:
        _kill(process)  # it may still live, and stand still
    try:
        async with asyncio.timeout(_EXIT_TIMEOUT):
            await connection.close()
            await process.wait()
    except TimeoutError:  # something that it started hangs in the kernel
        _kill(process)
        await process.wait()
        await connection.close()
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):  # a reader that was paused never sees the end, and asyncio keeps its pipe
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            await process.stdout.read()


def _kill(process: asyncio.subprocess.Process) -> None:
    # Not process.kill(): that reaps the child behind asyncio's back, which then warns of it (Python 3.11).
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
