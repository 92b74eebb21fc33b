"""Probe ``stalls``: the longest time with no completed I/O, and the sum of such times above a threshold.

Counted at each disk under test, and underneath those of other nodes, every 50 ms, so a stall is known to within twice
that. Times without a completion in which nothing was in flight either are idleness of the load, not a stall of the
storage, and are told apart. How late the agent's own ticks came shows when the whole machine stood still. What the
workload itself saw is among its own metrics, where it keeps such a log (fio does).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from pydantic import Field

from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import disk_stat_path, parse_disk_stat
from storlab.probes.sampling import Snapshot, read_samples, sampling
from storlab.probes.subject import Kind
from storlab.units import Duration

_METRICS = (
    MetricSpec("stall.longest", "s", "lower", "max", tail=True, noun="for the longest stall of the disk"),
    MetricSpec("stall.total", "s", "lower", noun="of stalls of the disk"),
    MetricSpec("stall.count", "1", "lower", noun="stalls of the disk"),
    MetricSpec("idle.longest", "s", across="max", noun="for the longest time without a request"),
    MetricSpec("machine.stall.longest", "s", "lower", "max", tail=True, evidence="none"),
)


class StallsProbe(Probe):
    """Watches the disk under test of each node, and the disks that those of other nodes lie on."""

    kind: ClassVar[str] = "stalls"
    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = _METRICS

    threshold: Duration = Field(1.0, description="Gaps without completed I/O that are longer than this are added up.")
    interval: Duration = Field(0.05, gt=0, description="Between two looks.")

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        if not context.subject.disks:
            return nullcontext()
        paths = [disk_stat_path(disk) for disk in context.subject.disks]
        return sampling(context.node, paths, self.interval, context.raw)

    def parse(self, record: ProbeRecord) -> Measurements:
        if not record.subject.disks:
            return Measurements(warnings=("stalls: there is no underlying disk whose counters could be watched",))
        window = record.window
        inside = [each for each in read_samples(record.raw) if window.start <= each.t <= window.end]
        by_disk = [looks for disk in record.subject.disks if len(looks := looks_at(inside, disk)) > 1]
        if not by_disk:
            return Measurements(warnings=("stalls: the measured phase was too short to watch",))
        stalls = [stall for looks in by_disk for stall in find_stalls(looks)]
        idle = [s.length for s in stalls if not s.waiting]
        waited = [s.length for s in stalls if s.waiting]
        over = [length for length in waited if length > self.threshold]
        late = max(each.late for each in inside)
        found = (max(waited, default=0.0), sum(over), len(over), max(idle, default=0.0), late)
        return Measurements(metric_frame(spec.value(value) for spec, value in zip(_METRICS, found, strict=True)))


@dataclass(frozen=True)
class Look:
    """One look at a disk: when (s), operations completed since boot, operations in flight."""

    t: float
    completed: int
    in_flight: int


@dataclass(frozen=True)
class Stall:
    """A time without a completion (s); ``waiting``: something was in flight at every look within it."""

    start: float
    length: float
    waiting: bool


def looks_at(snapshots: Sequence[Snapshot], disk: str) -> list[Look]:
    """What the samples show of a disk."""
    found = ((each.t, parse_disk_stat(each.texts.get(disk_stat_path(disk), ""))) for each in snapshots)
    return [Look(t, counters.completed, counters.in_flight) for t, counters in found if counters is not None]


def find_stalls(looks: Sequence[Look]) -> list[Stall]:
    """All times in which no operation completed, from the look after the last completion to the next change.

    Where the load made its next request in such a time, and none was in flight before it, these are two.
    """
    stalls: list[Stall] = []
    stands = False  # whether the last one goes on
    for before, after in pairwise(looks):
        if after.completed != before.completed:
            stands = False
            continue
        waiting = before.in_flight > 0 and after.in_flight > 0
        if not stands or stalls[-1].waiting != waiting:
            stalls.append(Stall(before.t, 0.0, waiting))
        stalls[-1] = replace(stalls[-1], length=after.t - stalls[-1].start)
        stands = True
    return stalls
