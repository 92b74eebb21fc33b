"""Probe ``locks``: who waits for the kernel's locks, how often and how long, counted in the kernel.

The agent's program (``docs/reference/locks-output.md``) counts every wait that the kernel reports, from before the load
starts until it has ended. Nothing is sampled. The kernel tells no waits of one node of those of another, so it watches
each machine once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from storlab.locks.agent_output import read_output
from storlab.locks.metrics import METRICS, histograms, values
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.probes.agent_program import agent_program
from storlab.probes.alignment.probe import read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import Kind

NAME = "locks.jsonl"
"""What the agent's program printed."""


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

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return agent_program(context, self.kind, ["locks"], NAME)
