"""Probe ``host-load``: load averages, CPU by state, pressure and disk statistics of every machine, each second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value, by_name
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import (
    CPU_STATES,
    DiskCounters,
    added_up,
    parse_cpu,
    parse_diskstats,
    parse_loadavg,
    parse_pressure,
)
from storlab.probes.sampling import Snapshot, around, read_samples, sampling
from storlab.probes.subject import Kind
from storlab.units import Duration

_PRESSURE = ("cpu", "io", "memory")
_PATHS = ("/proc/loadavg", "/proc/stat", "/proc/diskstats", *(f"/proc/pressure/{what}" for what in _PRESSURE))
TARGET = "target"  # the subject's disks go by this name: which loop device one got differs from trial to trial

_LOADS = tuple(MetricSpec(f"load.{span}", "1", across="max") for span in ("1m", "5m", "15m"))
_METRICS = by_name(
    [
        *_LOADS,
        *(MetricSpec(f"cpu.{state}", "1", across="mean") for state in CPU_STATES),
        *(MetricSpec(f"pressure.{what}.{kind}", "1", across="max") for what in _PRESSURE for kind in ("some", "full")),
    ]
)
_DISK = {
    "reads": MetricSpec("disk.{disk}.reads", "1"),
    "writes": MetricSpec("disk.{disk}.writes", "1"),
    "flushes": MetricSpec("disk.{disk}.flushes", "1"),
    "bytes_read": MetricSpec("disk.{disk}.bytes_read", "B", quantity="bytes read"),
    "bytes_written": MetricSpec("disk.{disk}.bytes_written", "B", quantity="bytes written"),
}
_UTILISATION = MetricSpec("disk.{disk}.utilisation", "1", across="max")

_Names = tuple[str, ...]
_Point = tuple[float, str, float, str]  # t, metric, value, unit


class HostLoadProbe(Probe):
    """Watches each machine as a whole."""

    kind: ClassVar[str] = "host-load"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*_METRICS.values(), *_DISK.values(), _UTILISATION)

    in_slices: ClassVar[frozenset[str]] = frozenset(spec.name.format(disk=TARGET) for spec in _DISK.values())

    interval: Duration = Field(1.0, gt=0, description="Between two samples.")

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return sampling(context.node, _PATHS, self.interval, context.raw)

    def parse(self, record: ProbeRecord) -> Measurements:
        window, disks = record.window, record.subject.disks or ()
        snapshots = [_Look(snapshot) for snapshot in around(read_samples(record.raw), window)]
        points = [point for before, after in pairwise(snapshots) for point in _between(before, after, disks)]
        shifted = [(None, metric, t - window.start, value, unit) for t, metric, value, unit in points]
        series = pl.DataFrame(shifted, schema=SERIES_COLUMNS, orient="row")
        warnings = () if len(snapshots) > 1 else ("host-load: too few samples in the measured phase",)
        values = list(_totals(snapshots, disks)) if len(snapshots) > 1 else []
        return Measurements(metrics=metric_frame(values), series=series, warnings=warnings)


class _Look:
    """One sample, each file of which is parsed once, though it is compared with the one before and the one after."""

    def __init__(self, snapshot: Snapshot) -> None:
        texts = snapshot.texts
        self.t = snapshot.t
        self.load = parse_loadavg(texts.get("/proc/loadavg", ""))
        self.cpu = parse_cpu(texts.get("/proc/stat", ""))
        self.disks = parse_diskstats(texts.get("/proc/diskstats", ""))
        self.pressure = {what: parse_pressure(texts.get(f"/proc/pressure/{what}", "")) for what in _PRESSURE}


def _between(before: _Look, after: _Look, disks: _Names) -> Iterator[_Point]:
    """What happened between two samples, as rates and shares, at the later one's time."""
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
    yield from (spec.value(value) for spec, value in zip(_LOADS, load or (), strict=False))
    for state, share in _cpu_shares(first, last).items():
        yield _METRICS[f"cpu.{state}"].value(share)
    for what, stalled in _pressure(first, last).items():
        yield _METRICS[what].value(min(stalled / span, 1.0))
    for name, did in _disks(first, last, disks).items():
        yield from (spec.value(getattr(did, counter), disk=name) for counter, spec in _DISK.items())
        yield _UTILISATION.value(min(did.busy / span, 1.0), disk=name)


def _cpu_shares(before: _Look, after: _Look) -> dict[str, float]:
    old, new = before.cpu, after.cpu
    ticks = {state: max(new[state] - old[state], 0) for state in new if state in old}  # iowait may run backwards
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
