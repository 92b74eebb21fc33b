"""fio's JSON output (``--output-format=json+``) as measurements.

Source: fio 3.33, ``stat.c`` (``show_thread_status_json``, ``sum_thread_stats``) and ``HOWTO.rst``. The metrics are
those of ``docs/reference/metrics.md``: of every job, and of all together (``job`` null), in each direction that had any
I/O (``mixed`` under ``unified_rw_reporting=1``), and over all. Means and extremes of latencies are exact, percentiles
come from bins, to within 1/128. fsync and its like (``sync.*``) are in no total.

Latency is the total (``lat``) where fio was told ``lat_percentiles=1`` without ``clat_percentiles=1``, as Storlab tells
it, else from the end of submission to completion (``clat``); the fact ``latency`` says which.

Rates of all jobs together are those of fio's ``group_reporting``: bytes and operations of all jobs over the longest run
time among them; so they don't depend on whether fio or Storlab merged the jobs. Jobs that ran one after another
(``stonewall``) have their run times added. Totals over directions are sums of the directions' rates.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from storlab.base.errors import CommandFailed, DiskFull, ParseError
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.tools.fio import histogram
from storlab.tools.fio import metrics as fio_metrics
from storlab.tools.fio.blocks import MOST_OPERATIONS, NO_LATENCY, DirectionBlock, JobBlock, Latency, Root
from storlab.tools.fio.declared import DIRECTIONS, OPERATIONS, declared
from storlab.tools.fio.document import Document, keeps_total, options_of, percentiles_in_place, read_document
from storlab.tools.fio.metrics import Direction, Job, Steady

_FULL = re.compile(r"error on file (?P<path>.+?): No space left on device")


class JobFailed(CommandFailed):
    """A job of fio's ended with an error; ``number`` is its errno, where that is known."""

    def __init__(self, message: str, detail: str = "", number: int = 0) -> None:
        super().__init__(message, detail)
        self.number = number


def failure(jobs: Sequence[Job], source: str, messages: Sequence[str]) -> CommandFailed | DiskFull:
    ended = [job for job in jobs if job.error]
    detail, told = "\n".join(messages), [line for line in messages if line.startswith("fio:")]
    for job in ended:
        if job.error == errno.ENOSPC:
            full = next((found for line in told if (found := _FULL.search(line))), None)
            laid_out = any("laying out" in line for line in told)
            where = full["path"] if full else f"laying out a file of {job.name}" if laid_out else job.name
            return DiskFull(f"fio: no space left on device: {where}", detail)
    first = ended[0]
    told = [line for line in told if f"err={first.error}/" in line or os.strerror(first.error) in line] or told
    # The line that names the file, if there is one, before the line that names a line of fio's source.
    said = min(told, key=lambda line: "io_u error on file" not in line, default="")
    name = errno.errorcode.get(first.error, "unknown")
    said = said.removeprefix("fio:").strip() or f"error {first.error} ({name})"
    return JobFailed(f"{source}: fio: job {first.name}: {said}", detail, first.error)


_SUBMISSION = 0.01  # of the total latency: less of it changes no verdict
_LAST_BIN = str(histogram.VALUE_NS[-1])
NO_BINS = "percentiles of several jobs can't be merged without fio's latency bins (--output-format=json+)"
_ALL_CLIENTS = "All clients"  # fio --client adds this sum of all jobs of all servers


@dataclass(frozen=True)
class Report:
    """One report of fio's, checked; ``frames`` makes the numbers of it.

    ``failed``: the jobs of groups in which one ended with an error; all else is of the others.
    """

    jobs: tuple[Job, ...]
    steady: Steady
    warnings: tuple[str, ...]
    facts: dict[str, object]
    failed: tuple[Job, ...] = ()


def parse_fio(output: bytes, source: str, messages: bytes = b"") -> Measurements:
    """All that fio measured, from its standard output (or ``--output`` file) and, if apart, standard error.

    Raises as ``read_report``.
    """
    return measured(read_report(output, source, messages))


