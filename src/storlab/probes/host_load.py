"""Probe ``host-load``: load averages, CPU by state, pressure and disk statistics of every machine, each second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.base.units import Duration
from storlab.findings.runs import TooFewSamples
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import TARGET, MetricSpec, Value, by_name
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import (
    CPU_STATES,
    TICKS,
    DiskCounters,
    added_up,
    parse_activity,
    parse_cpu,
    parse_diskstats,
    parse_loadavg,
    parse_pressure,
    parse_softirqs,
)
from storlab.probes.sampling import Snapshot, around, read_samples, sampling
from storlab.probes.subject import Kind
from storlab.tools.load_averages import LOADS

_PRESSURE = ("cpu", "io", "memory")
_SOFTIRQS = {"NET_RX": "softirqs.net_rx", "NET_TX": "softirqs.net_tx", "BLOCK": "softirqs.block"}
"""Kinds in ``/proc/softirqs`` → metrics: those that a storage's own work takes."""
_PATHS = (
    "/proc/loadavg",
    "/proc/stat",
    "/proc/softirqs",
    "/proc/diskstats",
    *(f"/proc/pressure/{what}" for what in _PRESSURE),
)

_WAITING = {"some": "some task", "full": "every task"}
_METRICS = by_name(
    [
        *LOADS,
        *(MetricSpec(f"cpu.{state}", "1", across="mean", evidence="none", domain="share") for state in CPU_STATES),
        *(
            MetricSpec(
                f"pressure.{what}.{kind}",
                "1",
                across="max",
                noun=f"of the time {whose} waited for {what}",
                domain="share",
            )
            for what in _PRESSURE
            for kind, whose in _WAITING.items()
        ),
        MetricSpec("cpu.busy.time", "s", noun="of CPU time", evidence="shared"),
        MetricSpec("cpu.kernel.time", "s", noun="of CPU time in the kernel", evidence="shared"),
        MetricSpec("interrupts", "1", noun="interrupts", evidence="shared"),
        *(MetricSpec(name, "1", noun=f"softirqs {kind}", evidence="shared") for kind, name in _SOFTIRQS.items()),
        MetricSpec("context_switches", "1", noun="context switches", evidence="shared"),
    ]
)
_IDLE, _KERNEL = ("idle", "iowait", "steal"), ("system", "irq", "softirq")
_DISK = {
    "reads": MetricSpec("disk.{disk}.reads", "1", noun="reads at the disk"),
    "writes": MetricSpec("disk.{disk}.writes", "1", noun="writes at the disk"),
    "flushes": MetricSpec("disk.{disk}.flushes", "1", noun="flushes of the disk", evidence="rare"),
    "bytes_read": MetricSpec("disk.{disk}.bytes_read", "B", quantity="bytes read", noun="read from the disk"),
    "bytes_written": MetricSpec("disk.{disk}.bytes_written", "B", quantity="bytes written", noun="written to the disk"),
    "reads_merged": MetricSpec("disk.{disk}.reads_merged", "1", noun="reads merged with others"),
    "writes_merged": MetricSpec("disk.{disk}.writes_merged", "1", noun="writes merged with others"),
    "read_time": MetricSpec("disk.{disk}.read_time", "s", noun="of waiting for reads of the disk", evidence="waited"),
    "write_time": MetricSpec(
        "disk.{disk}.write_time", "s", noun="of waiting for writes to the disk", evidence="waited"
    ),
    "flush_time": MetricSpec(
        "disk.{disk}.flush_time", "s", noun="of waiting for flushes of the disk", evidence="waited"
    ),
}
_SIZE = {
    way: MetricSpec(
        f"disk.{{disk}}.{way}_size", "B", across="merge", statistic="mean", weight=f"disk.{{disk}}.{way}s", noun=noun
    )
    for way, noun in (("read", "a read at the disk"), ("write", "a write at the disk"))
}
_UTILISATION = MetricSpec(
    "disk.{disk}.utilisation", "1", across="max", noun="of the time the disk was busy", domain="share"
)

_Names = tuple[str, ...]
_Point = tuple[float, str, float, str]  # t, metric, value, unit


class HostLoadProbe(Probe):
    """Watches each machine as a whole."""

    kind: ClassVar[str] = "host-load"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*_METRICS.values(), *_DISK.values(), *_SIZE.values(), _UTILISATION)

    in_slices: ClassVar[frozenset[str]] = frozenset(
        spec.name.format(disk=TARGET) for spec in (*_DISK.values(), *_SIZE.values())
    )

    interval: Duration = Field(1.0, gt=0, description="Between two samples.")

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return sampling(context.node, _PATHS, self.interval, context.raw)

    def parse(self, record: ProbeRecord) -> Measurements:
        window, disks = record.window, record.subject.disks or ()
        snapshots = [_Look(snapshot) for snapshot in around(read_samples(record.raw), window)]
        points = [point for before, after in pairwise(snapshots) for point in _between(before, after, disks)]
        shifted = [(None, metric, t - window.start, value, unit) for t, metric, value, unit in points]
        series = pl.DataFrame(shifted, schema=SERIES_COLUMNS, orient="row")
        warnings = list[str]()
        if len(record.subject.sharing) > 1:
            nodes = ", ".join(record.subject.sharing)
            warnings.append(f"host-load: {nodes} share one kernel, whose interrupts, softirqs and CPU time are of all")
        values = list(_totals(snapshots, disks)) if len(snapshots) > 1 else []
        few = () if len(snapshots) > 1 else (TooFewSamples(self.kind),)
        return Measurements(metrics=metric_frame(values), series=series, warnings=tuple(warnings), found=few)


