"""Probe ``stalls``: the longest time with no completed I/O, and the sum of such times above a threshold.

Counted at the disk under test, every 50 ms, so a stall is known to within twice that. Times without a completion in
which nothing was in flight either are idleness of the load, not a stall of the storage, and are told apart. How
late the agent's own ticks came shows when the whole machine stood still. What the workload itself saw is among its
own metrics, where it keeps such a log (fio does).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from storlab.measurements import Measurements, Value, metric_frame
from storlab.probes.base import Post, Probe, Window
from storlab.probes.procfs import parse_disk_stat
from storlab.probes.sampling import read_samples, sampling
from storlab.units import Duration


class StallsProbe(Probe):
    """Watches the disk under test of each node."""

    kind: ClassVar[str] = "stalls"

    threshold: Duration = Field(1.0, description="Times without completed I/O that are longer are summed up.")
    interval: Duration = Field(0.05, gt=0, description="Between two looks.")

    def watch(self, post: Post) -> AbstractAsyncContextManager[None]:
        if post.disk is None:
            return nullcontext()
        return sampling(post.node, [_path(post.disk)], self.interval, post.raw)

    def parse(self, raw: Path, window: Window, disk: str | None) -> Measurements:
        if disk is None:
            return Measurements(warnings=("stalls: there is no disk beneath whose counters could be watched",))
        looks = []
        ticks = []
        for snapshot in read_samples(raw):
            counters = parse_disk_stat(snapshot.texts.get(_path(disk), ""))
            if window.start <= snapshot.t <= window.end and counters is not None:
                looks.append(Look(snapshot.t, counters.completed, counters.in_flight))
                ticks.append(snapshot.late)
        if len(looks) < 2:
            return Measurements(warnings=("stalls: the measured phase was too short to watch",))
        stalls = find_stalls(looks)
        idle = [s.length for s in stalls if not s.waiting]
        waited = [s.length for s in stalls if s.waiting]
        over = [length for length in waited if length > self.threshold]
        values = [
            Value("stall.longest", max(waited, default=0.0), "s", "lower", "max"),
            Value("stall.total", sum(over), "s", "lower", "sum"),
            Value("stall.count", len(over), "1", "lower", "sum"),
            Value("idle.longest", max(idle, default=0.0), "s", "neither", "max"),
            Value("machine.stall.longest", max(ticks), "s", "lower", "max"),
        ]
        return Measurements(metrics=metric_frame(values))


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


def find_stalls(looks: Sequence[Look]) -> list[Stall]:
    """All times in which no operation completed, from the look after the last completion to the next change."""
    stalls: list[Stall] = []
    start: Look | None = None
    waiting = True
    for before, after in pairwise(looks):
        if after.completed != before.completed:
            start = None
            continue
        if start is None:
            start, waiting = before, before.in_flight > 0
            stalls.append(Stall(before.t, 0.0, waiting))
        waiting = waiting and after.in_flight > 0
        stalls[-1] = Stall(start.t, after.t - start.t, waiting)
    return stalls


def _path(disk: str) -> str:
    return f"/sys/class/block/{disk}/stat"
