"""Probe ``locks``: who waits for the kernel's locks, how often and how long, counted in the kernel.

The agent's program (``docs/reference/locks-output.md``) counts every wait that the kernel reports, from before the load
starts until it has ended. Nothing is sampled. The kernel tells no waits of one node of those of another, so it watches
each machine once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar

import orjson

from storlab.errors import CommandFailed, NodeError
from storlab.locks.agent_output import read_output
from storlab.locks.metrics import METRICS, histograms, values
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.nodes.node import Exit
from storlab.nodes.process import Process
from storlab.nodes.waiting import to_its_end
from storlab.probes.alignment.probe import NOTES, read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import Kind

NAME = "locks.jsonl"
"""What the agent's program printed."""

_STARTED = 30.0  # s; an emulated guest takes three
_MAX_OUTPUT = 256 * 1024**2  # bytes; one line of counts is some 100 KB
_LAST_WORD = 20.0  # s, for its counts


class LocksProbe(Probe):
    """Counts waits for the kernel's locks by type of lock and by the function that waits, by eBPF."""

    kind: ClassVar[str] = "locks"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS

    def needs(self) -> Needs:
        return Needs(root="tracing locks", agent=("locks",))

    def parse(self, record: ProbeRecord) -> Measurements:
        notes = read_notes(record.raw)
        if not (record.raw / NAME).exists():
            return Measurements(warnings=notes or ("locks: the tracer's counts are missing",))
        output = read_output(record.raw / NAME)
        return Measurements(
            metrics=metric_frame(values(output.counts)),
            histograms=histograms(output.counts),
            warnings=(*notes, *(f"locks: {each}" for each in output.warnings())),
        )

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        process = await self._started(context)
        try:
            yield
        finally:
            if process is not None:
                await to_its_end(_finish(process, context.raw))

    async def _started(self, context: ProbeContext) -> Process | None:
        """The program, attached; ``None`` where it can't be, with the reason among the notes."""
        # The agent's executable by way of its process: in a guest, the file itself is gone.
        try:
            process = await context.node.start([f"/proc/{context.node.pid}/exe", "locks"], max_output=_MAX_OUTPUT)
        except CommandFailed as error:
            _note(context.raw, f"locks: {error}")
            return None
        try:
            async with asyncio.timeout(_STARTED):
                first = await process.first_line()
        except TimeoutError:
            await process.end()
            _note(context.raw, f"locks: the tracer was not attached within {_STARTED:.0f} s")
            return None
        except BaseException:
            await process.end()
            raise
        if first is not None:
            return process
        _note(context.raw, _refusal(await process.wait()))
        return None


async def _finish(process: Process, raw: Path) -> None:
    with suppress(NodeError):  # whoever needs the node says so
        if process.ended is None:
            await process.stop(grace=_LAST_WORD)
        ended = await process.wait()
        (raw / NAME).write_bytes(ended.stdout)


def _refusal(ended: Exit) -> str:
    lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line]
    return f"locks: {lines[0].removeprefix('storlab-agent: ') if lines else 'the tracer ended and said nothing'}"


def _note(raw: Path, sentence: str) -> None:
    (raw / NOTES).write_bytes(orjson.dumps([sentence]))
