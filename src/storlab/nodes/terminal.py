"""The user's terminal on a node: a shell there, keys and output passed through the agent.

On a terminal, script(1) gives the shell a terminal of its own on the node; what is piped in is passed as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shlex
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from signal import Signals
from typing import Any

from storlab.base.waiting import cancelled
from storlab.nodes.agent.protocol import Exited, Started, Stderr, Stdout
from storlab.nodes.node import Node

_SHELL = "if command -v bash >/dev/null; then exec bash {}; else exec sh {}; fi"
_CHUNK = 64 * 1024
_LOOK = 0.1  # s between two looks whether the shell has ended


async def shell_on(node: Node, cwd: str | None, greeting: str) -> int:
    """A shell on the node, until it ends or the input does; returns its exit status."""
    interactive = sys.stdin.isatty()
    argv = _interactive(greeting) if interactive else ["sh", "-c", _SHELL.format("", "")]
    identity = node.connection.next_id()
    fields: dict[str, Any] = {
        "argv": argv,
        "env": {**node.environment, "TERM": os.environ.get("TERM", "dumb")},
        "cwd": cwd,
        "stdin": "stream",
        "stdout": "stream",
        "stderr": "stream",
        "timeout_ns": None,
        "grace_ns": 1_000_000_000,
        "start_at_ns": None,
    }
    with _raw_terminal() if interactive else contextlib.nullcontext():
        typing: asyncio.Task[None] | None = None
        try:
            async with aclosing(node.connection.request("run", request_id=identity, **fields)) as answers:
                async for answer in answers:
                    match answer.event:
                        case Started() if typing is None:
                            typing = asyncio.create_task(_type(node, identity))
                        case Stdout():
                            _write(sys.stdout.fileno(), answer.payload)
                        case Stderr():
                            _write(sys.stderr.fileno(), answer.payload)
                        case Exited() as ended:
                            return _status(ended)
            return 1
        finally:
            if typing is not None:
                await cancelled(typing)


def _status(ended: Exited) -> int:
    """As a shell tells it: 128 and the number of the signal that ended it."""
    if ended.signal is not None:
        known = Signals.__members__.get(ended.signal)
        return 128 + (known.value if known is not None else 0)
    return ended.code or 0


def _interactive(greeting: str) -> list[str]:
    size = os.get_terminal_size()
    shell = _SHELL.format("-i", "-i")
    words = f"stty rows {size.lines} cols {size.columns}; printf '%s\\n' {shlex.quote(greeting)}; {shell}"
    return ["script", "--quiet", "--return", "--command", words, "/dev/null"]


@contextmanager
def _raw_terminal() -> Iterator[None]:
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be what has gone
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def _type(node: Node, run: int) -> None:
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue()

    # A thread, since making a terminal's descriptor non-blocking would do so for everyone else who has it; a daemon,
    # since nothing can take it out of its read. It begins none once this shell has ended: that is for the next one.
    def read() -> None:
        data = b"-"
        while data and not ended.is_set():
            if select.select([sys.stdin], [], [], _LOOK)[0]:
                data = b""
                with contextlib.suppress(OSError):  # a terminal that has gone
                    data = os.read(sys.stdin.fileno(), _CHUNK)
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(typed.put_nowait, data)

    ended = threading.Event()
    threading.Thread(target=read, daemon=True).start()
    try:
        while data := await typed.get():
            await node.connection.ask("stdin", data, run=run, eof=False)
        await node.connection.ask("stdin", b"", run=run, eof=True)
    finally:
        ended.set()


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # whoever reads us has gone; the shell's own end is what we wait for
        while data:
            data = data[os.write(descriptor, data) :]
