"""Why a guest is gone, in words: what QEMU reported, how it ended, and what the console said."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storlab.base.errors import NodeError, StorlabError
from storlab.nodes.console import console_text, killed_for_memory, panic
from storlab.nodes.process import Process, telling

if TYPE_CHECKING:
    from qemu.qmp import EventListener, QMPClient

_WAIT = 2.0  # s: the stream closes a moment before the process that held it is known to have ended
_ANSWER = 2.0  # s, for QEMU's monitor
_INIT = "storlab-init: "
_AGENT, _AGENT_KILLED = "storlab-agent", "the agent was killed by SIGKILL"
_EVENTS = ("BLOCK_IO_ERROR", "GUEST_PANICKED", "SHUTDOWN", "STOP")


class Causes:
    """Gathers what is known of one guest's end; the first cause counts. ``at``: when, on the monotonic clock."""

    def __init__(self, name: str, process: Process, console: Path) -> None:
        self._name, self._process, self._console = name, process, console
        self._said: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._qmp: QMPClient | None = None
        self.on_disk_error: Any = None
        self.at: float | None = None

    async def monitor(self, path: Path) -> QMPClient:
        """QEMU's monitor, once it is there. Raises ``NodeError`` with the reason where QEMU ends instead."""
        from storlab.nodes.kinds.vm.qmp import connect

        try:
            return await connect(path, self._name, lambda: self._process.ended is not None)
        except NodeError as error:
            raise NodeError(await self.name(str(error))) from None

    def listen(self, qmp: QMPClient) -> None:
        from qemu.qmp import EventListener

        self._qmp = qmp
        listener = EventListener(names=_EVENTS)
        qmp.register_listener(listener)
        self._task = asyncio.create_task(self._take(listener), name=f"events of {self._name}")

    async def name(self, otherwise: str) -> str:
        """The reason, as a sentence; ``otherwise`` where none is known. Waits a moment for what is still to come."""
        if self._said is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAIT):
                    await self._process.rest()
        said = self._said or self._ending()
        if said is None and self._process.lost is not None:
            return f"{self._process.lost}, and with the agent its virtual machines ended"
        return otherwise if said is None else f"node {self._name}: {said}"

    async def hung(self, silence: float) -> str:
        killed = killed_for_memory(console_text(self._console))
        memory = f"; it had run out of memory before, and its kernel had killed {killed}" if killed else ""
        return self._note(f"its agent has been silent for {silence:g} s: the guest hangs{await self._state()}{memory}")

    async def _state(self) -> str:
        if self._qmp is None:
            return ""
        from qemu.qmp import QMPError

        try:
            async with asyncio.timeout(_ANSWER):
                status: Any = await self._qmp.execute("query-status")
        except TimeoutError:
            return ", and so does QEMU: it does not answer either"
        except (QMPError, OSError):
            return ""
        return "" if status["running"] else f"; QEMU says that it is {status['status']}"

    def _ending(self) -> str | None:
        text = console_text(self._console)
        reason = panic(text)
        if reason is not None:
            return self._note(f"the guest's kernel panicked: {reason}")
        ended = self._process.ended
        if ended is None:
            return None
        if ended.signal is not None:
            return self._note(f"QEMU was killed by {ended.signal}")
        if ended.code:
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            return self._note(f"QEMU ended with status {ended.code}: {telling(lines) if lines else 'it said nothing'}")
        word = last_word(text)
        before = text.rpartition(_INIT)[0]
        if word == _AGENT_KILLED and killed_for_memory(before) == _AGENT:  # whoever was killed earlier is not why
            return self._note("the guest ran out of memory, and its kernel killed its agent")
        return self._note(f"the guest powered off{f': {word}' if word and word != 'ready' else ''}")

    def _note(self, said: str) -> str:
        if self._said is None:
            self._said, self.at = said, time.monotonic()
        return self._said

    async def _take(self, listener: EventListener) -> None:
        async for event in listener:
            data = event.get("data", {})
            if event["event"] == "BLOCK_IO_ERROR":
                said = self._note(disk_error(data))
                if self.on_disk_error is not None:
                    self.on_disk_error(said)

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, StorlabError):
                await self._task


def disk_error(data: Any) -> str:
    """A ``BLOCK_IO_ERROR`` event in words (QAPI: block-core.json)."""
    operation = {"read": "a read from", "write": "a write to"}.get(str(data.get("operation")), "an operation on")
    if data.get("nospace"):
        return f"{operation} what is behind its disk failed: no space left there; QEMU stopped the guest"
    reason = data.get("reason") or "I/O error"
    return f"{operation} what is behind its disk failed: {reason}; QEMU stopped the guest"


def last_word(text: str) -> str | None:
    """What the guest's first process said last, but for its good-bye; ``None`` where it said nothing."""
    said = [line.partition(_INIT)[2].strip() for line in text.splitlines() if _INIT in line]
    return said[-1].removesuffix("; powering off") if said else None
