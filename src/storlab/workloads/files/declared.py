"""Metrics of the workload ``files``, declared: of each phase, and of the calls that creating a file is made of."""

from __future__ import annotations

from functools import cache

from storlab.metrics import MetricSpec, by_name, latencies
from storlab.workloads.base import ELAPSED

PHASES = ("create", "read", "stat", "delete")
CALLS = ("open", "write", "sync", "close", "sync-directory")
"""Of ``create``; all else that a phase does is done once for each file, and goes by the phase's name."""
_CALLED = {"sync": {"data", "file", "directory"}, "sync-directory": {"directory"}}

DURABLE = MetricSpec("durable.rate", "1/s", "higher")


@cache
def of_phase(phase: str) -> tuple[MetricSpec, ...]:
    """What a phase has; the syncfs after it among that, where there is one."""
    moved = {
        "create": (
            MetricSpec("write.bytes", "B", quantity="bytes written"),
            MetricSpec("write.bandwidth", "B/s", "higher", quantity="throughput", by_job=False),
        ),
        "read": (
            MetricSpec("read.bytes", "B", quantity="bytes read"),
            MetricSpec("read.bandwidth", "B/s", "higher", quantity="throughput", by_job=False),
        ),
    }
    return (
        MetricSpec(f"{phase}.files", "1", quantity="operations"),
        MetricSpec(f"{phase}.time", "s", "lower", "max"),
        MetricSpec(f"{phase}.rate", "1/s", "higher", quantity="throughput", series=True),
        *moved.get(phase, ()),
        *latencies(f"{phase}.latency", f"{phase}.files"),
    )


@cache
def of_call(call: str) -> tuple[MetricSpec, ...]:
    return (MetricSpec(f"{call}.ios", "1"), *latencies(f"{call}.latency", f"{call}.ios"))


def syncfs(phase: str) -> MetricSpec:
    return MetricSpec(f"{phase}.syncfs.time", "s", "lower", "max")


@cache
def declared(
    phases: tuple[str, ...] = PHASES, fsync: str = "directory", *, end_sync: bool = True
) -> tuple[MetricSpec, ...]:
    """All that there is with these phases, of which mkdir goes before create and rmdir comes after delete."""
    with_directories = {"create": ("mkdir", "create"), "delete": ("delete", "rmdir")}
    made = "create" in phases
    return (
        *(spec for phase in phases for each in with_directories.get(phase, (phase,)) for spec in of_phase(each)),
        *(spec for call in CALLS if made and _CALLED.get(call, {fsync}) & {fsync} for spec in of_call(call)),
        *(syncfs(phase) for phase in ("create", "delete") if end_sync and phase in phases),
        *((DURABLE,) if end_sync and made else ()),
        *ELAPSED,
    )


METRICS = by_name(declared())
