"""Probes that are programs of the agent: one is started with the watch, stopped at its end, and its output kept."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from storlab.base.errors import CommandFailed, NodeError, TooMuch
from storlab.base.limits import FILE
from storlab.measurements import Measurements
from storlab.nodes.process import Process
from storlab.probes.base import Probe, ProbeContext, ProbeRecord, read_notes, write_notes

_STARTED = 30.0  # s, within which it begins or says why not; an emulated guest takes three


class AgentProbe(Probe):
    """Runs ``storlab-agent WORDS`` for as long as it watches; what it prints becomes the file ``output``.

    If it can't be run, or prints too much, the reason is among the notes, and the load runs without it. A trial that is
    cancelled does not wait for what it saw.
    """

    output: ClassVar[str]
    missing: ClassVar[str]
    """The warning if there is neither output nor a note."""
    refused: ClassVar[str] = ""
    """What comes before a reason in notes; by default the probe's kind."""
    most: ClassVar[int] = FILE
    """Bytes of output."""
    last_word: ClassVar[float] = 20.0
    """Seconds within which it ends when it is stopped."""

    @abstractmethod
    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str] | None:
        """The program's command line; ``None`` if there is nothing to watch. ``notes`` takes sentences on that."""

    def measured(self, record: ProbeRecord, path: Path) -> Measurements:
        """What the output at ``path`` says; warnings are without the probe's name. Raises ``ParseError``."""
        raise NotImplementedError  # or ``parse`` is another

    async def before_the_end(self, context: ProbeContext) -> None:
        """What is done after the load while it still watches."""

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        notes: list[str] = []
        words = await self.words(context, notes)
        process = None if words is None else await self._started(context, words, notes)
        write_notes(context.raw, notes)
        if process is None:
            yield
            return
        try:
            yield
        except asyncio.CancelledError:
            await process.end()
            raise
        finally:
            try:
                if process.ended is None:
                    await self.before_the_end(context)
                ended = await process.last_word(self.last_word)
            except TooMuch as error:
                write_notes(context.raw, [*notes, self._note(str(error))])
            except NodeError:
                pass  # whoever needs the node says so
            else:
                (context.raw / self.output).write_bytes(ended.stdout)

    def _note(self, why: str) -> str:
        return f"{self.refused or self.kind}: {why}"

    async def _started(self, context: ProbeContext, words: Sequence[str], notes: list[str]) -> Process | None:
        # The agent's executable by way of its process: in a guest, the file itself is gone.
        argv = [f"/proc/{context.node.pid}/exe", *words]
        try:
            process = await context.node.start(argv, max_output=self.most)
        except CommandFailed as error:
            notes.append(self._note(str(error)))
            return None
        try:
            async with asyncio.timeout(_STARTED):
                if await process.first_line() is not None:
                    return process
            lines = (await process.last_word(0.0)).stderr.decode(errors="replace").splitlines()
            said = next((line for line in lines if line), "the program ended and printed no reason")
            notes.append(self._note(said.removeprefix("storlab-agent: ")))
        except TimeoutError:
            await process.end()
            notes.append(self._note(f"the agent's program had not started within {_STARTED:.0f} s"))
        except BaseException:
            await process.end()
            raise
        return None

    def parse(self, record: ProbeRecord) -> Measurements:
        notes, path = read_notes(record.raw), record.raw / self.output
        if not path.exists():
            return Measurements(warnings=notes or (f"{self.kind}: {self.missing}",))
        found = self.measured(record, path)
        return replace(found, warnings=(*notes, *(f"{self.kind}: {each}" for each in found.warnings)))