class _Look:
    """One sample, each file of which is parsed once, though it is compared with the one before and the one after."""

    def __init__(self, snapshot: Snapshot) -> None:
        texts = snapshot.texts
        self.t = snapshot.t
        self.load = parse_loadavg(texts.get("/proc/loadavg", ""))
        self.cpu = parse_cpu(texts.get("/proc/stat", ""))
        self.activity = parse_activity(texts.get("/proc/stat", ""))
        self.softirqs = parse_softirqs(texts.get("/proc/softirqs", ""))
        self.disks = parse_diskstats(texts.get("/proc/diskstats", ""))
        self.pressure = {what: parse_pressure(texts.get(f"/proc/pressure/{what}", "")) for what in _PRESSURE}


def _between(before: _Look, after: _Look, disks: _Names) -> Iterator[_Point]:
    span, t = after.t - before.t, after.t
    if span <= 0:
        return
    load = after.load
    if load is not None:
        yield t, "load.1m", load[0], "1"
    for state, share in _cpu_shares(before, after).items():
        yield t, f"cpu.{state}", share, "1"
    for what, stalled in _pressure(before, after).items():
        yield t, what, min(stalled / span, 1.0), "1"
    for name, did in _disks(before, after, disks).items():
        yield t, f"disk.{name}.read.bandwidth", did.bytes_read / span, "B/s"
        yield t, f"disk.{name}.write.bandwidth", did.bytes_written / span, "B/s"
        yield t, f"disk.{name}.utilisation", min(did.busy / span, 1.0), "1"


def _totals(snapshots: Sequence[_Look], disks: _Names) -> Iterator[Value]:
    """Over the whole measured phase; load averages as they stand right after it."""
    first, last = snapshots[0], snapshots[-1]
    span = last.t - first.t
    load = last.load
    yield from (spec.value(value) for spec, value in zip(LOADS, load or (), strict=False))
    for state, share in _cpu_shares(first, last).items():
        yield _METRICS[f"cpu.{state}"].value(share)
    yield from _work(first, last)
    for what, stalled in _pressure(first, last).items():
        yield _METRICS[what].value(min(stalled / span, 1.0))
    for name, did in _disks(first, last, disks).items():
        yield from (spec.value(getattr(did, counter), disk=name) for counter, spec in _DISK.items())
        for way, requests, moved in (("read", did.reads, did.bytes_read), ("write", did.writes, did.bytes_written)):
            if requests > 0:
                yield _SIZE[way].value(moved / requests, disk=name)
        yield _UTILISATION.value(min(did.busy / span, 1.0), disk=name)


def _work(before: _Look, after: _Look) -> Iterator[Value]:
    ticks = _ticks(before, after)
    if ticks:
        busy = sum(count for state, count in ticks.items() if state not in _IDLE)
        yield _METRICS["cpu.busy.time"].value(busy / TICKS)
        yield _METRICS["cpu.kernel.time"].value(sum(ticks.get(state, 0) for state in _KERNEL) / TICKS)
    if before.activity is not None and after.activity is not None:
        names = ("interrupts", "context_switches")
        for name, old, new in zip(names, before.activity, after.activity, strict=True):
            yield _METRICS[name].value(max(new - old, 0))
    for kind, name in _SOFTIRQS.items():
        if kind in before.softirqs and kind in after.softirqs:
            yield _METRICS[name].value(max(after.softirqs[kind] - before.softirqs[kind], 0))


def _ticks(before: _Look, after: _Look) -> dict[str, int]:
    old, new = before.cpu, after.cpu
    return {state: max(new[state] - old[state], 0) for state in new if state in old}  # iowait may run backwards


def _cpu_shares(before: _Look, after: _Look) -> dict[str, float]:
    ticks = _ticks(before, after)
    total = sum(ticks.values())
    return {state: count / total for state, count in ticks.items()} if total else {}


def _pressure(before: _Look, after: _Look) -> dict[str, float]:
    stalled = {}
    for what in _PRESSURE:
        old, new = before.pressure[what], after.pressure[what]
        for kind in new.keys() & old.keys():
            stalled[f"pressure.{what}.{kind}"] = new[kind] - old[kind]
    return dict(sorted(stalled.items()))


def _disks(before: _Look, after: _Look, own: _Names) -> dict[str, DiskCounters]:
    """What each disk did between the two samples, if anything; the subject's ``own`` in any case, and as one."""
    old, new = before.disks, after.disks
    found = {
        name: new[name].since(old[name])
        for name in new.keys() & old.keys()
        if name not in own and new[name].completed > old[name].completed
    }
    if own and all(name in new and name in old for name in own):
        found[TARGET] = added_up([new[name].since(old[name]) for name in own])
    return dict(sorted(found.items()))
