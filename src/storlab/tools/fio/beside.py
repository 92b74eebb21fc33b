"""fio's logs beside its JSON, as series: averaged ones (``log_avg_msec``), those with a line for every operation, and
those with histograms (``write_hist_log``).

Those of single operations may have gigabytes. They are read in chunks, by steps of a second; where the JSON has no
histograms (it isn't JSON+), theirs take that place. All of them count the same operations, so one kind is read: of
latencies where there is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.grouping import grouped
from storlab.measurements import Measurements
from storlab.tools.fio.declared import declared
from storlab.tools.fio.document import Document
from storlab.tools.fio.histogram_log import PACKED_HISTOGRAMS, read_histogram_logs, with_histogram_logs
from storlab.tools.fio.log_lines import IS_PACKED, is_cut, packed_logs
from storlab.tools.fio.logs import (
    AVERAGED_WRONG,
    MAXIMA,
    averages_are_sound,
    latencies_are_means,
    latency_log,
    read_series,
)
from storlab.tools.fio.operations import read_operations
from storlab.tools.fio.output import has_total
from storlab.tools.fio.parts import HISTOGRAM_LOGS, LOGS, jobs_of
from storlab.tools.fio.traits import log_prefixes, options_of
from storlab.tools.importer import Part

_LOG = re.compile(r"(?P<prefix>.+)_(?P<kind>bw|iops|clat|lat|slat|clat_hist)(\.(?P<number>\d+))?\.log", re.DOTALL)
_RATES = ("bw", "iops")
_LATENCIES = ("clat", "lat")
_KINDS = (*_LATENCIES, "bw", "iops", "slat")  # of single operations, the best first
_HISTOGRAM = "clat_hist"
_STEP = 1.0  # s


def logs_of(documents: Sequence[Document], names: Collection[str]) -> list[str]:
    """Which of ``names`` are logs that jobs of the documents wrote, and that are read."""
    found: dict[str, None] = {}
    groups = grouped(((at, job.groupid), job) for at, each in enumerate(documents) for job in jobs_of(each.root))
    for (at, _), jobs in groups.items():
        options = [options_of(documents[at], job) for job in jobs]
        total = any(has_total(job, documents[at].root) for job in jobs)
        for prefix in dict.fromkeys(prefix for each in options for prefix in log_prefixes(each)):
            found |= dict.fromkeys(_of(prefix, options, names, total=total))
        for prefix in dict.fromkeys(prefix for each in options for prefix in log_prefixes(each, histograms=True)):
            found |= dict.fromkeys(_histograms_of(prefix, names))
    return sorted(found)


def with_logs(parts: Sequence[Part], folder: Path) -> list[Part]:
    """The parts with what their logs in ``folder`` add. Raises ``ParseError`` with file and line."""
    used, used_histograms = (Counter(p for part in parts for p in _prefixes(part, of)) for of in (LOGS, HISTOGRAM_LOGS))
    names = [path.name for path in folder.iterdir() if path.is_file()] if used or used_histograms else []
    read = [_with_logs(part, folder, names, used) for part in parts]
    return [_with_histogram_logs(part, folder, names, used_histograms) for part in read]


def _prefixes(part: Part, of: str) -> list[str]:
    logs = part.measured.facts.get(of)
    return list(logs) if isinstance(logs, list) else []


def _options(part: Part) -> dict[str, dict[str, str]]:
    options = part.measured.facts.get("options")
    return options if isinstance(options, dict) else {}


def _logs(prefix: str, names: Iterable[str]) -> list[re.Match[str]]:
    return [log for log in map(_LOG.fullmatch, sorted(names)) if log and log["prefix"] == prefix]


def _of(prefix: str, jobs: Iterable[Mapping[str, str]], names: Collection[str], *, total: bool) -> list[str]:
    """The logs to read of those with this prefix: of single operations, those of one kind."""
    jobs = list(jobs)
    logs = [log for log in _logs(prefix, names) if log["kind"] != _HISTOGRAM]
    if any(_interval(job) != 0 for job in jobs):
        rates = _RATES if averages_are_sound(jobs) else ()
        wanted = (*rates, latency_log(total)) if latencies_are_means(jobs) else rates
    else:
        kinds = {log["kind"] for log in logs} - ({"clat"} if total else set())
        wanted = tuple(kind for kind in _KINDS if kind in kinds)[:1]
    return [log[0] for log in logs if log["kind"] in wanted]


def _histograms_of(prefix: str, names: Iterable[str]) -> list[str]:
    return [log[0] for log in _logs(prefix, names) if log["kind"] == _HISTOGRAM]


def _interval(job: Mapping[str, str], option: str = "log_avg_msec") -> float | None:
    """Over how many ms a job's logs are averaged; 0: not at all; nothing where that can't be read."""
    text = job.get(option, "0")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _with_logs(part: Part, folder: Path, names: Collection[str], used: Mapping[str, int]) -> Part:
    """The part with the series of its logs: those that no other group of jobs, nor another run, wrote into."""
    measured, options = part.measured, _options(part)
    jobs, total = list(options.values()), measured.facts.get("latency") == "total"
    for prefix in _prefixes(part, LOGS) if jobs else ():
        found = _of(prefix, jobs, names, total=total)
        interval = _interval(jobs[0])
        rates, means = interval == 0 or averages_are_sound(jobs), interval == 0 or latencies_are_means(jobs)
        left_out = list(_left_out(prefix, names, rates=rates, means=means, total=total))
        measured = _warned(measured, *left_out)
        if fault := _fault(found, jobs, used[prefix], folder, IS_PACKED if packed_logs(folder, prefix) else ""):
            said = f"its logs {prefix}_*.log {fault}: there are no series"
            measured = _warned(measured, said) if found or not left_out else measured
            continue
        measured = _warned(measured, *_cuts(folder, found))
        if interval:
            read = read_series(folder, prefix, interval / 1000, list(options), rates=rates, means=means, total=total)
            measured = replace(measured, series=pl.concat([measured.series, read]))
        else:
            measured = _with_operations(measured, folder, found, list(options))
    return replace(part, found=measured)


def _left_out(prefix: str, names: Collection[str], *, rates: bool, means: bool, total: bool) -> Iterator[str]:
    if not rates:
        yield f"its logs {prefix}_bw and {prefix}_iops are left out: {AVERAGED_WRONG}"
    kind = latency_log(total)
    if not means and any(log["kind"] == kind for log in _logs(prefix, names)):
        yield f"its logs {prefix}_{kind} are left out: {MAXIMA}"


def _warned(measured: Measurements, *warnings: str) -> Measurements:
    return replace(measured, warnings=(*measured.warnings, *warnings))


def _cuts(folder: Path, found: Iterable[str]) -> list[str]:
    return [f"{name} ends within a line, which is left out" for name in found if is_cut(folder / name)]


def _fault(found: Sequence[str], jobs: Sequence[Mapping[str, str]], used: int, folder: Path, packed: str) -> str:
    if fault := _fault_of_all(found, jobs, used, folder, packed):
        return fault
    intervals = {_interval(job) for job in jobs}
    if len(intervals) > 1 or None in intervals:
        return "have no log_avg_msec in common"
    if intervals != {0} and not all((log := _LOG.fullmatch(name)) and log["number"] for name in found):
        return "have the averages of several jobs in one (per_job_logs=0)"
    return ""


def _fault_of_all(found: Sequence[str], jobs: Iterable[Mapping[str, str]], used: int, folder: Path, packed: str) -> str:
    """What may be wrong with logs of any kind. ``packed``: what is to be said where only packed ones lie there."""
    if not found:
        return packed or "don't lie beside it"
    if not any((folder / name).stat().st_size for name in found):
        return "are empty"
    if used > 1:
        return "are of jobs or runs that ran one after another"
    if any(job.get(name, "0") != "0" for job in jobs for name in ("log_unix_epoch", "log_alternate_epoch")):
        return "have the time of day, and not that since the run began (log_unix_epoch)"
    return ""


def _numbered(found: Iterable[str]) -> list[re.Match[str]]:
    logs = [log for log in map(_LOG.fullmatch, found) if log]
    return sorted(logs, key=lambda log: int(log["number"] or 0))


def _with_operations(measured: Measurements, folder: Path, found: Sequence[str], jobs: Sequence[str]) -> Measurements:
    logs = _numbered(found)
    paths = {at: folder / log[0] for at, log in enumerate(logs, start=1)}
    read = read_operations(paths, _STEP, jobs if len(jobs) > 1 else ())
    series = read.series
    if logs[0]["kind"] not in _LATENCIES:
        rates = [spec.name for spec in declared() if spec.series]  # latencies of such logs are none
        series = series.filter(pl.col("metric").is_in(rates))
    elif measured.histograms.is_empty():
        measured = replace(measured, histograms=read.histograms)
    return replace(measured, series=pl.concat([measured.series, series]))


def _with_histogram_logs(part: Part, folder: Path, names: Collection[str], used: Mapping[str, int]) -> Part:
    """The part with percentiles over time, and histograms where there are none."""
    measured, options = part.measured, _options(part)
    for prefix in _prefixes(part, HISTOGRAM_LOGS) if options else ():
        found = _histograms_of(prefix, names)
        intervals = {_interval(job, "log_hist_msec") for job in options.values()}
        (interval,) = intervals if len(intervals) == 1 else (None,)
        packed = PACKED_HISTOGRAMS if packed_logs(folder, prefix) else ""
        fault = _fault_of_all(found, options.values(), used[prefix], folder, packed)
        if not fault and not interval:
            fault = "have no log_hist_msec in common"
        if fault or not interval:
            said = f"its logs {prefix}_clat_hist.*.log {fault}: there are no percentiles over time"
            measured = _warned(measured, said)
            continue
        paths = {at: folder / log[0] for at, log in enumerate(_numbered(found), start=1)}
        read = read_histogram_logs(paths, interval / 1000, list(options) if len(options) > 1 else ())
        measured = with_histogram_logs(_warned(measured, *_cuts(folder, found)), read)
    return replace(part, found=measured)
