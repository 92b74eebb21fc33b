"""Probe ``host-load``: load averages, CPU by state, pressure and disk statistics of every machine, each second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.measurements import SERIES_COLUMNS, Measurements, Value, metric_frame
from storlab.probes.base import Post, Probe, Where, Window
from storlab.probes.procfs import DiskCounters, parse_cpu, parse_diskstats, parse_loadavg, parse_pressure
from storlab.probes.sampling import Snapshot, around, read_samples, sampling
from storlab.units import Duration

_PRESSURE = ("cpu", "io", "memory")
_PATHS = ("/proc/loadavg", "/proc/stat", "/proc/diskstats", *(f"/proc/pressure/{what}" for what in _PRESSURE))
_TARGET = "target"  # the disk under test goes by this name: which loop device it got differs from trial to trial

_Point = tuple[float, str, float, str]  # t, metric, value, unit


class HostLoadProbe(Probe):
    """Watches each machine as a whole."""

    kind: ClassVar[str] = "host-load"
    where: ClassVar[Where] = "machines"

    interval: Duration = Field(1.0, gt=0, description="Between two samples.")

    def watch(self, post: Post) -> AbstractAsyncContextManager[None]:
        return sampling(post.node, _PATHS, self.interval, post.raw)

    def parse(self, raw: Path, window: Window, disk: str | None) -> Measurements:
        snapshots = [_Look(snapshot) for snapshot in around(read_samples(raw), window)]
        points = [point for before, after in pairwise(snapshots) for point in _between(before, after, disk)]
        shifted = [(None, metric, t - window.start, value, unit) for t, metric, value, unit in points]
        series = pl.DataFrame(shifted, schema=SERIES_COLUMNS, orient="row")
        warnings = () if len(snapshots) > 1 else ("host-load: too few samples in the measured phase",)
        values = list(_totals(snapshots, disk)) if len(snapshots) > 1 else []
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


def _between(before: _Look, after: _Look, disk: str | None) -> Iterator[_Point]:
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
    for name, (old, new) in _busy_disks(before, after, disk).items():
        yield t, f"disk.{name}.read.bandwidth", (new.bytes_read - old.bytes_read) / span, "B/s"
        yield t, f"disk.{name}.write.bandwidth", (new.bytes_written - old.bytes_written) / span, "B/s"
        yield t, f"disk.{name}.utilisation", min((new.busy - old.busy) / span, 1.0), "1"


def _totals(snapshots: Sequence[_Look], disk: str | None) -> Iterator[Value]:
    """Over the whole measured phase; load averages as they stand right after it."""
    first, last = snapshots[0], snapshots[-1]
    span = last.t - first.t
    load = last.load
    for name, value in zip(("load.1m", "load.5m", "load.15m"), load or (), strict=False):
        yield Value(name, value, "1", "neither", "max")
    for state, share in _cpu_shares(first, last).items():
        yield Value(f"cpu.{state}", share, "1", "neither", "mean")
    for what, stalled in _pressure(first, last).items():
        yield Value(what, min(stalled / span, 1.0), "1", "neither", "max")
    for name, (old, new) in _busy_disks(first, last, disk).items():
        yield Value(f"disk.{name}.reads", new.reads - old.reads, "1")
        yield Value(f"disk.{name}.writes", new.writes - old.writes, "1")
        yield Value(f"disk.{name}.flushes", new.flushes - old.flushes, "1")
        yield Value(f"disk.{name}.bytes_read", new.bytes_read - old.bytes_read, "B")
        yield Value(f"disk.{name}.bytes_written", new.bytes_written - old.bytes_written, "B")
        yield Value(f"disk.{name}.utilisation", min((new.busy - old.busy) / span, 1.0), "1", "neither", "max")


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


def _busy_disks(before: _Look, after: _Look, disk: str | None) -> dict[str, tuple[DiskCounters, DiskCounters]]:
    """The disks that did anything between the two samples, and the one under test in any case."""
    old, new = before.disks, after.disks
    busy = {}
    for name in new.keys() & old.keys():
        if name == disk or new[name].completed > old[name].completed:
            busy[_TARGET if name == disk else name] = (old[name], new[name])
    return dict(sorted(busy.items()))
