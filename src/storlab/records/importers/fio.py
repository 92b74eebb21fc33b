"""fio's output, from elsewhere: JSON, JSON+ or terse lines of version 3, with its logs where they lie beside.

Set-ups are told apart by the options of the jobs, as fio prints them, and never by file names. Jobs that ran one after
another (``stonewall``) are trials of their own; those that ran at once are one. The JSON says when it was written, so
repeats are put in the order of their times; terse lines don't, and are left in their order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from storlab.errors import ParseError, TrialError
from storlab.measurements import Measurements, metric_frame
from storlab.records.importers.base import Importer, Part
from storlab.records.importers.fio_traits import log_prefixes, options_of, said_of_jobs, traits_of
from storlab.units import printable
from storlab.workloads.fio_document import Document, read_document
from storlab.workloads.fio_logs import read_series
from storlab.workloads.fio_output import Report, frames, read_report
from storlab.workloads.fio_terse import LINE, read_terse, terse_values

_LOG = re.compile(r"(?P<prefix>.+)_(bw|iops|clat)\.\d+\.log")


class FioImporter(Importer):
    """A trial for each group of jobs that ran at once."""

    kind: ClassVar[str] = "fio"
    raw_name: ClassVar[str] = "fio-output"
    primary: ClassVar[str] = "bandwidth"
    unknown: ClassVar[str] = "on which machine it was, what else that did, nor what happened between the runs"
    repeats: ClassVar[bool] = True
    folders: ClassVar[bool] = True

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        parts = _terse_parts(text, source) if LINE.search(text) else []
        return parts or _json_parts(text, source)

    def knows(self, head: bytes) -> bool:
        return b'"fio version"' in head or LINE.search(head) is not None

    def beside(self, text: bytes, names: Collection[str]) -> Sequence[str]:
        try:
            document = read_document(text, "")
        except ParseError:
            return ()
        if not isinstance(document, Document):
            return ()
        prefixes = {prefix for job in document.root.jobs or () for prefix in log_prefixes(options_of(document, job))}
        return [name for name in sorted(names) if (log := _LOG.fullmatch(name)) and log["prefix"] in prefixes]

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        used = Counter(prefix for part in parts for prefix in _logs(part))
        return [_with_logs(part, folder, used) for part in parts]


def _json_parts(text: bytes, source: str) -> list[Part]:
    document = read_document(text, source)
    if not isinstance(document, Document):
        messages = () if b"\0" in text else document  # of a program, all lines may be anything
        said = next((line for line in messages if line.startswith("fio:")), "")
        message = "holds no result of fio, neither JSON nor terse lines of version 3"
        raise ParseError(f"{message}; it says: {printable(said)}" if said else message, source, 1)
    try:
        report = read_report(text, source)
    except TrialError as error:
        jobs = document.root.jobs or []
        traits = traits_of([options_of(document, job) for job in jobs])
        return [Part(Measurements(), traits=traits, started=_written(document), status="failed", reason=str(error))]
    return list(_phases(document, report))


def _phases(document: Document, report: Report) -> Iterator[Part]:
    """A part for each group of jobs. The report's warnings are with the first."""
    blocks = document.root.jobs or document.root.client_stats or []
    options = {job.name: options_of(document, block) for job, block in zip(report.jobs, blocks, strict=False)}
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
        prefixes = dict.fromkeys(prefix for name in names for prefix in log_prefixes(options.get(name, {})))
        if prefixes:
            facts["logs"] = list(prefixes)
        yield Part(
            Measurements(metrics, series, histograms, warnings if at == 0 else (), facts),
            traits={**traits[at], **({"job": " + ".join(dict.fromkeys(names))} if alike else {})},
            started=None if written is None else written - timedelta(seconds=sum(lasted[at:])),
        )


def _written(document: Document) -> datetime | None:
    milliseconds = document.root.timestamp_ms
    try:
        return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _logs(part: Part) -> list[str]:
    logs = part.measured.facts.get("logs")
    return list(logs) if isinstance(logs, list) else []


def _with_logs(part: Part, folder: Path, used: Mapping[str, int]) -> Part:
    """The part with the series of its logs: those that no other group of jobs wrote into, and that are averaged."""
    measured = part.measured
    options = measured.facts.get("options")
    if not isinstance(options, dict):
        return part
    series, warnings = [measured.series], list(measured.warnings)
    for prefix in _logs(part):
        found = [
            name.name for name in folder.iterdir() if (log := _LOG.fullmatch(name.name)) and log["prefix"] == prefix
        ]
        intervals = {str(job.get("log_avg_msec", "0")) for job in options.values()}
        interval = next(iter(intervals)) if len(intervals) == 1 else ""
        if not found:
            warnings.append(f"its logs {prefix}_*.log don't lie beside it: there are no series")
        elif used[prefix] > 1:
            warnings.append(f"its logs {prefix}_*.log are of jobs that ran one after another: there are no series")
        elif not interval.isascii() or not interval.isdigit() or not 0 < int(interval) < 10**7:
            warnings.append(f"its logs {prefix}_*.log have no log_avg_msec in common: there are no series")
        else:
            series.append(read_series(folder, prefix, int(interval) / 1000, list(options)))
    return replace(part, measured=replace(measured, series=pl.concat(series), warnings=tuple(warnings)))


def _terse_parts(text: bytes, source: str) -> list[Part]:
    """A part for each terse line. The last is left out where the file ends within it."""
    lines = text.decode(errors="replace").split("\n")
    numbers = [number for number, line in enumerate(lines, start=1) if LINE.match(line.encode())]
    said = said_of_jobs(lines)
    parts, warnings = [], list[str]()
    for number in numbers:
        if number == len(lines) and not text.endswith(b"\n"):
            warnings.append(f"line {number}: the terse line was cut off, and left out")
            continue
        report = read_terse(lines[number - 1].rstrip("\r"), source, number)
        traits = {"job": printable(report.name), **said.get(report.name, {})}
        facts: dict[str, object] = {"version": report.version}
        if report.error or not report.directions:
            reason = f"fio ended with errno {report.error}" if report.error else "fio moved no data"
            parts.append(Part(Measurements(facts=facts), traits=traits, status="failed", reason=reason))
        else:
            parts.append(Part(Measurements(metric_frame(terse_values(report)), facts=facts), traits=traits))
    if not parts:
        raise ParseError("fio's terse line was cut off: nothing is whole", source, numbers[0])
    if len(parts) > 1:
        warnings.append("terse lines don't say which jobs ran at once: each is taken to be a run of its own")
    parts[0] = replace(parts[0], measured=replace(parts[0].measured, warnings=tuple(warnings)))
    return parts
