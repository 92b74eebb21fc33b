"""Probe ``locks``: who waits for the kernel's locks, how often and how long, counted in the kernel.

The agent's program (``docs/reference/locks-output.md``) counts every wait that the kernel reports, from before the load
starts until it has ended. Nothing is sampled. The kernel tells no waits of one node of those of another, so it watches
each machine once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from storlab.base.reach import OwnName, Pattern
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Specs, Value
from storlab.nodes.needs import Needs
from storlab.probes.agent import AgentProbe
from storlab.probes.base import ProbeContext, ProbeRecord, Seen, sums
from storlab.probes.locks.metrics import (
    GROUP,
    METRICS,
    MOST_GROUPS,
    PER_OPERATION,
    SHARES,
    Groups,
    check_groups,
    histograms,
    read_output,
    values,
)
from storlab.probes.subject import Kind

_DECLARED = Specs(METRICS)


class LocksProbe(AgentProbe):
    """Counts waits for the kernel's locks by type of lock and by the function that waits, by eBPF."""

    kind: ClassVar[str] = "locks"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    output: ClassVar[str] = "locks.jsonl"
    missing: ClassVar[str] = "the tracer's counts are missing"

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

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str]:
        return ["locks"]

    def measured(self, record: ProbeRecord, path: Path) -> Measurements:
        output = read_output(path)
        return Measurements(
            metric_frame(values(output.counts, self.groups)),
            histograms=histograms(output.counts),
            warnings=output.warnings(),
        )

    def derive(self, seen: Seen) -> Iterator[Value]:
        """Which share of what all groups waited each group has, and waits for each operation of the loads."""
        found = [(*_family(name), value) for name, value in sums(seen.nodes).items()]
        for share, spec in SHARES.items():
            of_groups = {word[GROUP]: value for family, word, value in found if family == share}
            if total := sum(of_groups.values()):
                yield from (spec.value(value / total, group=group) for group, value in of_groups.items())
        for family, word, value in found if seen.operations is not None else ():
            if family in PER_OPERATION:
                yield PER_OPERATION[family].value(value / (seen.operations or 1), **word)


def _family(name: str) -> tuple[str, dict[str, str]]:
    of = _DECLARED.find(name)
    if not of.family:
        return name, {}
    return name.removesuffix(of.subject) + f"{{{of.family}}}", {of.family: of.subject}
