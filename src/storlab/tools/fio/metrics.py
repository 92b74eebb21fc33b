"""Metrics and histograms of fio's jobs, each by itself and all of a report together, for many reports at once.

An *owner* is whom a metric is of: the report as a whole, or one of its jobs. All that can be known of an owner
is a row of one wide array, a column for each metric, NaN where there is none; the long frame comes from that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from storlab.measurements import SERIES_COLUMNS, empty
from storlab.metrics import PERCENTILES, Value
from storlab.percentiles import Floats, Ints
from storlab.tools.fio import histogram
from storlab.tools.fio.blocks import NO_LATENCY, JobBlock, Latency, SteadyBlock
from storlab.tools.fio.declared import DIRECTIONS, DONE, METRICS, WAYS, columns, submissions, wanted_percentiles
from storlab.tools.fio.histogram import EXACT, Latencies, latencies

_TOTAL, _SYNC = len(DIRECTIONS), len(DIRECTIONS) + 1
_ALL = (*DIRECTIONS, *DONE)  # what a job may do
_PLACES = {name: at for at, name in enumerate(each.rstrip(".") for each in WAYS)}  # of what a latency is of


@dataclass(frozen=True)
class Direction:
    """What one job did in one direction, or to files (``DONE``), which moves no bytes; ``runtime`` in s.

    ``total``: latency from submission's preparation on.
    """

    bytes: int
    ios: int
    runtime: float
    latency: Latency
    total: bool
    submission: Latency = NO_LATENCY  # where its percentiles were asked for


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
    percentile_list: str = ""  # "50:99.999", as its options have it

    @property
    def runtime(self) -> float:
        """From the start to the end of the direction that took longest, s."""
        return max((direction.runtime for direction in self.directions.values()), default=0.0)

    @property
    def latencies(self) -> dict[str, Latency]:
        return {**{name: direction.latency for name, direction in self.directions.items()}, "sync": self.sync}


def percentiles_of(reports: Sequence[Sequence[Job]]) -> tuple[float, ...]:
    return wanted_percentiles({job.percentile_list for jobs in reports for job in jobs})


@cache
def _described(percentiles: tuple[float, ...]) -> pl.DataFrame:
    """Columns, then the same again, for percentiles that aren't from bins and so never combine."""
    found = columns(percentiles)
    rows = [(spec.name, spec.unit, spec.better, spec.across) for spec in found]
    rows += [(spec.name, spec.unit, spec.better, "none") for spec in found]
    return pl.DataFrame(rows, schema=["metric", "unit", "better", "across"], orient="row")


_FIRST_LATENCY = [spec.name for spec in columns()].index(f"{WAYS[0]}latency.{EXACT[0]}")
_LATENCY = pl.DataFrame({"metric": [f"{way}latency" for way in WAYS]})


