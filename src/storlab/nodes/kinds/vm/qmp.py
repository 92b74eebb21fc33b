"""Speaking with a QEMU that was just started, over its monitor (the library ``qemu.qmp``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qemu.qmp import ExecuteError, QMPClient, QMPError

from storlab.errors import NodeError

_POLL = 0.01  # s
_START = 30.0  # s, for QEMU to open its monitor, on a machine that starts many at once
_ANSWER = 30.0
_MIGRATION = 120.0

logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # a connection that ends is told by those who hold it


async def connect(path: Path, name: str, ended: Callable[[], bool]) -> QMPClient:
    """The monitor of a QEMU that is starting. Raises ``NodeError`` where it ends, or never opens it."""
    deadline = time.monotonic() + _START
    while not ended():
        client = QMPClient(name)
        try:
            async with asyncio.timeout(_ANSWER):
                await client.connect(str(path))
            return client
        except (QMPError, OSError, TimeoutError):
            if time.monotonic() > deadline:
                raise NodeError(f"node {name}: QEMU did not open its monitor within {_START:g} s") from None
            await asyncio.sleep(_POLL)
    raise NodeError(f"node {name}: QEMU ended right after its start")


async def execute(client: QMPClient, command: str, arguments: dict[str, Any] | None = None) -> Any:
    """One command's answer. Raises ``NodeError`` with QEMU's own reason where it refuses."""
    try:
        async with asyncio.timeout(_ANSWER):
            return await client.execute(command, arguments)
    except ExecuteError as error:
        raise NodeError(f"node {client.name}: QEMU refuses {command}: {error}") from None
    except TimeoutError:
        raise NodeError(f"node {client.name}: QEMU does not answer {command} within {_ANSWER:g} s") from None
    except (QMPError, OSError) as error:
        raise NodeError(f"node {client.name}: QEMU's monitor is gone: {error or type(error).__name__}") from None


async def hang_up(client: QMPClient) -> None:
    with contextlib.suppress(Exception):  # whatever it reports, the connection is closed
        await client.disconnect()


async def migration_ends(client: QMPClient) -> None:
    """Wait for a guest's state to be saved or loaded. Raises ``NodeError`` where that fails."""
    deadline = time.monotonic() + _MIGRATION
    while True:
        answer = await execute(client, "query-migrate")
        status = answer.get("status")
        if status == "completed":
            return
        if status in ("failed", "cancelled") or time.monotonic() > deadline:
            reason = answer.get("error-desc") or status or "it takes too long"
            raise NodeError(f"node {client.name}: its state can't be saved or loaded: {reason}")
        await asyncio.sleep(_POLL)


async def ignore_shared_memory(client: QMPClient) -> None:
    """Leave a guest's memory out of its saved state: it lies in a file of its own."""
    capability = {"capability": "x-ignore-shared", "state": True}
    await execute(client, "migrate-set-capabilities", {"capabilities": [capability]})
