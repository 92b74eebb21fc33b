"""fio's JSON output (``--output-format=json+``) as measurements.

Source: fio 3.33, ``stat.c`` (``show_thread_status_json``, ``sum_thread_stats``) and ``HOWTO.rst``. For every
job, and for all together (``job`` null), in each direction ``d`` that had any I/O (``read``, ``write``,
``trim``; ``mixed`` under ``unified_rw_reporting=1``):

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

Rates of all jobs together are those of fio's ``group_reporting``: bytes and operations of all jobs over the
longest run time among them; so they don't depend on whether fio or Storlab merged the jobs. Jobs that ran
one after another (``stonewall``) have their run times added. Totals over directions are sums of the
directions' rates.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storlab.errors import CommandFailed, DiskFull, ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.workloads import fio_metrics, fio_steady, histogram
from storlab.workloads.fio_document import Document, Node, read_document
from storlab.workloads.fio_latency import Latency, read_latency
from storlab.workloads.fio_metrics import Direction, Job

DIRECTIONS = ("read", "write", "trim", "mixed")
_FULL = re.compile(r"error on file (?P<path>.+?): No space left on device")
_ALL_CLIENTS = "All clients"  # fio --client adds this sum of all jobs of all servers


@dataclass(frozen=True)
class JobError:
    """A job that fio ended with an error: its name, errno, and what fio said of it."""

    job: str
    errno: int
    messages: tuple[str, ...]


def parse_fio(output: bytes, source: str, messages: bytes = b"") -> Measurements:
    """All that fio measured, from its standard output (or ``--output`` file) and, if apart, standard error.

    Raises ``DiskFull`` where a job met a full file system, ``CommandFailed`` where fio ended a job or itself
    with another error, both with fio's own message; ``ParseError`` where this is not fio 3's JSON, with
    ``source`` and, where known, the line.
    """
    document = _document(output, source, messages)
    jobs = _jobs(document)
    errors = job_errors(jobs, document.messages)
    if errors:
        raise _failure(errors, source, document.messages)
    steady = fio_steady.steady_states(list(_job_nodes(document)), [job.name for job in jobs])
    return Measurements(
        metrics=metric_frame([*fio_metrics.values(jobs), *steady.values]),
        series=steady.series,
        histograms=fio_metrics.histograms(jobs),
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
            laid_out = any("laying out" in line for line in error.messages)
            where = full["path"] if full else f"laying out a file of {error.job}" if laid_out else error.job
            return DiskFull(f"fio: no space left on device: {where}", detail)
    first = errors[0]
    # The line that names the file, if there is one, before the line that names a line of fio's source.
    said = min(first.messages, key=lambda line: "io_u error on file" not in line, default="")
    name = errno.errorcode.get(first.errno, "unknown")
    said = said.removeprefix("fio:").strip() or f"error {first.errno} ({name})"
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


def _phases(nodes: Sequence[Node]) -> list[int]:
    """For each job the number of phases before its own: a phase is a group that fio reports.

    A group begins at ``stonewall``, after which jobs wait for those before, or at ``new_group``, where they don't.
    fio 3.33 prints neither among the options; ``stonewall`` is by far the more usual.
    """
    groups = [node["groupid"].count() for node in nodes]
    order = {group: phase for phase, group in enumerate(dict.fromkeys(groups))}
    return [order[group] for group in groups]


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
        error=error,
    )


def _direction(node: Node) -> Direction:
    if "clat" in node:
        raise ParseError(f"{node.path}.clat: this is fio 2's output, in µs; use fio 3", node.source)
    amount, ios, runtime = node["io_bytes"].count(), node["total_ios"].count(), node["runtime"].count() / 1000
    if not ios and not amount:
        return Direction(0, 0, runtime, Latency.none())
    latency = read_latency(node["clat_ns"])
    if not latency.has_bins and "lat_ns" in node:
        # lat_percentiles=1 moves bins and percentiles from one to the other.
        total = read_latency(node["lat_ns"])
        latency = total if total.has_bins or (total.percentiles and not latency.percentiles) else latency
    return Direction(amount, ios, runtime, latency)


def _warnings(document: Document, jobs: Sequence[Job]) -> Iterator[str]:
    if document.dropped:
        yield f"fio wrote {document.dropped + 1} reports; only the last was read"
    for line in document.messages:
        yield line if line.startswith("fio") else f"fio: {line}"
    latencies = [direction.latency for job in jobs for direction in job.directions.values()]
    if any(latency.n and not latency.has_bins for latency in latencies):
        yield "fio gave no latency bins (without --output-format=json+): its percentiles can't be merged"
    if any(latency.total for latency in latencies):
        yield "latencies are total latencies (lat), not completion latencies (clat): lat_percentiles=1"
    beyond = sum(int(latency.counts[latency.bins == histogram.BINS - 1].sum()) for latency in latencies)
    if beyond:
        yield (
            f"{beyond} operations took {histogram.LAST_LOWER:.1f} s or longer, where fio's bins end: "
            "a percentile there is a lower bound; the maximum is exact"
        )
    if jobs[-1].phase:
        yield (
            "fio reported several groups of jobs, which are taken to have run one after another (stonewall): "
            "rates of all jobs together are over the groups' added run times"
        )
    if passed_over := sum(job.errors for job in jobs):
        yield f"fio passed over {passed_over} failed operations (continue_on_error)"
    for job in jobs:
        if not job.directions:
            yield f"job {job.name} did no I/O"
        elif not job.runtime:
            yield f"job {job.name} ran for less than a millisecond: no rates"


def _facts(document: Document, jobs: Sequence[Job]) -> dict[str, object]:
    options: dict[str, dict[str, object]] = {}
    if "global options" in document.root:
        options["global"] = dict(document.root["global options"].members())
    for node, job in zip(_job_nodes(document), jobs, strict=True):
        if "job options" in node:
            options[job.name] = dict(node["job options"].members())
    total = any(direction.latency.total for job in jobs for direction in job.directions.values())
    facts: dict[str, object] = {"latency": "total" if total else "completion", "options": options}
    if "fio version" in document.root:
        facts["version"] = document.root["fio version"].text().removeprefix("fio-")
    return facts
