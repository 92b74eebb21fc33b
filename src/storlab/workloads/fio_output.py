"""fio's JSON output (``--output-format=json+``) as measurements.

Source: fio 3.33, ``stat.c`` (``show_thread_status_json``, ``sum_thread_stats``) and ``HOWTO.rst``; fio 3 of any
version has these fields. For every job, and for all together (``job`` null), in each direction ``d`` that had
any I/O (``read``, ``write``, ``trim``; ``mixed`` under ``unified_rw_reporting=1``):

| metric | unit | better | across | |
| --- | --- | --- | --- | --- |
| ``d.bandwidth``, ``d.iops`` | B/s, 1/s | higher | sum | over the direction's run time |
| ``d.bytes``, ``d.ios`` | B, 1 | neither | sum | |
| ``d.latency.mean`` | s | lower | merge | exact |
| ``d.latency.min``, ``.max`` | s | lower | min, max | exact |
| ``d.latency.p50`` … ``.p99.99`` | s | lower | merge | from bins, to within 1/128 |
| ``bandwidth``, ``iops``, ``bytes``, ``ios``, ``latency.*`` | | | | the same over all directions |
| ``sync.ios``, ``sync.latency.*`` | | | | fsync and its like; not in the totals |
| ``cpu.user``, ``cpu.system`` | 1 | neither | mean | CPU time over the jobs' run time |
| ``runtime`` | s | neither | max | |
| ``errors`` | 1 | lower | sum | operations that failed and were passed over |
| ``steady.*`` | | | | see ``fio_steady`` |

Latency is completion latency (``clat``: submission to completion), or total latency where fio was told
``lat_percentiles=1`` without ``clat_percentiles=1``; the fact ``latency`` says which.

Rates of all jobs together are fio's ``group_reporting``: bytes and operations of all jobs over the longest run time
among them, so they don't depend on whether fio or Storlab merged the jobs. Jobs that ran one after another
(``stonewall``) have their run times added. Totals over directions are sums of the directions' rates.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from storlab.errors import CommandFailed, DiskFull, ParseError
from storlab.measurements import (
    HISTOGRAM_COLUMNS,
    SERIES_COLUMNS,
    Measurements,
    Value,
    empty,
    metric_frame,
)
from storlab.workloads import fio_steady, histogram
from storlab.workloads.fio_document import Document, Node, read_document
from storlab.workloads.fio_latency import Latency, merge, read_latency

DIRECTIONS = ("read", "write", "trim", "mixed")
_FULL = re.compile(r"error on file (?P<path>.+?): No space left on device")
_ALL_CLIENTS = "All clients"  # fio --client adds this sum of all jobs of all servers


@dataclass(frozen=True)
class JobError:
    """A job that fio ended with an error: its name, errno, and what fio said of it."""

    job: str
    errno: int
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Direction:
    """What one job (or all) did in one direction; ``runtime`` in s."""

    bytes: int
    ios: int
    runtime: float
    latency: Latency


@dataclass(frozen=True)
class Job:
    """One job of the document. ``phase`` counts the stonewalls before it; CPU times are in s."""

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
        return max((direction.runtime for direction in self.directions.values()), default=self.cpu_runtime)


def parse_fio(output: bytes, source: str, messages: bytes = b"") -> Measurements:
    """All that fio measured, from its standard output (or ``--output`` file) and, if apart, standard error.

    Raises ``DiskFull`` where a job met a full file system, ``CommandFailed`` where fio ended a job or itself with another
    error, both with fio's own message; ``ParseError`` where this is not fio 3's JSON, with ``source`` and, where
    known, the line.
    """
    document = _document(output, source, messages)
    jobs = _jobs(document)
    errors = job_errors(jobs, document.messages)
    if errors:
        raise _failure(errors, source, document.messages)
    steady = fio_steady.steady_states(list(_job_nodes(document)), [job.name for job in jobs])
    values, histograms = _measure(jobs)
    return Measurements(
        metrics=metric_frame([*values, *steady.values]),
        series=steady.series if steady.series.height else empty(SERIES_COLUMNS),
        histograms=histograms,
        warnings=(*_warnings(document, jobs), *steady.warnings),
        facts=_facts(document, jobs) | steady.facts,
    )


def job_names(output: bytes, source: str) -> tuple[str, ...]:
    """Names of the jobs as ``parse_fio`` gives them: in fio's order, which also numbers its logs from 1."""
    return tuple(job.name for job in _jobs(_document(output, source, b"")))


