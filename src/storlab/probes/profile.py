"""Probe ``profile``: where the CPUs of a machine are, sampled with their stacks, as shares by function.

At each tick of each CPU's software clock, 99 times a second, the agent's program (``docs/reference/profile-output.md``)
notes the stack in the kernel and in the program. Shares are estimates from samples: their error within a trial is that
of counts, and between rounds they are compared like any other metric.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from storlab.base.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.probes.agent import AgentProbe
from storlab.probes.base import ProbeContext, ProbeRecord
from storlab.probes.counters import PERF_EVENTS
from storlab.probes.stacks import METRICS, NAME, folded, profile, read_output, values
from storlab.probes.subject import Kind

FOLDED = "profile.folded"
"""The same stacks as other tools read them, those of the whole time that was watched."""


class ProfileProbe(AgentProbe):
    """Samples where CPUs are, in the kernel and in programs, as shares of their time by function, with stacks."""

    kind: ClassVar[str] = "profile"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    output: ClassVar[str] = NAME
    missing: ClassVar[str] = "the samples are missing"
    last_word: ClassVar[float] = 120.0  # addresses get their names; an emulated guest that does much else takes ten

    frequency: int = Field(99, ge=1, le=1000, description="Samples a second on each CPU.")

    def needs(self) -> Needs:
        return Needs(root="sampling what CPUs do", paths=(PERF_EVENTS,), agent=("profile",))

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        async with super().watch(context):
            yield
        if (context.raw / NAME).exists():
            await asyncio.to_thread(_fold, context.raw)  # nodes have to be listened to meanwhile

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str]:
        return ["profile", "--frequency", str(self.frequency)]

    def measured(self, record: ProbeRecord, path: Path) -> Measurements:
        output = read_output(path)
        found = profile(output, record.window.start, record.window.end)
        short = () if found.samples else ("the measured phase was too short for a sample",)
        return Measurements(
            metric_frame(values(found)),
            warnings=(*output.warnings(), *short),
            facts={"clock": output.started.clock, "frequency": output.started.frequency},
        )


def _fold(raw: Path) -> None:
    with suppress(ParseError):  # parsing it says what is wrong
        lines = folded(profile(read_output(raw / NAME)))
        (raw / FOLDED).write_text("".join(f"{line}\n" for line in lines), "utf-8")
