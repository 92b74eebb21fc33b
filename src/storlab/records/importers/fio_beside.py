"""fio's logs beside its JSON, as series: averaged ones (``log_avg_msec``), and those with a line for every operation.

The latter may have gigabytes. They are read in chunks, by steps of a second; where the JSON has no histograms (it isn't
JSON+), theirs take that place. All of them count the same operations, so one kind is read: of latencies where there is.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.measurements import Measurements
from storlab.records.importers.base import Part
from storlab.records.importers.fio_traits import log_prefixes, options_of
from storlab.workloads.fio_document import Document
from storlab.workloads.fio_logs import read_series
from storlab.workloads.fio_operations import read_operations

_LOG = re.compile(r"(?P<prefix>.+)_(?P<kind>bw|iops|clat|lat|slat)(\.(?P<number>\d+))?\.log")
_AVERAGED = ("bw", "iops", "clat")
_LATENCIES = ("clat", "lat")
_KINDS = (*_LATENCIES, "bw", "iops", "slat")  # of single operations, the best first
_STEP = 1.0  # s


def logs_of(documents: Iterable[Document], names: Collection[str]) -> list[str]:
    """Which of ``names`` are logs that jobs of the documents wrote, and that are read."""
    found: dict[str, None] = {}
    for document in documents:
        blocks = document.root.jobs or document.root.client_stats or ()
        options = [options_of(document, job) for job in blocks]
        for prefix in dict.fromkeys(prefix for each in options for prefix in log_prefixes(each)):
            found |= dict.fromkeys(_of(prefix, options, names))
    return sorted(found)


def with_logs(parts: Sequence[Part], folder: Path) -> list[Part]:
    """The parts with what their logs in ``folder`` add. Raises ``ParseError`` with file and line."""
    used = Counter(prefix for part in parts for prefix in _prefixes(part))
    return [_with_logs(part, folder, used) if _prefixes(part) else part for part in parts]


def _prefixes(part: Part) -> list[str]:
    logs = part.measured.facts.get("logs")
    return list(logs) if isinstance(logs, list) else []


def _of(prefix: str, jobs: Iterable[Mapping[str, str]], names: Collection[str]) -> list[str]:
    """The logs to read of those with this prefix: of single operations, those of one kind."""
    logs = [log for log in map(_LOG.fullmatch, sorted(names)) if log and log["prefix"] == prefix]
    kinds = {log["kind"] for log in logs}
    if any(_interval(job) != 0 for job in jobs):
        wanted: tuple[str, ...] = _AVERAGED
    else:
        unwritten = {"clat"} if any(job.get("disable_clat", "0") != "0" for job in jobs) else set()
        wanted = tuple(kind for kind in _KINDS if kind in kinds - unwritten)[:1]
    return [log[0] for log in logs if log["kind"] in wanted]


def _interval(job: Mapping[str, str]) -> float | None:
    """Over how many ms a job's logs are averaged; 0: not at all; nothing where that can't be read."""
    text = job.get("log_avg_msec", "0")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _with_logs(part: Part, folder: Path, used: Mapping[str, int]) -> Part:
    """The part with the series of its logs: those that no other group of jobs, nor another run, wrote into."""
    measured = part.measured
    options = measured.facts.get("options")
    if not isinstance(options, dict):
        return part
    for prefix in _prefixes(part):
        found = _of(prefix, options.values(), [path.name for path in folder.iterdir() if path.is_file()])
        fault = _fault(found, list(options.values()), used[prefix])
        if found and not any((folder / name).stat().st_size for name in found):
            fault = "are empty"
        cut = [
            f"{name} ends within a line, which is left out" for name in found if not fault and _is_cut(folder / name)
        ]
        measured = replace(measured, warnings=(*measured.warnings, *cut))
        if fault:
            warning = f"its logs {prefix}_*.log {fault}: there are no series"
            measured = replace(measured, warnings=(*measured.warnings, warning))
        elif interval := _interval(next(iter(options.values()))):
            series = read_series(folder, prefix, interval / 1000, list(options))
            measured = replace(measured, series=pl.concat([measured.series, series]))
        else:
            measured = _with_operations(measured, folder, found, list(options))
    return replace(part, measured=measured)


def _is_cut(log: Path) -> bool:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        return file.read(1) not in (b"", b"\n")


def _fault(found: Sequence[str], jobs: Sequence[Mapping[str, str]], used: int) -> str:
    """Why the logs can't be read, or nothing."""
    if not found:
        return "don't lie beside it"
    if used > 1:
        return "are of jobs or runs that ran one after another"
    intervals = {_interval(job) for job in jobs}
    if len(intervals) > 1 or None in intervals:
        return "have no log_avg_msec in common"
    if any(job.get(name, "0") != "0" for job in jobs for name in ("log_unix_epoch", "log_alternate_epoch")):
        return "have the time of day, and not that since the run began (log_unix_epoch)"
    if intervals != {0} and not all((log := _LOG.fullmatch(name)) and log["number"] for name in found):
        return "have the averages of several jobs in one (per_job_logs=0)"
    return ""


def _with_operations(measured: Measurements, folder: Path, found: Sequence[str], jobs: Sequence[str]) -> Measurements:
    """What a line for each operation adds: series, and histograms where there are none."""
    logs = [log for log in map(_LOG.fullmatch, found) if log]
    numbered = sorted(logs, key=lambda log: int(log["number"] or 0))
    read = read_operations(
        {at: folder / log[0] for at, log in enumerate(numbered, start=1)}, _STEP, jobs if len(jobs) > 1 else ()
    )
    series = read.series
    if logs[0]["kind"] not in _LATENCIES:
        series = series.filter(~pl.col("metric").str.ends_with("latency"))
    elif measured.histograms.is_empty():
        measured = replace(measured, histograms=read.histograms)
    return replace(measured, series=pl.concat([measured.series, series]))
