"""Probe ``profile``: where the CPUs of a machine are, sampled with their stacks, as shares by function.

At each tick of each CPU's software clock, 99 times a second, the agent's program (``docs/reference/profile-output.md``)
notes the stack in the kernel and in the program. Shares are estimates from samples: their error within a trial is that
of counts, and between rounds they are compared like any other metric.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from storlab.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.probes.agent_program import agent_program
from storlab.probes.alignment.probe import read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.counters.probe import PERF_EVENTS
from storlab.probes.subject import Kind
from storlab.profiling.agent_output import NAME, read_output
from storlab.profiling.shares import METRICS, folded, profile, values

FOLDED = "profile.folded"
"""The same stacks as other tools read them, those of the whole time that was watched."""

_NAMES = 120.0  # s, within which addresses get their names; an emulated guest that does much else takes ten


class ProfileProbe(Probe):
    """Samples where CPUs are, in the kernel and in programs, as shares of their time by function, with stacks."""

    kind: ClassVar[str] = "profile"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS

    frequency: int = Field(99, ge=1, le=1000, description="Samples a second on each CPU.")

    def needs(self) -> Needs:
        return Needs(root="sampling what CPUs do", paths=(PERF_EVENTS,), agent=("profile",))

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        words = ["profile", "--frequency", str(self.frequency)]
        async with agent_program(context, self.kind, words, NAME, last_word=_NAMES):
            yield
        if (context.raw / NAME).exists():
            await asyncio.to_thread(_fold, context.raw)  # nodes have to be listened to meanwhile

    def parse(self, record: ProbeRecord) -> Measurements:
        notes = read_notes(record.raw)
        if not (record.raw / NAME).exists():
            return Measurements(warnings=notes or ("profile: the samples are missing",))
        output = read_output(record.raw / NAME)
        found = profile(output, record.window.start, record.window.end)
        warnings = [*notes, *(f"profile: {each}" for each in output.warnings())]
        if not found.samples:
            warnings.append("profile: the measured phase was too short for a sample")
        return Measurements(
            metrics=metric_frame(values(found)),
            warnings=tuple(warnings),
            facts={"clock": output.started.clock, "frequency": output.started.frequency},
        )


def _fold(raw: Path) -> None:
    with suppress(ParseError):  # parsing it says what is wrong
        lines = folded(profile(read_output(raw / NAME)))
        (raw / FOLDED).write_text("".join(f"{line}\n" for line in lines), "utf-8")
