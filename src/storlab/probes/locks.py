"""Probe ``locks``: who waits for the kernel's locks, how often and how long, counted in the kernel.

The agent's program (``docs/reference/locks-output.md``) counts every wait that the kernel reports, from before the load
starts until it has ended. Nothing is sampled. The kernel tells no waits of one node of those of another, so it watches
each machine once.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from pydantic import Field, field_validator

from storlab.locks.agent_output import read_output
from storlab.locks.groups import MOST_GROUPS, Groups, check_groups
from storlab.locks.metrics import GROUP, METRICS, histograms, values
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Specs
from storlab.nodes.needs import Needs
from storlab.probes.agent_program import agent_program
from storlab.probes.alignment.probe import read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import Kind
from storlab.reach import OwnName, Pattern

NAME = "locks.jsonl"
"""What the agent's program printed."""

_DECLARED = Specs(METRICS)


class LocksProbe(Probe):
    """Counts waits for the kernel's locks by type of lock and by the function that waits, by eBPF."""

    kind: ClassVar[str] = "locks"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS

    groups: dict[OwnName, tuple[Pattern, ...]] = Field(
        {},
        max_length=MOST_GROUPS,
        description="Groups of functions whose waits are added up, by name: patterns of whole names, in which `*` "
        "stands for any characters. A function belongs to the first group that has it.",
    )

    @field_validator("groups")
    @classmethod
    def _can_be_matched(cls, value: Groups) -> Groups:
        check_groups(value)
        return value

    def needs(self) -> Needs:
        return Needs(root="tracing locks", agent=("locks",))

    def declares(self) -> tuple[MetricSpec, ...]:
        families = [spec.name for spec in METRICS if spec.word == GROUP]
        members = [_DECLARED.find(name.format(group=group)) for group in self.groups for name in families]
        return (*members, *(spec for spec in METRICS if spec.word != GROUP))

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return agent_program(context, self.kind, ["locks"], NAME)

    def parse(self, record: ProbeRecord) -> Measurements:
        notes = read_notes(record.raw)
        if not (record.raw / NAME).exists():
            return Measurements(warnings=notes or ("locks: the tracer's counts are missing",))
        output = read_output(record.raw / NAME)
        return Measurements(
            metrics=metric_frame(values(output.counts, self.groups)),
            histograms=histograms(output.counts),
            warnings=(*notes, *(f"locks: {each}" for each in output.warnings())),
        )