def measured(report: Report) -> Measurements:
    metrics, series, histograms = (frame[:, 1:] for frame in frames([report]))
    specs = declared(percentiles=fio_metrics.percentiles_of([report.jobs]))
    warnings = (*report.warnings, *said_together(report.jobs))
    return Measurements(metrics, series, histograms, warnings, report.facts, declared=specs)


def read_report(output: bytes, source: str, messages: bytes = b"") -> Report:
    """The report, in as much memory as its numbers need.

    Raises ``DiskFull`` where a job met a full file system, ``CommandFailed`` where fio ended a job or itself
    with another error, both with fio's own message; ``ParseError`` where this is not fio 3's JSON, with
    ``source`` and, where known, the line.
    """
    document = read_document(output, source, messages)
    if not isinstance(document, Document):
        # Options that fio refuses, an engine that it hasn't: it ends without a document.
        if said := [line for line in document if line.startswith("fio:")]:
            raise CommandFailed(f"{source}: {said[0]}", "\n".join(document))
        raise ParseError("no JSON in fio's output: it needs --output-format=json+", source)
    report = report_by_group(document, source)
    if report.failed:
        raise failure(report.failed, source, document.messages)
    return report


def report_by_group(document: Document, source: str) -> Report:
    """The report that a document is, in which some or all groups of jobs may have failed. Raises ``ParseError``."""
    blocks = _job_blocks(document, source)
    jobs = _jobs(blocks, document.root, source)
    ended = {job.phase for job in jobs if job.error}
    failed = tuple(job for job in jobs if job.phase in ended)
    blocks = [block for block, job in zip(blocks, jobs, strict=True) if job.phase not in ended]
    jobs = [job for job in jobs if job.phase not in ended]
    steady = fio_metrics.steady_states(blocks, [job.name for job in jobs])
    warnings = (*_warnings(document, jobs), *_without_submission(blocks), *steady.warnings)
    return Report(tuple(jobs), steady, warnings, _facts(document, blocks, jobs) | steady.facts, failed)