def job_errors(jobs: Sequence[Job], messages: Sequence[str]) -> tuple[JobError, ...]:
    """The jobs that ended with an error, each with those of fio's messages that are about errors."""
    said = tuple(line for line in messages if line.startswith("fio:"))
    return tuple(JobError(job.name, job.error, said) for job in jobs if job.error)


def _document(output: bytes, source: str, messages: bytes) -> Document:
    found = read_document(output, source, messages)
    if isinstance(found, Document):
        return found
    said = [line for line in found if line.startswith("fio:")]
    if said:
        # Options that fio refuses, an engine that it hasn't: it ends without a document.
        raise CommandFailed(f"{source}: {said[0]}", "\n".join(found))
    raise ParseError("no JSON in fio's output: it needs --output-format=json+", source)


def _failure(errors: Sequence[JobError], source: str, messages: Sequence[str]) -> CommandFailed | DiskFull:
    detail = "\n".join(messages)
    for error in errors:
        if error.errno == errno.ENOSPC:
            full = next((found for line in error.messages if (found := _FULL.search(line))), None)
            where = f"writing {full['path']}" if full else f"laying out the files of job {error.job}"
            return DiskFull(f"fio: no space left on device, {where}: give it a larger one, or a smaller size", detail)
    first = errors[0]
    # The line that names the file, if there is one, before the line that names a line of fio's source.
    said = min(first.messages, key=lambda line: "io_u error on file" not in line, default="")
    said = said.removeprefix("fio:").strip() or f"error {first.errno} ({errno.errorcode.get(first.errno, 'unknown')})"
    return CommandFailed(f"{source}: fio: job {first.job}: {said}", detail)


def _job_nodes(document: Document) -> Iterator[Node]:
    key = "client_stats" if "client_stats" in document.root else "jobs"
    for node in document.root[key].items():
        if node["jobname"].value != _ALL_CLIENTS:
            yield node


def _jobs(document: Document) -> list[Job]:
    nodes = list(_job_nodes(document))
    if not nodes:
        raise ParseError("fio reported no job", document.root.source)
    phases = _phases(nodes)
    names = unique_names([node["jobname"].text() for node in nodes])
    return [_job(node, name, phase) for node, name, phase in zip(nodes, names, phases, strict=True)]


def unique_names(names: Sequence[str]) -> list[str]:
    """Names of which each stands for one job: those that occur repeatedly are numbered, ``rand.1``, ``rand.2`` …"""
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


def _phases(nodes: Sequence[Node]) -> list[int]:
    """For each job the number of phases before its own. All jobs of a ``numjobs`` carry the same options."""
    phases, phase, previous = [], 0, None
    for node in nodes:
        options = node["job options"].members() if "job options" in node else {}
        group = node["groupid"].count()
        if group != previous and previous is not None and "stonewall" in options:
            phase += 1
        previous = group
        phases.append(phase)
    return phases


def _job(node: Node, name: str, phase: int) -> Job:
    directions = {}
    for key in DIRECTIONS:
        # "both" (unified_rw_reporting=2) gives the directions and their sum, which would count twice.
        if key in node and not (key == "mixed" and "read" in node):
            direction = _direction(node[key])
            if direction.ios or direction.bytes:
                directions[key] = direction
    run = node["job_runtime"].count() / 1000 if "job_runtime" in node else 0.0
    error = node["error"].count()
    return Job(
        name=name,
        phase=phase,
        directions=directions,
        sync=read_latency(node["sync"]["lat_ns"]) if "sync" in node else Latency.none(),
        cpu_user=node["usr_cpu"].number() / 100 * run,
        cpu_system=node["sys_cpu"].number() / 100 * run,
        cpu_runtime=run,
        errors=node["total_err"].count() if "total_err" in node else int(error != 0),
        # With continue_on_error fio sets the error of what it passed over; that is counted, and no failure.
        error=0 if "total_err" in node else error,
    )


def _direction(node: Node) -> Direction:
    if "clat" in node:
        raise ParseError(f"{node.path}.clat: this is fio 2's output, in µs; use fio 3", node.source)
    latency = read_latency(node["clat_ns"])
    if not latency.has_bins and "lat_ns" in node:
        total = read_latency(node["lat_ns"])
        latency = total if total.has_bins or (total.percentiles and not latency.percentiles) else latency
    return Direction(node["io_bytes"].count(), node["total_ios"].count(), node["runtime"].count() / 1000, latency)
