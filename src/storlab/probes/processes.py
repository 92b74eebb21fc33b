"""Probe ``processes``: CPU time and memory of each guest's QEMU, and of each server that Storlab runs, each second.

What a guest costs its host: apart from the guest's own work there is emulation of its devices, and, without KVM, of its
CPU too. A node that runs neither has nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.base.units import Duration
from storlab.findings.runs import TooFewSamples
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import is_number, parse_cgroup_cpu, parse_process_stat, parse_resident
from storlab.probes.sampling import Snapshot, around, read_samples, sampling
from storlab.probes.subject import Kind, ProcessGroup

_METRICS = {
    role: (
        MetricSpec(f"{role}.{{name}}.cpu", "1", of=role, statistic="cpu", evidence="none"),
        MetricSpec(f"{role}.{{name}}.memory", "B", across="max", of=role, statistic="memory", evidence="none"),
        MetricSpec(f"{role}s.cpu", "1", noun=f"of CPU time of {whose}", evidence="busy"),
    )
    for role, whose in (("guest", "the guests' QEMUs"), ("server", "the servers"))
}


class ProcessesProbe(Probe):
    """Watches the QEMU process of each guest, and the processes of each server."""

    kind: ClassVar[str] = "processes"
    watches: ClassVar[frozenset[Kind]] = frozenset({"processes"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*_METRICS["guest"], *_METRICS["server"])

    interval: Duration = Field(1.0, gt=0, description="Between two samples.")

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        groups = context.subject.processes.values()
        paths = [path for group in groups for path in (_stat(group), _status(group), *_of_cgroup(group))]
        return sampling(context.node, paths, self.interval, context.raw) if paths else nullcontext()

    def parse(self, record: ProbeRecord) -> Measurements:
        groups, window = record.subject.processes, record.window
        if not groups:
            return Measurements()
        snapshots = around(read_samples(record.raw), window)
        values: list[Value] = []
        series: list[tuple[None, str, float, float, str]] = []
        warnings, few = list[str](), list[TooFewSamples]()
        cpus: dict[str, list[float]] = {}
        for name, group in groups.items():
            looks, whose = find_looks(snapshots, group), f"{name}'s QEMU" if group.role == "guest" else f"server {name}"
            if len(looks) < 2:
                few.append(TooFewSamples(self.kind, whose))
                continue
            if looks[-1].t < min(snapshots[-1].t, window.end):
                after = looks[-1].t - window.start
                warnings.append(f"processes: {whose} was gone {after:.1f} s after the measured phase began")
            cpu, memory, _ = _METRICS[group.role]
            cpus.setdefault(group.role, []).append(_cpus(looks[0], looks[-1]))
            values.append(cpu.value(cpus[group.role][-1], name=name))
            values.append(memory.value(looks[-1].resident, name=name))
            for before, now in pairwise(looks):
                series.append((None, values[-2].metric, now.t - window.start, _cpus(before, now), "1"))
        values += [_METRICS[role][-1].value(math.fsum(each)) for role, each in cpus.items()]
        frame = pl.DataFrame(series, schema=SERIES_COLUMNS, orient="row")
        return Measurements(metrics=metric_frame(values), series=frame, warnings=tuple(warnings), found=tuple(few))


@dataclass(frozen=True)
class Look:
    """One look at a group: when, CPU time so far (both in s), resident bytes."""

    t: float
    cpu_time: float
    resident: int


def find_looks(snapshots: Sequence[Snapshot], group: ProcessGroup) -> list[Look]:
    """What ``snapshots`` show of it, as long as its first process is there, and is the one that was there first.

    Where the kernel counts for the whole cgroup, that is taken, and else what the first process used.
    """
    looks: list[Look] = []
    begun: int | None = None
    for snapshot in snapshots:
        stat = parse_process_stat(snapshot.texts.get(_stat(group), ""))
        resident = parse_resident(snapshot.texts.get(_status(group), ""))
        if stat is None or resident is None or stat.state in "ZX":  # a zombie has no memory either
            continue
        if begun is not None and stat.begun != begun:
            break  # another process, which got the same id
        begun = stat.begun
        cpu, memory = (snapshot.texts.get(path, "") for path in _of_cgroup(group) or ("", ""))
        whole = parse_cgroup_cpu(cpu)
        if not looks or snapshot.t > looks[-1].t:
            cpu_time = stat.cpu_time if whole is None else whole
            looks.append(Look(snapshot.t, cpu_time, int(memory) if is_number(memory.strip()) else resident))
    return looks


def _cpus(before: Look, after: Look) -> float:
    """CPUs kept busy between two looks: 1.0 is one of them all the time."""
    return max(after.cpu_time - before.cpu_time, 0.0) / (after.t - before.t)


def _stat(group: ProcessGroup) -> str:
    return f"/proc/{group.pid}/stat"


def _status(group: ProcessGroup) -> str:
    return f"/proc/{group.pid}/status"


def _of_cgroup(group: ProcessGroup) -> tuple[str, ...]:
    return () if group.cgroup is None else (f"{group.cgroup}/cpu.stat", f"{group.cgroup}/memory.current")
