"""Metrics and histograms of fio's jobs, each by itself and all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storlab.measurements import HISTOGRAM_COLUMNS, Value, empty
from storlab.workloads import histogram
from storlab.workloads.fio_latency import Latency, latency_values, merge


@dataclass(frozen=True)
class Direction:
    """What one job (or all) did in one direction; ``runtime`` in s."""

    bytes: int
    ios: int
    runtime: float
    latency: Latency


@dataclass(frozen=True)
class Job:
    """One job. ``phase`` counts the stonewalls before it; CPU times and ``cpu_runtime`` are in s.

    ``cpu_runtime`` is the sum of the run times of the processes that fio merged into this job. ``error`` is
    the errno that ended it, or 0; ``errors`` counts failed operations, that one included.
    """

    name: str
    phase: int
    directions: dict[str, Direction]
    sync: Latency
    cpu_user: float
    cpu_system: float
    cpu_runtime: float
    errors: int
    error: int

    @property
    def runtime(self) -> float:
        """From the start to the end of the direction that took longest, s."""
        return max((direction.runtime for direction in self.directions.values()), default=0.0)


def values(jobs: Sequence[Job]) -> Iterator[Value]:
    """All metrics: first of all jobs together (``job`` null), then of each."""
    for name, job in _everyone(jobs):
        yield from _job_values(job, name)


def histograms(jobs: Sequence[Job]) -> pl.DataFrame:
    """Histograms (``HISTOGRAM_COLUMNS``) of ``d.latency``, ``latency`` and ``sync.latency``, from bins."""
    names: list[str | None] = []
    metrics: list[str] = []
    parts: list[Latency] = []
    for name, job in _everyone(jobs):
        for metric, latency in _latencies(job):
            if latency.has_bins:
                names.append(name)
                metrics.append(metric)
                parts.append(latency)
    if not parts:
        return empty(HISTOGRAM_COLUMNS)
    bins = np.concatenate([part.bins for part in parts])
    of_part = np.repeat(np.arange(len(parts)), [part.bins.size for part in parts])
    return pl.DataFrame(
        [
            pl.Series("job", names, pl.String).gather(of_part),
            pl.Series("metric", metrics, pl.String).gather(of_part),
            pl.Series("lower", histogram.LOWER[bins]),
            pl.Series("upper", histogram.UPPER[bins]),
            pl.Series("count", np.concatenate([part.counts for part in parts])),
        ]
    )


def _everyone(jobs: Sequence[Job]) -> Iterator[tuple[str | None, Job]]:
    yield None, _together(jobs)
    for job in jobs:
        yield job.name, job


def _latencies(job: Job) -> Iterator[tuple[str, Latency]]:
    for name, direction in job.directions.items():
        yield f"{name}.latency", direction.latency
    yield "latency", merge(direction.latency for direction in job.directions.values())
    yield "sync.latency", job.sync


def _job_values(job: Job, name: str | None) -> Iterator[Value]:
    rated = [direction for direction in job.directions.values() if direction.runtime > 0]
    for prefix, parts in [*((f"{key}.", [job.directions[key]]) for key in job.directions), ("", rated)]:
        if any(part.runtime > 0 for part in parts):
            bandwidth = sum(part.bytes / part.runtime for part in parts)
            iops = sum(part.ios / part.runtime for part in parts)
            yield Value(f"{prefix}bandwidth", bandwidth, "B/s", "higher", "sum", name)
            yield Value(f"{prefix}iops", iops, "1/s", "higher", "sum", name)
        whole = parts if prefix else list(job.directions.values())
        if whole:
            yield Value(f"{prefix}bytes", sum(part.bytes for part in whole), "B", "neither", "sum", name)
            yield Value(f"{prefix}ios", sum(part.ios for part in whole), "1", "neither", "sum", name)
    if job.sync.n:
        yield Value("sync.ios", job.sync.n, "1", "neither", "sum", name)
    for metric, latency in _latencies(job):
        yield from latency_values(latency, metric, name)
    if job.cpu_runtime > 0:
        yield Value("cpu.user", job.cpu_user / job.cpu_runtime, "1", "neither", "mean", name)
        yield Value("cpu.system", job.cpu_system / job.cpu_runtime, "1", "neither", "mean", name)
    yield Value("runtime", job.runtime, "s", "neither", "max", name)
    yield Value("errors", job.errors, "1", "lower", "sum", name)


def _together(jobs: Sequence[Job]) -> Job:
    """All jobs as one: the longest run time among those of a phase, and the phases' run times added."""
    present = {key: None for job in jobs for key in job.directions}
    directions = {}
    for key in present:
        mine = [(job.phase, job.directions[key]) for job in jobs if key in job.directions]
        longest: dict[int, float] = {}
        for phase, direction in mine:
            longest[phase] = max(longest.get(phase, 0.0), direction.runtime)
        directions[key] = Direction(
            bytes=sum(direction.bytes for _, direction in mine),
            ios=sum(direction.ios for _, direction in mine),
            runtime=sum(longest.values()),
            latency=merge(direction.latency for _, direction in mine),
        )
    return Job(
        name="",
        phase=0,
        directions=directions,
        sync=merge(job.sync for job in jobs),
        cpu_user=sum(job.cpu_user for job in jobs),
        cpu_system=sum(job.cpu_system for job in jobs),
        cpu_runtime=sum(job.cpu_runtime for job in jobs),
        errors=sum(job.errors for job in jobs),
        error=0,
    )