def frames(reports: Sequence[Report]) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Metrics, series and histograms of many reports, for much less than one by one.

    Their columns are those of ``Measurements`` and before them ``report``, the number (from 0) of the report.
    """
    metrics, histograms = fio_metrics.frames([report.jobs for report in reports])
    steady = [report.steady for report in reports]
    told = [[*report.steady.values, *fio_metrics.submission_values(report.jobs)] for report in reports]
    values = [metrics, *(_of(at, metric_frame(each)) for at, each in enumerate(told) if each)]
    series = [_NO_SERIES, *(_of(at, each.series) for at, each in enumerate(steady) if each.values)]
    return pl.concat(values), pl.concat(series), histograms


_NO_SERIES = empty({"report": pl.Int64(), **SERIES_COLUMNS})


def _of(report: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.lit(report, pl.Int64).alias("report"), pl.all())


def _job_blocks(document: Document, source: str) -> list[JobBlock]:
    root = document.root
    listed = root.jobs if root.client_stats is None else root.client_stats
    if listed is None:
        raise ParseError("jobs is missing: truncated, or not from fio 3", source)
    blocks = [percentiles_in_place(block, root) for block in listed if block.jobname != _ALL_CLIENTS]
    if not blocks:
        raise ParseError("fio reported no job", source)
    return blocks


def _jobs(blocks: Sequence[JobBlock], root: Root, source: str) -> list[Job]:
    names = unique_names([block.jobname for block in blocks])
    untimed = [name for name, block in zip(names, blocks, strict=True) if block.job_runtime is None]
    if untimed and len(untimed) < len(blocks):  # CPU times of all would be those of the others
        raise ParseError(f"job {untimed[0]}: job_runtime is missing, which other jobs have: a line is missing", source)
    # A phase is a group that fio reports. It begins at stonewall, after which jobs wait for those before, or at
    # new_group, where they don't. fio 3.33 prints neither among the options; stonewall is by far the more usual.
    phases = {group: phase for phase, group in enumerate(dict.fromkeys(block.groupid for block in blocks))}
    return [
        _job(block, name, phases[block.groupid], options_of(block, root), source)
        for block, name in zip(blocks, names, strict=True)
    ]


def unique_names(names: Sequence[str]) -> list[str]:
    """Names of which each stands for one job: repeated ones are numbered, ``rand.1``, ``rand.2`` …"""
    repeated = {name for name, times in Counter(names).items() if times > 1}
    taken = set(names) - repeated
    numbers: Counter[str] = Counter()
    unique = []
    for name in names:
        candidate = name
        while name in repeated and (candidate == name or candidate in taken):
            numbers[name] += 1
            candidate = f"{name}.{numbers[name]}"
        taken.add(candidate)
        unique.append(candidate)
    return unique


def _job(block: JobBlock, name: str, phase: int, options: Mapping[str, object], source: str) -> Job:
    directions = {}
    # "both" (unified_rw_reporting=2) gives the directions and their sum, which would count twice.
    mixed = block.mixed if block.read is None else None
    for key, way in zip(DIRECTIONS, (block.read, block.write, block.trim, mixed), strict=True):
        if way is not None and (way.total_ios or way.io_bytes):
            directions[key] = _direction(way, f"job {name}: {key}", source)
    engine = str(options.get("ioengine", ""))
    if engine in OPERATIONS and directions:
        most = max(directions.values(), key=lambda direction: (direction.latency.n, direction.ios))
        directions = {OPERATIONS[engine]: replace(most, bytes=0)}
    run, sync = (block.job_runtime or 0) / 1000, NO_LATENCY
    # Of what continue_on_error passed over, the first stands as the job's error, too (show_run_stats() in stat.c).
    passed_over = bool(block.total_err) and block.error == block.first_error
    if block.sync is not None:
        sync = _fios(block.sync.lat_ns, f"job {name}: sync.lat_ns", source).counted(block.sync.total_ios)
    return Job(
        name=name,
        phase=phase,
        directions=directions,
        sync=sync,
        cpu_user=(block.usr_cpu or 0.0) / 100 * run,
        cpu_system=(block.sys_cpu or 0.0) / 100 * run,
        cpu_runtime=run,
        errors=int(block.error != 0) if block.total_err is None else block.total_err,
        error=0 if passed_over else block.error,
        percentile_list=str(options.get("percentile_list", "")),
    )


def _direction(block: DirectionBlock, path: str, source: str) -> Direction:
    if block.clat_ns is None:
        raise ParseError(f"{path}.clat_ns is missing: truncated, or not from fio 3", source)
    kind, latency = "clat_ns", block.clat_ns
    if block.lat_ns is not None and _is_total(block):
        kind, latency = "lat_ns", block.lat_ns
    latency = _fios(latency, f"{path}.{kind}", source).counted(block.total_ios)
    submission = block.slat_ns if block.slat_ns is not None and block.slat_ns.percentile else NO_LATENCY
    return Direction(block.io_bytes, block.total_ios, block.runtime / 1000, latency, kind == "lat_ns", submission)


def _is_total(block: DirectionBlock) -> bool:
    """lat_percentiles=1 moves bins and percentiles from one to the other; disable_clat=1 leaves the total alone."""
    total, completion = block.lat_ns, block.clat_ns
    if total is None or completion is None or completion.has_bins:
        return False
    moved = total.has_bins or bool(total.percentile and not completion.percentile)
    return moved or bool(total.maximum and not completion.maximum)


def has_total(block: JobBlock, root: Root) -> bool:
    """Whether the latencies of a job are total ones or, where it measured none, would have been by its options."""
    placed = percentiles_in_place(block, root)
    ways = [way for way in (placed.read, placed.write, placed.trim, placed.mixed) if way is not None and way.total_ios]
    return any(map(_is_total, ways)) if ways else keeps_total(block, root)


def _fios(latency: Latency, path: str, source: str) -> Latency:
    """The latency, if its bins are fio's and their counts can be added."""
    if not latency.bins.keys() <= histogram.BIN_OF_VALUE.keys():
        wrong = next(key for key in latency.bins if key not in histogram.BIN_OF_VALUE)
        raise ParseError(f"{path}.bins: {wrong!r} is none of fio's latency bins", source)
    if sum(latency.bins.values()) > MOST_OPERATIONS:
        raise ParseError(f"{path}.bins should be counts of operations", source)
    return latency


