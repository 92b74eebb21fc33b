"""Probe ``counters``: what the kernel's and the CPUs' own counters say of a machine, and of the loads alone.

Cycles, instructions and misses of the last cache are counted by the CPU's performance monitoring unit, which most
virtual machines lack; the rest by the kernel, everywhere. A load's own counts begin when its program is executed and
end with the last of its processes, as with perf-stat(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.agent.events import Counted, CounterName
from storlab.nodes.needs import Needs
from storlab.probes.agent_program import agent_program
from storlab.probes.alignment.probe import read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.counters.output import Sample, read_loads, read_output
from storlab.probes.sampling import around
from storlab.probes.subject import Kind
from storlab.units import Duration

NAME = "counters.jsonl"
"""What the agent's program printed."""

PERF_EVENTS = "/proc/sys/kernel/perf_event_paranoid"
"""A kernel that has perf events has this file: perf_event_open(2)."""

_NOUNS: Mapping[CounterName, str] = {
    "cycles": "CPU cycles",
    "instructions": "instructions",
    "llc_misses": "misses of the last cache",
    "context_switches": "context switches",
    "migrations": "migrations to another CPU",
    "page_faults": "page faults",
}
_REPEATED = ("context_switches",)  # host-load has the same of the machine
LOAD = {
    "task_clock": MetricSpec("load.cpu.time", "s", noun="of CPU time of the load"),
    **{name: MetricSpec(f"load.{name}", "1", noun=f"{noun} of the load") for name, noun in _NOUNS.items()},
}
"""Counter → the metric of the loads alone."""
MACHINE = {
    name: MetricSpec(name, "1", noun=noun, evidence="none" if name in _REPEATED else "shared")
    for name, noun in _NOUNS.items()
}
"""Counter → the metric of the whole machine."""
BUSY = MetricSpec("cpu.time", "s", noun="of CPU time", evidence="none")  # host-load has the same
_PER_CYCLE = {
    "load.": MetricSpec(
        "load.instructions.per-cycle", "1", "higher", "mean", noun="instructions of the load per cycle"
    ),
    "": MetricSpec("instructions.per-cycle", "1", "higher", "mean", noun="instructions per cycle"),
}
PER_OPERATION = {
    spec.name: MetricSpec(f"{spec.name}.per-operation", spec.unit, "lower", "none", evidence="none")
    for spec in (*LOAD.values(), *MACHINE.values(), BUSY)
}
"""Metric → the same for each operation of the loads: ``storlab.records.derived.per_cpu``."""
PER_CORE = MetricSpec("iops.per-busy-core", "1/s", "higher", "none", evidence="none")
"""Operations for each second in which a CPU of the machine was busy, whatever it was busy with."""


class CountersProbe(Probe):
    """Counts cycles, instructions, cache misses, context switches, migrations and page faults by perf events."""

    kind: ClassVar[str] = "counters"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    begins_last: ClassVar[bool] = True
    counts_loads: ClassVar[bool] = True
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        *LOAD.values(), *MACHINE.values(), BUSY, *_PER_CYCLE.values(), *PER_OPERATION.values(), PER_CORE,
    )  # fmt: skip

    interval: Duration = Field(1.0, ge=0.01, le=3600, description="Between two samples of the machine's counters.")

    hardware: bool = Field(
        False,
        description="Whether cells are unsupported on a machine without hardware counters, not measured without "
        "cycles, instructions and cache misses.",
    )

    def needs(self) -> Needs:
        program = "counters --hardware" if self.hardware else "counters"
        return Needs(root="counting what all processes do", paths=(PERF_EVENTS,), agent=(program,))

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return agent_program(context, self.kind, ["counters", "--interval", f"{self.interval:.6f}"], NAME)

    def parse(self, record: ProbeRecord) -> Measurements:
        notes, loads = list(read_notes(record.raw)), read_loads(record.raw)
        without = dict(reason for each in loads for reason in each.without.items())
        values, points = list(_of_loads(loads)), list[tuple[None, str, float, float, str]]()
        if (record.raw / NAME).exists():
            output = read_output(record.raw / NAME)
            without |= output.started.without
            samples = around(output.samples, record.window)
            if len(samples) < 2:
                notes.append("counters: too few samples in the measured phase")
            else:
                values += _between(samples[0], samples[-1])
                points = list(_series(samples, record.window.start))
        return Measurements(
            metrics=metric_frame(values),
            series=pl.DataFrame(points, schema=SERIES_COLUMNS, orient="row"),
            warnings=(*notes, *_uncounted(without)),
            facts={"without": dict(sorted(without.items()))} if without else {},
        )


def _of_loads(loads: Sequence[Counted]) -> Iterator[Value]:
    """What all of them together did; nothing of what was not counted of one of them."""
    sums = {
        name: sum(each.counts[name] for each in loads) for name in LOAD if all(name in each.counts for each in loads)
    }
    for name, spec in LOAD.items() if loads else ():
        if name in sums:
            yield spec.value(sums[name] / 1e9 if name == "task_clock" else sums[name])
    if loads and sums.get("cycles") and "instructions" in sums:
        yield _PER_CYCLE["load."].value(sums["instructions"] / sums["cycles"])


def _between(first: Sample, last: Sample) -> Iterator[Value]:
    counts = _counts(first, last)
    for name, count in counts.items():
        yield MACHINE[name].value(count)
    if counts.get("cycles") and "instructions" in counts:
        yield _PER_CYCLE[""].value(counts["instructions"] / counts["cycles"])
    if first.busy_ns is not None and last.busy_ns is not None:
        yield BUSY.value(max(last.busy_ns - first.busy_ns, 0) / 1e9)


def _counts(before: Sample, after: Sample) -> dict[CounterName, int]:
    both = [name for name in MACHINE if name in before.counts and name in after.counts]
    return {name: after.counts[name] - before.counts[name] for name in both}


def _series(samples: Sequence[Sample], start: float) -> Iterator[tuple[None, str, float, float, str]]:
    """Counts a second between two samples, at the later one's time."""
    for before, after in pairwise(samples):
        if (span := after.t - before.t) > 0:
            for name, count in _counts(before, after).items():
                yield None, f"{name}.rate", after.t - start, count / span, "1/s"


def _uncounted(without: Mapping[CounterName, str]) -> Iterator[str]:
    """A sentence for each reason."""
    for reason in dict.fromkeys(without.values()):
        names = ", ".join(_NOUNS.get(name, name) for name, why in without.items() if why == reason)
        yield f"counters: no {names}: {reason}"
