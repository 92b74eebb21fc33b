"""A file with fio's JSON: one document, or those of several runs that were appended to each other; and what tells one
job from another: its options, in one spelling, without those that change nothing measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import compress, pairwise
from pathlib import PurePosixPath

import polars as pl

from storlab.errors import ParseError, TrialError
from storlab.formats.fio.declared import declared
from storlab.formats.fio.document import DirectionBlock, Document, JobBlock, Root
from storlab.formats.fio.output import Report, frames, report_of
from storlab.importing.importer import Part
from storlab.measurements import Measurements
from storlab.text import printable
from storlab.units import parse_size, size_text

LOGS, HISTOGRAM_LOGS = "logs", "histogram logs"
"""Facts: how the names of the logs begin that a part's jobs wrote."""

_NOTE = re.compile(r"(<[^>]*> )?(fio:|note:|warning:|verify:)")


def json_parts(documents: Sequence[Document], broken: Sequence[ParseError], source: str) -> list[Part]:
    """A part for each group of jobs of each run, in order. The file's own warnings are with the first.

    ``broken``: documents that were cut off, or are damaged; there is at least one that isn't. Raises ``ParseError``.
    """
    ours = [each for each in documents if _jobs(each.root)]
    once = _once(ours)
    runs = _last_of_each_run(once)
    parts = [part for run in runs or documents for part in _parts(_without_chatter(run), source)]
    said = [f"line {error.line}: {_reason(error)}; that document is left out" for error in broken]
    others = [each.line for each in documents if not _jobs(each.root)]
    said += [f"line {line}: JSON that is no result of fio is left out" for line in others]
    if len(ours) > len(once):
        said.append(f"copies of its own reports are left out: {len(ours) - len(once)}")
    if len(once) > len(runs):
        said.append(f"reports of runs that went on (--status-interval) are left out: {len(once) - len(runs)}")
    first = parts[0].measured
    parts[0] = replace(parts[0], found=replace(first, warnings=(*said, *first.warnings)))
    return parts


def _reason(error: ParseError) -> str:
    return str(error).removeprefix(f"{error.source}:{error.line}: ")


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


def _last_of_each_run(documents: Sequence[Document]) -> list[Document]:
    """Without those that fio wrote while their run went on: the counts in them are of the next one, too."""
    ended = [not _goes_on(earlier.root, later.root) for earlier, later in pairwise(documents)]
    return [*compress(documents, ended), *documents[-1:]]


def _goes_on(earlier: Root, later: Root) -> bool:
    """Whether ``later`` reports on the run of ``earlier``: no count fell, and that run had begun by then.

    Runs that were appended to each other begin after the report before them. Where fio doesn't say when it wrote a
    report (``--client``), bytes must have been added.
    """
    if earlier.options != later.options or len(_jobs(earlier)) != len(_jobs(later)):
        return False
    pairs = list(zip(_jobs(earlier), _jobs(later), strict=True))
    if any((one.jobname, one.groupid, one.options) != (two.jobname, two.groupid, two.options) for one, two in pairs):
        return False
    ways = [way for one, two in pairs for way in zip(_directions(one), _directions(two), strict=True)]
    if not ways or not all(_grew(one, two) for one, two in ways):
        return False
    before, after = (sum(way.io_bytes for way in each if way is not None) for each in zip(*ways, strict=True))
    if earlier.timestamp_ms is None or later.timestamp_ms is None or not before:
        return bool(before < after)
    return later.timestamp_ms - 1000 * sum(_lasted(_jobs(later)).values()) < earlier.timestamp_ms


def _jobs(root: Root) -> Sequence[JobBlock]:
    return root.jobs or root.client_stats or ()


def _directions(job: JobBlock) -> tuple[DirectionBlock | None, ...]:
    return job.read, job.write, job.trim, job.mixed


def _grew(one: DirectionBlock | None, two: DirectionBlock | None) -> bool:
    """Whether two can be what became of one: more of everything, and extremes that are further apart."""
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