def _warnings(document: Document, jobs: Sequence[Job]) -> Iterator[str]:
    if document.dropped:
        yield f"fio wrote {document.dropped + 1} reports; only the last was read"
    yield from document.notes
    for line in document.messages:
        yield line if line.startswith("fio") else f"fio: {line}"
    latencies = [direction.latency for job in jobs for direction in job.directions.values()]
    for job in jobs:
        for of, latency in job.latencies.items():
            if latency.bins and (counted := sum(latency.bins.values())) != latency.n:
                yield f"job {job.name}: the bins of {of} latencies hold {counted} of {latency.n}: lines are missing"
    beyond = sum(latency.bins.get(_LAST_BIN, 0) for latency in latencies)
    if beyond:
        yield (
            f"{beyond} operations took {histogram.LAST_LOWER:.1f} s or longer, where fio's bins end: "
            "a percentile there is a lower bound; the maximum is exact"
        )
    if passed_over := sum(job.errors for job in jobs):
        yield f"fio passed over {passed_over} failed operations (continue_on_error)"
    for job in jobs:
        if not job.directions:
            yield f"job {job.name} did no I/O"
        elif not job.runtime:
            yield f"job {job.name} ran for less than a millisecond: no rates"


def said_together(jobs: Sequence[Job]) -> Iterator[str]:
    if any(job.phase for job in jobs):
        yield (
            "fio reported several groups of jobs, which are taken to have run one after another (stonewall): "
            "rates of all jobs together are over the groups' added run times"
        )
    each = [(of, latency.has_bins) for job in jobs for of, latency in job.latencies.items() if latency.n]
    if any(number > 1 and (of, False) in each for of, number in Counter(of for of, _ in each).items()):
        yield NO_BINS


def _without_submission(blocks: Sequence[JobBlock]) -> Iterator[str]:
    """Where submission waits, as that of buffered I/O does with libaio, completion latency is next to nothing."""
    ways = [way for block in blocks for way in (block.read, block.write, block.trim, block.mixed) if way is not None]
    largest = max(map(_submission, ways), default=0.0)
    if largest >= _SUBMISSION:
        yield (
            f"latencies are without submission (clat), which is up to {largest:.0%} of the total: fio keeps that with "
            "lat_percentiles=1 and clat_percentiles=0"
        )


def _submission(way: DirectionBlock) -> float:
    completion, submission = way.clat_ns, way.slat_ns
    if completion is None or submission is None or not submission.mean or _is_total(way):
        return 0.0
    return submission.mean / (submission.mean + (completion.mean or 0.0))


def _facts(document: Document, blocks: Sequence[JobBlock], jobs: Sequence[Job]) -> dict[str, object]:
    options = {} if document.root.options is None else {"global": document.root.options}
    options |= {job.name: block.options for block, job in zip(blocks, jobs, strict=True) if block.options is not None}
    total = any(direction.total for job in jobs for direction in job.directions.values())
    facts: dict[str, object] = {"latency": "total" if total else "completion", "options": options}
    if document.root.version is not None:
        facts["version"] = document.root.version.removeprefix("fio-")
    return facts
