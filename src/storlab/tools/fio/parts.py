"""A file with fio's JSON: one document, or those of several runs that were appended to each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import PurePosixPath

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import grouped, printable
from storlab.base.units import parse_size, size_text
from storlab.measurements import SERIES_COLUMNS, Measurements
from storlab.tools.fio.blocks import DirectionBlock, JobBlock, Root
from storlab.tools.fio.declared import declared
from storlab.tools.fio.document import Document
from storlab.tools.fio.metrics import Job, percentiles_of
from storlab.tools.fio.normal_lines import told_of
from storlab.tools.fio.output import Report, failure, frames, has_total, report_by_group, said_together, unique_names
from storlab.tools.importer import Part

_ALIASES = {"blocksize": "bs", "readwrite": "rw", "iodepth_batch_submit": "iodepth_batch", "thread_count": "numjobs"}
_DEFAULTS = {"rw": "read", "bs": "4k", "ioengine": "psync", "iodepth": "1", "numjobs": "1", "direct": "0"}
_SIZES = frozenset({"bs", "size", "io_size", "filesize"})
_NO_TRAITS = frozenset(
    {"name", "description", "group_reporting", "new_group", "stonewall", "wait_for_previous", "randseed"}
    | {"bwavgtime", "iopsavgtime", "per_job_logs", "output", "percentile_list", "lat_percentiles", "clat_percentiles"}
)
_LOGS = re.compile(r"write_(bw|iops|lat)_log")
_HISTOGRAM_LOGS = re.compile(r"write_hist_log")
_OF_LOGS = re.compile(r"write_\w+_log|log_\w+")


def options_of(document: Document, job: JobBlock) -> dict[str, str]:
    options = {**(document.root.options or {}), **(job.options or {})}
    return {str(name): str(value) for name, value in options.items()}


def traits_of(jobs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What can tell a group of jobs, of these options, from others. Where its jobs differ: ``read + write``."""
    spelled = [_spelled(options) for options in jobs]
    known = _DEFAULTS if any(spelled) else {}  # of a job without any, nobody knows them
    names = dict.fromkeys([*known, *(name for options in spelled for name in options)])
    values = {name: [options.get(name, _DEFAULTS.get(name, "–")) for options in spelled] for name in names}
    return {name: " + ".join(dict.fromkeys(each)) for name, each in values.items()}


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    spelled = {}
    for name, value in options.items():
        name = _ALIASES.get(name, name)
        if name not in _NO_TRAITS and not _OF_LOGS.fullmatch(name):
            spelled[printable(name)] = _value(name, value, options.get("kb_base", "1024"))
    return spelled


def _value(name: str, value: str, kb_base: str) -> str:
    """In one spelling: 4096 is 4k; an option without a value is on."""
    if name in _SIZES and kb_base == "1024" and "ib" not in value.lower():  # 4kib, to fio, is 4000
        try:
            return size_text(parse_size(value))
        except ValueError:
            pass  # fio has other ways to say it: 80%, 4k,8k
    return printable(value) or "1"


def log_prefixes(options: Mapping[str, str], histograms: bool = False) -> list[str]:
    """How the names of a job's logs begin, or of its histogram logs: as its options say, which may be with a folder, or
    by the job's name.
    """
    logs = _HISTOGRAM_LOGS if histograms else _LOGS
    found = (value or options.get("name", "") for name, value in options.items() if logs.fullmatch(name))
    return list(dict.fromkeys(PurePosixPath(value).name for value in found if PurePosixPath(value).name))


