"""Probes of disks by the kernel's counters: ``stalls``, and what is written underneath other nodes.

The latter, in every run, is counted from before the load until all that it wrote was down, so nothing hides in a cache,
in an ARC or in a transaction group. Counts, which noise hardly touches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import ClassVar

from pydantic import Field

from storlab.base.errors import ParseError
from storlab.base.units import Duration
from storlab.findings.runs import TooFewSamples
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import BACKING as KIND
from storlab.metrics import MetricSpec
from storlab.nodes.agent import steps
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import added_up, disk_stat_path, parse_disk_stat
from storlab.probes.sampling import NAME, Snapshot, read_samples, samples_file, sampling, take_sample
from storlab.probes.subject import End, Kind

# What a pool holds back in memory until its transaction group ends, sync(1) does not always write: ``zpool sync`` does.
_SYNC_POOLS = "if command -v zpool >/dev/null; then zpool sync; fi"


_METRICS = (
    MetricSpec("backing.write.bytes", "B", quantity="bytes written", noun="written to the disks underneath"),
    MetricSpec("backing.writes", "1", noun="writes to the disks underneath"),
    MetricSpec("backing.flushes", "1", noun="flushes of the disks underneath", evidence="rare"),
    MetricSpec("backing.read.bytes", "B", quantity="bytes read", noun="read from the disks underneath"),
    MetricSpec("backing.reads", "1", noun="reads from the disks underneath"),
    MetricSpec("backing.drain", "s", "lower", "max", noun="from the end of the load until all was written"),
)


class BackingProbe(Probe):
    """Counts before the load, drains after it, and counts again."""

    kind: ClassVar[str] = KIND
    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = _METRICS

    def watches_at(self, end: End, kinds: Collection[Kind]) -> bool:
        return end == "below" and super().watches_at(end, kinds)

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        paths = [disk_stat_path(disk) for disk in context.subject.disks or ()]
        with samples_file(context.raw, paths) as file:
            await take_sample(context.node, paths, file)
            yield
            _, zfs = await context.node.carry_out(steps.sync(), steps.look("/sys/module/zfs"), go_on=True)
            if zfs.there:
                await context.node.run(["sh", "-c", _SYNC_POOLS], check=False)
            await take_sample(context.node, paths, file)

    def parse(self, record: ProbeRecord) -> Measurements:
        looks = read_samples(record.raw)
        if len(looks) != 2:
            raise ParseError("counters were not read both before the load and after it", str(record.raw / NAME))
        if not record.subject.disks:
            return Measurements()
        disks = []
        for disk in record.subject.disks:
            before, after = (parse_disk_stat(look.texts.get(disk_stat_path(disk), "")) for look in looks)
            if before is None or after is None or after.completed < before.completed:
                raise ParseError(f"there are no counters of {disk}", str(record.raw / NAME))
            disks.append(after.since(before))
        did = added_up(disks)
        drain = max(looks[1].t - record.window.end, 0.0)
        found = (did.bytes_written, did.writes, did.flushes, did.bytes_read, did.reads, drain)
        return Measurements(metric_frame(spec.value(value) for spec, value in zip(_METRICS, found, strict=True)))


BACKING = BackingProbe()
"""It has no options."""


# Probe ``stalls``: the longest time with no completed I/O, and the sum of such times above a threshold.
#
# Counted at each disk under test, and underneath those of other nodes, every 50 ms, so a stall is known to within
# twice that. Times without a completion in which nothing was in flight either are idleness of the load, not a stall
# of the storage, and are told apart. What the workload itself saw is among its own metrics, where it keeps such a
# log, as fio does.
#
# The whole machine stood still where no look came, which shows in two ways. If its clock went on, two looks are
# further apart on that clock. If its clock stood still as well, as it does in a guest whose QEMU is paused, only the
# controller notices: from then on, all looks come later by that time. A controller that is itself late does not
# count, since later looks of the machine come in time again.

_STALLS = (
    MetricSpec("stall.longest", "s", "lower", "max", tail=True, noun="for the longest stall of the disk"),
    MetricSpec("stall.total", "s", "lower", noun="of stalls of the disk"),
    MetricSpec("stall.count", "1", "lower", noun="stalls of the disk"),
    MetricSpec("idle.longest", "s", across="max", noun="for the longest time without a request"),
    MetricSpec("machine.stall.longest", "s", "lower", "max", tail=True, evidence="none"),
    MetricSpec("machine.stall.total", "s", "lower", evidence="none"),
)


class StallsProbe(Probe):
    """Watches the disk under test of each node, and the disks that those of other nodes lie on."""

    kind: ClassVar[str] = "stalls"
    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = _STALLS

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
        samples = read_samples(record.raw)
        inside = [each for each in samples if window.start <= each.t <= window.end]
        by_disk = [looks for disk in record.subject.disks if len(looks := looks_at(inside, disk)) > 1]
        if not by_disk:
            return Measurements(found=(TooFewSamples(self.kind),))
        stalls = [stall for looks in by_disk for stall in find_stalls(looks)]
        idle = [s.length for s in stalls if not s.waiting]
        waited = [s.length for s in stalls if s.waiting]
        over = [length for length in waited if length > self.threshold]
        still = [length for at, length in stood_still(samples, self.threshold) if window.start <= at <= window.end]
        longest = max(max(each.late for each in inside), *still, 0.0)
        found = (max(waited, default=0.0), sum(over), len(over), max(idle, default=0.0), longest, sum(still))
        return Measurements(metric_frame(spec.value(value) for spec, value in zip(_STALLS, found, strict=True)))


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


def stood_still(samples: Sequence[Snapshot], threshold: float) -> list[tuple[float, float]]:
    """The times longer than ``threshold`` in which a machine stood still: when they ended, on its clock, and how long.

    What a look is late by at least is the least that it or any later one is late by, as seen by the controller.
    """
    delays = [each.seen - each.t for each in samples]
    least = list(accumulate(reversed(delays), min))[::-1]
    found = []
    for at, (before, after) in enumerate(pairwise(samples), start=1):
        apart, stopped = after.t - before.t, least[at] - least[at - 1]
        length = apart + stopped if stopped > threshold else apart  # never where ``seen`` is not known
        if length > threshold:
            found.append((after.t, length))
    return found


def looks_at(snapshots: Sequence[Snapshot], disk: str) -> list[Look]:
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
