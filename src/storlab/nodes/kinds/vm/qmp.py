"""Speaking with a QEMU that was just started, over its monitor (the library ``qemu.qmp``)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qemu.qmp import ExecuteError, QMPClient, QMPError

from storlab.base.errors import NodeError

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


# Files and sockets that a QEMU gets while it runs, opened for it: by then it is a user who can open none itself.
#
# Their descriptors go over its monitor, see add-fd and getfd in QEMU's QAPI (qapi/misc.json).


class Handover:
    """What is handed over to one QEMU."""

    def __init__(self, qmp: QMPClient) -> None:
        self._qmp = qmp
        self._numbers = itertools.count(1)

    async def file(self, path: str, flags: int) -> str:
        """The name by which QEMU opens a file that was opened here. Raises ``NodeError`` where it can't be."""
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise NodeError(f"node {self._qmp.name}: cannot open {path} for QEMU: {error.strerror}") from None
        os.set_blocking(descriptor, True)
        number = next(self._numbers)
        await self._send(descriptor, "add-fd", {"fdset-id": number})
        return f"/dev/fdset/{number}"

    async def socket(self, path: str) -> str:
        """The name by which QEMU takes a connection that was made here. Raises ``NodeError`` where it can't be."""
        name = f"socket{next(self._numbers)}"
        with socket.socket(socket.AF_UNIX) as connected:
            try:
                connected.connect(path)
            except OSError as error:
                raise NodeError(f"node {self._qmp.name}: no connection to {path}: {error.strerror}") from None
            descriptor = connected.detach()
        await self._send(descriptor, "getfd", {"fdname": name})
        return name

    async def arguments(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [await self.arguments(each) for each in given]
        if not isinstance(given, Mapping):
            return given
        found = {key: await self.arguments(value) for key, value in given.items()}
        if "filename" in found:
            # QEMU takes only a descriptor that was opened as it would have done it itself, since 9.1 also in this.
            direct = os.O_DIRECT if found.get("cache", {}).get("direct") else 0
            flags = os.O_RDONLY if found.get("read-only") else os.O_RDWR
            found["filename"] = await self.file(found["filename"], flags | direct)
        if found.get("type") == "unix":
            where = found.get("data", found)
            where["str"] = await self.socket(where.pop("path"))
            found["type"] = "fd"
        return found

    async def _send(self, descriptor: int, command: str, arguments: dict[str, Any]) -> None:
        try:
            self._qmp.send_fd_scm(descriptor)
            await execute(self._qmp, command, arguments)
        finally:
            os.close(descriptor)
