"""Probe ``counters``: what the kernel's and the CPUs' own counters say of a machine, and of the loads alone.

Cycles, instructions and misses of the last cache are counted by the CPU's performance monitoring unit, which most
virtual machines lack; the rest by the kernel, everywhere. A load's own counts begin when its program is executed and
end with the last of its processes, as with perf-stat(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import polars as pl
from pydantic import Field

from storlab.base.errors import ParseError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.base.units import Duration
from storlab.findings.runs import TooFewSamples
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.agent.protocol import Counted, CounterName
from storlab.nodes.needs import Needs
from storlab.nodes.raw_folders import make_raw_folder
from storlab.probes.agent import AgentProbe
from storlab.probes.base import ProbeContext, ProbeRecord, Seen, read_notes
from storlab.probes.lines import Count, Lines
from storlab.probes.sampling import around
from storlab.probes.subject import Kind

LOADS = "loads.json"
"""In the probe's raw folder: what the loads of its machine did, one entry for each."""
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
"""Metric → the same for each operation of the loads."""
PER_CORE = MetricSpec("iops.per-busy-core", "1/s", "higher", "none", evidence="none")
"""Operations for each second in which a CPU of the machine was busy, whatever it was busy with."""


_Reason = Annotated[str, msgspec.Meta(max_length=1024)]


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line. ``without``: what can't be counted, and why."""

    cpus: Annotated[int, msgspec.Meta(ge=1, le=65536)]
    without: dict[CounterName, _Reason]
    monotonic_ns: Count
    realtime_ns: Count


class Sample(msgspec.Struct, frozen=True, tag_field="event", tag="sample"):
    """All counts since the program began, of all CPUs; ``busy_ns``: CPU time since the machine did."""

    final: bool
    monotonic_ns: Count
    busy_ns: Count | None
    counts: dict[CounterName, Count]

    @property
    def t(self) -> float:
        """Seconds on the node's monotonic clock."""
        return self.monotonic_ns / 1e9


_LINES: Lines[Started | Sample] = Lines(Started | Sample, Started, "the agent's program")
_LOADS: msgspec.json.Decoder[list[Counted]] = msgspec.json.Decoder(list[Counted])


class CountersProbe(AgentProbe):
    """Counts cycles, instructions, cache misses, context switches, migrations and page faults by perf events."""

    kind: ClassVar[str] = "counters"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    begins_last: ClassVar[bool] = True
    counts_loads: ClassVar[bool] = True
    output: ClassVar[str] = "counters.jsonl"
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

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str]:
        return ["counters", "--interval", f"{self.interval:.6f}"]

    def parse(self, record: ProbeRecord) -> Measurements:
        notes, loads, path = list(read_notes(record.raw)), read_loads(record.raw), record.raw / self.output
        without = dict(reason for each in loads for reason in each.without.items())
        values, series, few = list(_of_loads(loads)), empty(SERIES_COLUMNS), tuple[TooFewSamples, ...]()
        if path.exists():
            started, samples = read_output(path)
            without |= started.without
            samples = around(samples, record.window)
            if len(samples) < 2:
                few = (TooFewSamples(self.kind),)
            else:
                values += _between(samples[0], samples[-1])
                points = list(_series(samples, record.window.start))
                series = pl.DataFrame(points, schema=SERIES_COLUMNS, orient="row")
        return Measurements(
            metrics=metric_frame(values),
            series=series,
            warnings=(*notes, *_uncounted(without)),
            facts={"without": dict(sorted(without.items()))} if without else {},
            found=few,
        )

    def derive(self, seen: Seen) -> Iterator[Value]:
        """What each operation of the loads cost the CPUs, and how many a busy CPU carries: none if a machine does not
        count something of these.
        """
        if not seen.at_load or not seen.nodes or seen.operations is None:
            return
        totals = [each.totals() for each in seen.nodes]
        known = [name for name in PER_OPERATION if all(name in each for each in totals)]
        sums = {name: sum(each[name] for each in totals) for name in known}
        yield from (PER_OPERATION[name].value(value / seen.operations) for name, value in sums.items())
        if sums.get(BUSY.name):
            yield PER_CORE.value(seen.operations / sums[BUSY.name])


def read_output(lines: Path | Iterable[bytes], source: str = "") -> tuple[Started, list[Sample]]:
    """What one program printed, in its order. Raises ``ParseError``."""
    found: list[Sample] = []
    started: Started | None = None
    for number, line in _LINES.read(lines, source):
        if isinstance(line, Started):
            started = line
        elif found and _backwards(found[-1], line):
            raise ParseError("time or a count ran backwards", source or str(lines), number)
        else:
            found.append(line)
    assert started is not None  # or there are no lines
    return started, found


def _of_loads(loads: Sequence[Counted]) -> Iterator[Value]:
    counted = [name for name in LOAD if loads and all(name in each.counts for each in loads)]
    sums = {name: sum(each.counts[name] for each in loads) for name in counted}
    for name, total in sums.items():
        yield LOAD[name].value(total / 1e9 if name == "task_clock" else total)
    if sums.get("cycles") and "instructions" in sums:
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
    for before, after in pairwise(samples):
        if (span := after.t - before.t) > 0:
            for name, count in _counts(before, after).items():
                yield None, f"{name}.rate", after.t - start, count / span, "1/s"


def _uncounted(without: Mapping[CounterName, str]) -> Iterator[str]:
    for reason in dict.fromkeys(without.values()):
        names = ", ".join(_NOUNS.get(name, name) for name, why in without.items() if why == reason)
        yield f"counters: no {names}: {reason}"


def _backwards(before: Sample, after: Sample) -> bool:
    pairs = [(count, after.counts.get(name, -1)) for name, count in before.counts.items()]
    return after.monotonic_ns < before.monotonic_ns or any(new < old for old, new in pairs)


def write_loads(raw: Path, counted: Sequence[Counted]) -> None:
    make_raw_folder(raw)
    (raw / LOADS).write_bytes(msgspec.json.encode(counted))


def read_loads(raw: Path) -> list[Counted]:
    """Raises ``ParseError``; nothing if there were none."""
    path = raw / LOADS
    try:
        return _LOADS.decode(read_file(path, RECORD))
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"cannot read it: {error}", str(path), 1) from None