def said_of_jobs(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Options by the name of their job, from the lines with which fio begins: ``x: (g=0): rw=read, bs=…``."""
    told = (told_of(line) for line in lines)
    return {each.name: each.options for each in told if each is not None}


LOGS, HISTOGRAM_LOGS = "logs", "histogram logs"
"""Facts: how the names of the logs begin that a part's jobs wrote."""

_NOTE = re.compile(r"(<[^>]*> )?(fio:|note:|warning:|verify:)")


def json_parts(documents: Sequence[Document], broken: Sequence[ParseError], source: str) -> list[Part]:
    """A part for each group of jobs of each run, in order. The file's own warnings are with the first.

    ``broken``: documents that were cut off, or are damaged; there is at least one that isn't. Raises ``ParseError``.
    """
    ours = [each for each in documents if jobs_of(each.root)]
    once = _once(ours)
    runs = _of_each_run(once)
    read = [(run, list(_parts(_without_chatter(run[-1]), source))) for run in runs or [[each] for each in documents]]
    sampled = [(run, _sampled(run, own)) for run, own in read]
    parts = [part for _, own in sampled for part in own]
    said = [
        f"line {error.line}: {str(error).removeprefix(f'{error.source}:{error.line}: ')}; that document is left out"
        for error in broken
    ]
    others = [each.line for each in documents if not jobs_of(each.root)]
    said += [f"line {line}: JSON that is no result of fio is left out" for line in others]
    if len(ours) > len(once):
        said.append(said_of_copies(len(ours) - len(once)))
    if unused := sum(len(run) - 1 for run, own in sampled if not own or own[0].measured.series.is_empty()):
        said.append(said_of_status(unused))
    return [parts[0].warned(*said, first=True), *parts[1:]]


def said_of_copies(number: int) -> str:
    return f"copies of its own reports are left out: {number}"


def said_of_status(number: int) -> str:
    return f"reports of runs that went on (--status-interval) are left out: {number}"


def normal_parts(documents: Sequence[Document], source: str) -> list[Part]:
    """The same of fio's output for people, which doesn't say when it was written."""
    return [part for run in documents for part in _parts(_without_chatter(run), source)]


def same_run(one: Document, other: Document) -> bool:
    return bool(_did(one)) and _did(one) == _did(other)


def _did(document: Document) -> list[tuple[object, ...]]:
    jobs = sorted(jobs_of(document.root), key=lambda job: (job.groupid, job.jobname))
    ways = ((job, [way and way.total_ios for way in (job.read, job.write, job.trim)]) for job in jobs)
    return [(job.jobname, job.groupid, *(done or 0 for done in of)) for job, of in ways]


def _once(documents: Sequence[Document]) -> list[Document]:
    """Without copies: reports that were written in the same millisecond and say the same. A copy is no repeat."""
    found: dict[int, list[Root]] = {}
    kept = []
    for each in documents:
        alike = [] if each.root.timestamp_ms is None else found.setdefault(each.root.timestamp_ms, [])
        if each.root not in alike:
            alike.append(each.root)
            kept.append(each)
    return kept


def _of_each_run(documents: Sequence[Document]) -> list[list[Document]]:
    """The last of a run is its report. Those that fio wrote while it went on come first: their counts are in it."""
    runs: list[list[Document]] = []
    for each in documents:
        if runs and _goes_on(runs[-1][-1].root, each.root):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _sampled(run: Sequence[Document], parts: Sequence[Part]) -> Sequence[Part]:
    """With the rates between its reports as series, unless it has some of another kind, or its jobs did not all run at
    once. A last interval that is far shorter than the others says nothing.
    """
    if len(run) < 2 or len(parts) != 1 or parts[0].status != "done" or LOGS in parts[0].measured.facts:
        return parts
    if not parts[0].measured.series.is_empty():
        return parts
    counts = [_counted(each.root) for each in run]
    times = [0.0, *(max(_lasted(jobs_of(each.root)).values(), default=0.0) for each in run)]
    steps = [after - before for before, after in pairwise(times)]
    if steps[-1] < max(steps) / 2:
        counts, steps = counts[:-1], steps[:-1]
    rows = [
        (None, name, times[at + 1], (counts[at].get(name, 0) - (counts[at - 1].get(name, 0) if at else 0)) / step, unit)
        for name, unit in {name: unit for name, unit in _UNITS.items() if counts[-1].get(name)}.items()
        for at, step in enumerate(steps)
        if step > 0
    ]
    return [parts[0].with_found(series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"))]


_WAYS = ("read", "write", "trim")
_UNITS = {
    f"{way}{name}": unit
    for name, unit in (("bandwidth", "B/s"), ("iops", "1/s"))
    for way in ("", "read.", "write.", "trim.")
}


def _counted(root: Root) -> dict[str, int]:
    """Bytes and operations so far, by the names of their rates."""
    found: dict[str, int] = {}
    for job in jobs_of(root):
        for name, way in zip(_WAYS, _directions(job), strict=False):
            if way is not None:
                for each in ("", f"{name}."):
                    found[f"{each}bandwidth"] = found.get(f"{each}bandwidth", 0) + way.io_bytes
                    found[f"{each}iops"] = found.get(f"{each}iops", 0) + way.total_ios
    return found


def _goes_on(earlier: Root, later: Root) -> bool:
    """Whether ``later`` reports on the run of ``earlier``: no count fell, and that run had begun by then.

    Runs that were appended to each other begin after the report before them. Where fio doesn't say when it wrote a
    report (``--client``), bytes must have been added.
    """
    if earlier.options != later.options or len(jobs_of(earlier)) != len(jobs_of(later)):
        return False
    pairs = list(zip(jobs_of(earlier), jobs_of(later), strict=True))
    if any((one.jobname, one.groupid, one.options) != (two.jobname, two.groupid, two.options) for one, two in pairs):
        return False
    ways = [way for one, two in pairs for way in zip(_directions(one), _directions(two), strict=True)]
    if not ways or not all(_grew(one, two) for one, two in ways):
        return False
    before, after = (sum(way.io_bytes for way in each if way is not None) for each in zip(*ways, strict=True))
    if earlier.timestamp_ms is None or later.timestamp_ms is None or not before:
        return bool(before < after)
    return later.timestamp_ms - 1000 * sum(_lasted(jobs_of(later)).values()) < earlier.timestamp_ms


def jobs_of(root: Root) -> Sequence[JobBlock]:
    """The jobs of a document; with ``fio --client``, those of all servers."""
    return (root.jobs if root.client_stats is None else root.client_stats) or ()


def _directions(job: JobBlock) -> tuple[DirectionBlock | None, ...]:
    return job.read, job.write, job.trim, job.mixed


def _grew(one: DirectionBlock | None, two: DirectionBlock | None) -> bool:
    if one is None or two is None:
        return one is two
    more = one.io_bytes <= two.io_bytes and one.total_ios <= two.total_ios and one.runtime <= two.runtime
    before, after = one.clat_ns, two.clat_ns
    if before is None or after is None or not before.n:
        return more
    return more and before.n <= after.n and before.minimum >= after.minimum and before.maximum <= after.maximum


def _lasted(jobs: Iterable[JobBlock]) -> dict[int, float]:
    """For how many seconds each group of jobs ran. Not ``job_runtime``, which fio adds up over the jobs it merges."""
    lasted: dict[int, float] = {}
    for job in jobs:
        runtimes = [way.runtime / 1000 for way in _directions(job) if way is not None]
        lasted[job.groupid] = max(lasted.get(job.groupid, 0.0), *runtimes)
    return lasted


def _without_chatter(document: Document) -> Document:
    """With only those lines around it that fio means as warnings, not its progress, its tables, nor other programs'."""
    return replace(document, messages=tuple(line for line in document.messages if _NOTE.match(line)))


@dataclass(frozen=True)
class _Group:
    """Jobs that ran at once, and of each its options and whether its latencies are total ones."""

    jobs: Sequence[Job]
    options: Mapping[str, Mapping[str, str]]
    totals: Sequence[bool]

    @property
    def names(self) -> list[str]:
        return [job.name for job in self.jobs]

    @property
    def lasted(self) -> float:
        return max((job.runtime for job in self.jobs), default=0.0)

    @property
    def traits(self) -> dict[str, str]:
        kinds = dict.fromkeys("total" if total else "completion" for total in self.totals)
        return {**traits_of(list(self.options.values())), "latency": " + ".join(kinds)}

    @property
    def logs(self) -> dict[str, object]:
        facts: dict[str, object] = {}
        for fact, of_histograms in ((LOGS, False), (HISTOGRAM_LOGS, True)):
            found = [prefix for options in self.options.values() for prefix in log_prefixes(options, of_histograms)]
            if found:
                facts[fact] = list(dict.fromkeys(found))
        return facts


def _groups(document: Document, report: Report) -> list[_Group]:
    blocks = jobs_of(document.root)
    of = dict(zip(unique_names([block.jobname for block in blocks]), blocks, strict=True))
    phases = grouped((job.phase, replace(job, phase=0)) for job in (*report.jobs, *report.failed))
    return [
        _Group(
            jobs,
            {job.name: options_of(document, of[job.name]) for job in jobs},
            [has_total(of[job.name], document.root) for job in jobs],
        )
        for _, jobs in sorted(phases.items())
    ]


def _parts(document: Document, source: str) -> Iterator[Part]:
    """A part for each group of jobs. The report's warnings are with the first that did not fail."""
    report = report_by_group(document, source)
    groups = _groups(document, report)
    traits = [group.traits for group in groups]
    alike = len({tuple(each.items()) for each in traits}) < len(groups)
    written = _written(document)
    key = {"key": printable(".".join(document.path))} if document.path else {}
    warnings = report.warnings
    for at, group in enumerate(groups):
        told = {"job": " + ".join(dict.fromkeys(group.names))} if alike else {}
        after = timedelta(seconds=sum(each.lasted for each in groups[at:]))
        part = Part(
            Measurements(facts=group.logs),
            traits={**traits[at], **told, **key},
            started=None if written is None else written - after,
            lasted=group.lasted,
        )
        if any(job.error for job in group.jobs):
            yield replace(part, status="failed", reason=str(failure(group.jobs, source, document.messages)))
        else:
            yield replace(part, found=_measured(group, report, warnings))
            warnings = ()


def _measured(group: _Group, report: Report, warnings: tuple[str, ...]) -> Measurements:
    own = replace(report.steady, series=report.steady.series.filter(pl.col("job").is_in(group.names)))
    own = replace(own, values=tuple(value for value in report.steady.values if value.job in group.names))
    alone = replace(report, jobs=tuple(group.jobs), steady=own)
    metrics, series, histograms = (frame[:, 1:] for frame in frames([alone]))
    latency = "total" if any(group.totals) else "completion"
    facts = report.facts | {"latency": latency, "options": dict(group.options)} | group.logs
    specs = declared(percentiles=percentiles_of([group.jobs]))
    return Measurements(metrics, series, histograms, (*warnings, *said_together(group.jobs)), facts, declared=specs)


def _written(document: Document) -> datetime | None:
    seconds, milliseconds = document.root.timestamp, document.root.timestamp_ms
    try:
        if milliseconds is not None:
            return datetime.fromtimestamp(milliseconds / 1000, UTC)
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
