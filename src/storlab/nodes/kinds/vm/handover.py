"""Files and sockets that a QEMU gets while it runs, opened for it: by then it is a user who can open none itself.

Their descriptors go over its monitor, see add-fd and getfd in QEMU's QAPI (qapi/misc.json).
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Mapping
from typing import Any

from qemu.qmp import QMPClient

from storlab.errors import NodeError
from storlab.nodes.kinds.vm.qmp import execute


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