def frames(reports: Sequence[Sequence[Job]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``METRIC_COLUMNS`` and ``HISTOGRAM_COLUMNS`` of reports, both with the report's number (from 0) before them.

    For each report first all jobs together (``job`` null), then each. Histograms are of ``d.latency``,
    ``latency`` and ``sync.latency``.
    """
    owners, percentiles = _Owners(reports), percentiles_of(reports)
    measured = _latencies(owners, percentiles)
    runtimes = _runtimes(owners)
    syncs = measured.n[_SYNC :: len(WAYS)]
    statistics = measured.statistics().reshape(-1, len(WAYS), len(EXACT) + len(percentiles))
    for at, percentile in enumerate(percentiles, start=len(EXACT)):
        if percentile not in PERCENTILES:  # asked for in some of the reports
            lacking = np.array([percentile not in percentiles_of([jobs]) for jobs in reports])
            statistics[lacking[owners.frame["report"].to_numpy()], :, at] = np.nan
    flat = statistics.reshape(-1, len(WAYS) * (len(EXACT) + len(percentiles)))
    some = np.where(syncs > 0, syncs, np.nan)
    wide = np.column_stack([_rates(owners, runtimes), some, flat, _rest(owners, runtimes)])
    owner, column = np.nonzero(~np.isnan(wide))
    described = _rows(_described(percentiles), column + _never_combines(measured, owner, column) * wide.shape[1])
    value = pl.Series("value", wide[owner, column])
    metrics = pl.DataFrame([*_rows(owners.frame, owner), described[0], value, *described[1:]])
    owner, way = np.divmod(measured.rows, len(WAYS))
    edges = pl.Series("lower", histogram.LOWER[measured.bins]), pl.Series("upper", histogram.UPPER[measured.bins])
    of = [*_rows(owners.frame, owner), *_rows(_LATENCY, way)]
    return metrics, pl.DataFrame([*of, *edges, pl.Series("count", measured.counts)])


def _rows(frame: pl.DataFrame, numbers: Ints) -> list[pl.Series]:
    """Columns of these rows. Not ``frame[numbers]``, nor ``gather``: for few rows, they mostly wait for threads."""
    positions = pl.Series(numbers.astype(np.uint32))  # Polars' own type of index
    return [column[positions] for column in frame]


def _never_combines(measured: Latencies, owner: Ints, column: Ints) -> npt.NDArray[np.bool_]:
    way, statistic = np.divmod(column - _FIRST_LATENCY, len(EXACT) + len(measured.wanted))
    latency = (way >= 0) & (way < len(WAYS))
    binned = measured.has_bins[owner * len(WAYS) + np.where(latency, way, 0)]
    return latency & (statistic >= len(EXACT)) & ~binned


class _Owners:
    """Reports and their jobs, numbered: every report right before its jobs. ``frame``: ``report`` and ``job`` of each.

    ``of_job`` gives the owner that each job is, ``all_of`` that of its whole report.
    """

    def __init__(self, reports: Sequence[Sequence[Job]]) -> None:
        self.jobs = [job for jobs in reports for job in jobs]
        sizes = np.array([len(jobs) + 1 for jobs in reports], dtype=np.int64)
        firsts = np.cumsum(sizes) - sizes
        self.number = int(sizes.sum())
        report = np.repeat(np.arange(sizes.size), sizes)
        of_job = np.ones(self.number, dtype=np.bool_)
        of_job[firsts] = False
        self.of_job = np.flatnonzero(of_job)
        self.all_of = firsts[report[self.of_job]]
        names = [name for jobs in reports for name in (None, *(job.name for job in jobs))]
        self.frame = pl.DataFrame([pl.Series("report", report), pl.Series("job", names, pl.String)])

    def summed(self, of_jobs: Floats) -> Floats:
        rows = np.zeros((self.number, *of_jobs.shape[1:]))
        rows[self.of_job] = of_jobs
        np.add.at(rows, self.all_of, of_jobs)
        return rows


def _latencies(owners: _Owners, percentiles: tuple[float, ...]) -> Latencies:
    blocks: list[Latency] = []
    of_job: list[int] = []
    ways: list[int] = []
    for number, job in enumerate(owners.jobs):
        own = job.latencies
        blocks += own.values()
        ways += map(_PLACES.__getitem__, own)
        of_job += [number] * len(own)
    way = np.array(ways, dtype=np.int64)
    each, everyone = (owner[of_job] * len(WAYS) for owner in (owners.of_job, owners.all_of))
    part, directed = np.arange(way.size), np.flatnonzero(way < _TOTAL)
    into = [each + way, everyone + way, each[directed] + _TOTAL, everyone[directed] + _TOTAL]
    parts = np.concatenate([part, part, directed, directed])
    return latencies(blocks, percentiles).merged(parts, np.concatenate(into), owners.number * len(WAYS))


def _runtimes(owners: _Owners) -> Floats:
    """Of each owner in each direction. Of all jobs: the longest of each phase, and the phases' added."""
    rows = np.zeros((owners.number, len(_ALL)))
    for at, job in zip(owners.of_job, owners.jobs, strict=True):
        rows[at] = [job.directions[name].runtime if name in job.directions else 0.0 for name in _ALL]
    phases = np.array([job.phase for job in owners.jobs], dtype=np.int64)
    most = phases.max(initial=0) + 1
    keys, phase = np.unique(owners.all_of * most + phases, return_inverse=True)
    longest = np.zeros((keys.size, len(_ALL)))
    np.maximum.at(longest, phase, rows[owners.of_job])
    np.add.at(rows, keys // most, longest)
    return rows


def _rates(owners: _Owners, runtimes: Floats) -> Floats:
    """Bandwidth, IOPS, bytes and operations in each direction, and over all; of what else was done, rate and number.

    Rates where there is a run time.
    """
    done = [[job.directions.get(name) for name in _ALL] for job in owners.jobs]
    # The third says whether there is the direction.
    of_jobs = np.array([[(way.bytes, way.ios, 1) if way else (0, 0, 0) for way in ways] for ways in done], dtype=float)
    summed = owners.summed(of_jobs.reshape(-1, len(_ALL), 3))
    amounts = np.where(summed[:, :, 2:] > 0, summed[:, :, :2], np.nan)
    rates = np.full_like(amounts, np.nan)
    np.divide(amounts, runtimes[:, :, np.newaxis], out=rates, where=runtimes[:, :, np.newaxis] > 0)
    everything = np.concatenate([rates, amounts], axis=2)
    ways, others = np.split(everything, [len(DIRECTIONS)], axis=1)
    total = np.where(np.isnan(ways).all(axis=1), np.nan, np.nansum(ways, axis=1))
    # bandwidth, IOPS, bytes, operations
    counted = others[:, :, 1::2]
    flat = [part.reshape(owners.number, math.prod(part.shape[1:])) for part in (ways, total, counted)]
    return np.concatenate(flat, axis=1)


def _rest(owners: _Owners, runtimes: Floats) -> Floats:
    of_jobs = [(job.cpu_user, job.cpu_system, job.cpu_runtime, job.errors) for job in owners.jobs]
    user, system, runtime, errors = owners.summed(np.array(of_jobs).reshape(-1, 4)).T
    runtime = np.where(runtime > 0, runtime, np.nan)
    return np.column_stack([user / runtime, system / runtime, runtimes.max(axis=1), errors])


def submission_values(jobs: Sequence[Job]) -> Iterator[Value]:
    """How long submission took, as far as the jobs state it: of each, and of one alone as that of all together."""
    if not any(way.submission.maximum for job in jobs for way in job.directions.values()):
        return
    percentiles = percentiles_of([jobs])
    for name, job in [*((None, job) for job in jobs if len(jobs) == 1), *((job.name, job) for job in jobs)]:
        for way, direction in job.directions.items():
            latency = direction.submission
            if latency.maximum:
                known = {"mean": latency.mean, "min": latency.minimum, "max": latency.maximum}
                for spec in submissions(f"{way}.", percentiles)[1:]:
                    at = spec.percentile
                    found = known[spec.statistic] if at is None else latency.percentile.get(f"{at:f}")
                    if found is not None:
                        value = spec.value(found / 1e9, name)
                        yield value if at is None else replace(value, across="none")


_QUANTITIES = ("iops", "bw", "lat")


@dataclass(frozen=True)
class Steady:
    """What the steady-state blocks of all jobs say, and depths that were sought; ``series`` has ``SERIES_COLUMNS``."""

    values: tuple[Value, ...] = ()
    series: pl.DataFrame = field(default_factory=lambda: empty(SERIES_COLUMNS))
    warnings: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)


def steady_states(jobs: Sequence[JobBlock], names: Sequence[str]) -> Steady:
    """The ``steadystate`` blocks of these jobs, whose names are ``names``; series are the samples of the last window.

    Source: fio's ``steadystate.c``, ``stat.c`` and ``HOWTO.rst``. fio watches a window of ``duration`` samples and ends
    the job when the largest distance from the window's mean, or the slope of a least-squares line, is below the limit.
    In its JSON ``bw`` is in B/s (a run of fio 3.33 shows it), ``iops`` in 1/s. ``steady.deviation`` and
    ``steady.slope`` are shares of the window's mean, the slope for each sample of one second.
    """
    values: list[Value] = []
    rows: list[tuple[str, str, float, float, str]] = []
    warnings: list[str] = []
    facts: dict[str, object] = {}
    for job, name in zip(jobs, names, strict=True):
        block = job.steadystate
        if block is None:
            continue
        facts[name] = block.criterion
        values.append(METRICS["steady.attained"].value(block.attained > 0, name))
        if not block.attained:
            warnings.append(f"job {name} did not reach its steady state ({block.criterion})")
        samples = _samples(block)
        if not samples:
            continue
        values += _flatness(block, samples, name)
        ways = (way.runtime for way in (job.read, job.write, job.trim, job.mixed) if way is not None)
        ends = max(ways, default=0) / 1000
        for quantity, metric, unit in (("bw", "steady.bandwidth", "B/s"), ("iops", "steady.iops", "1/s")):
            column = samples.get(quantity, [])
            # The window ends with the job; a sample is a second.
            rows += [
                (name, metric, max(ends - len(column) + at, 0.0), value, unit)
                for at, value in enumerate(column, start=1)
            ]
    depths = [(job.latency_depth, name) for job, name in zip(jobs, names, strict=True) if job.latency_target]
    found = [METRICS["latency_target.depth"].value(depth, name) for depth, name in depths if depth is not None]
    if found:
        found.append(METRICS["latency_target.depth"].value(sum(depth or 0 for depth, _ in depths)))
    if not facts:
        return Steady(tuple(found))
    values += found
    values.append(METRICS["steady.attained"].value(not warnings))
    series = pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")
    return Steady(tuple(values), series, tuple(warnings), {"steady.criterion": facts})


def _samples(block: SteadyBlock) -> dict[str, list[float]]:
    """The window's samples by quantity. Where it didn't fill up it ends in zeros that were never measured."""
    read = zip(_QUANTITIES, (block.data.iops, block.data.bw, block.data.lat_ns), strict=True)
    columns = {quantity: [sample or 0.0 for sample in column] for quantity, column in read if column is not None}
    filled = min((len(column) for column in columns.values()), default=0)
    if not block.attained:
        while filled and not any(column[filled - 1] for column in columns.values()):
            filled -= 1
    return {key: column[:filled] for key, column in columns.items()} if filled else {}


def _flatness(block: SteadyBlock, samples: dict[str, list[float]], job: str) -> list[Value]:
    """The deviation or the slope, whichever fio computed; neither before the window was full."""
    quantity = block.criterion.split(":")[0].removesuffix("_slope")
    column = samples.get(quantity, [])
    mean = sum(column) / len(column) if column else 0.0
    if not mean or len(column) < block.duration:
        return []
    if "_slope" in block.criterion:
        return [METRICS["steady.slope"].value((block.slope or 0.0) / mean, job)]
    return [METRICS["steady.deviation"].value((block.max_deviation or 0.0) / mean, job)]