def _parts(document: Document, source: str) -> list[Part]:
    try:
        report = report_of(document, source)
    except TrialError as error:
        traits = traits_of([options_of(document, job) for job in _jobs(document.root)])
        return [Part(Measurements(), traits=traits, started=_written(document), status="failed", reason=str(error))]
    return list(_phases(document, report))


def _phases(document: Document, report: Report) -> Iterator[Part]:
    """A part for each group of jobs. The report's warnings are with the first."""
    options = {
        job.name: options_of(document, block) for job, block in zip(report.jobs, _jobs(document.root), strict=False)
    }
    phases = sorted({job.phase for job in report.jobs})
    groups = [tuple(replace(job, phase=0) for job in report.jobs if job.phase == phase) for phase in phases]
    traits = [traits_of([options.get(job.name, {}) for job in jobs]) for jobs in groups]
    alike = len(groups) > 1 and len({tuple(each.items()) for each in traits}) < len(groups)
    lasted = [max((job.runtime for job in jobs), default=0.0) for jobs in groups]
    written = _written(document)
    warnings = tuple(each for each in report.warnings if "several groups of jobs" not in each)
    for at, jobs in enumerate(groups):
        names = [job.name for job in jobs]
        own = replace(report.steady, series=report.steady.series.filter(pl.col("job").is_in(names)))
        own = replace(own, values=tuple(value for value in report.steady.values if value.job in names))
        metrics, series, histograms = (frame[:, 1:] for frame in frames([replace(report, jobs=jobs, steady=own)]))
        facts = report.facts | {"options": {name: options.get(name, {}) for name in names}}
        for fact, of_histograms in ((LOGS, False), (HISTOGRAM_LOGS, True)):
            found = [prefix for name in names for prefix in log_prefixes(options.get(name, {}), of_histograms)]
            if found:
                facts[fact] = list(dict.fromkeys(found))
        yield Part(
            Measurements(metrics, series, histograms, warnings if at == 0 else (), facts, declared=declared()),
            traits={**traits[at], **({"job": " + ".join(dict.fromkeys(names))} if alike else {})},
            started=None if written is None else written - timedelta(seconds=sum(lasted[at:])),
            lasted=lasted[at],
        )


def _written(document: Document) -> datetime | None:
    seconds, milliseconds = document.root.timestamp, document.root.timestamp_ms
    try:
        if milliseconds is not None:
            return datetime.fromtimestamp(milliseconds / 1000, UTC)
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


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
_JOB = re.compile(
    r"(?P<name>[^:]+): \(g=\d+\): rw=(?P<rw>\w+), bs=(?:\(R\) )?(?P<bs>\d+)B?-(?P<to>\d+)B?[,/].*"
    r"ioengine=(?P<ioengine>[\w:./-]+), iodepth=(?P<iodepth>\d+)"
)


def options_of(document: Document, job: JobBlock) -> dict[str, str]:
    """All options that hold for a job, the global ones among them, as fio prints them."""
    options = {**(document.root.options or {}), **(job.options or {})}
    return {str(name): str(value) for name, value in options.items()}


def traits_of(jobs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What can tell a group of jobs, of these options, from others. Where its jobs differ: ``read + write``."""
    spelled = [_spelled(options) for options in jobs]
    names = dict.fromkeys([*_DEFAULTS, *(name for options in spelled for name in options)])
    values = {name: [options.get(name, _DEFAULTS.get(name, "–")) for options in spelled] for name in names}
    return {name: " + ".join(dict.fromkeys(each)) for name, each in values.items()}


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    spelled = {}
    for name, value in options.items():
        name = _ALIASES.get(name, name)
        if name not in _NO_TRAITS and not _OF_LOGS.fullmatch(name):
            spelled[printable(name)] = _value(name, value)
    return spelled


def _value(name: str, value: str) -> str:
    """In one spelling: 4096 is 4k; an option without a value is on."""
    if name in _SIZES:
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
    found = {}
    for line in lines:
        if match := _JOB.match(line):
            options = {name: match[name] for name in ("rw", "ioengine", "iodepth")}
            least, most = match["bs"], match["to"]
            options["bs"] = size_text(int(least)) if least == most else f"{least}-{most}"
            found[match["name"]] = options
    return found
