"""What is written to the disks that the storage of other nodes lies on: in every run, whatever its study watches.

Counted from before the load until all that it wrote was down, so nothing hides in a cache, in an ARC or in a
transaction group. Counts, which noise hardly touches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import ClassVar

from storlab.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import BACKING as KIND
from storlab.metrics import MetricSpec
from storlab.nodes.agent import steps
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import added_up, disk_stat_path, parse_disk_stat
from storlab.probes.sampling import NAME, read_samples, samples_file, take_sample
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
