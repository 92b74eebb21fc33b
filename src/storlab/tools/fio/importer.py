"""fio's output, from elsewhere: JSON, JSON+, terse lines of versions 3 to 5, or for people, with the logs beside it.

Set-ups are told apart by the options of the jobs, as fio prints them, and never by file names. Jobs that ran one after
another (``stonewall``) are trials of their own; those that ran at once are one. The JSON says when it was written, so
repeats are put in the order of their times; terse lines don't, and are left in their order.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import grouped, printable
from storlab.measurements import Measurements, metric_frame
from storlab.tools.fio.declared import declared
from storlab.tools.fio.document import KEY, Document, NoJson, read_documents
from storlab.tools.fio.histogram import PACKED_HISTOGRAMS, read_histogram_logs, with_histogram_logs
from storlab.tools.fio.log_lines import IS_PACKED, is_cut, packed_logs
from storlab.tools.fio.logs import (
    AVERAGED_WRONG,
    MAXIMA,
    averages_are_sound,
    latencies_are_means,
    latency_log,
    read_series,
)
from storlab.tools.fio.normal import read_normal
from storlab.tools.fio.operations import read_operations
from storlab.tools.fio.output import has_total
from storlab.tools.fio.parts import (
    HISTOGRAM_LOGS,
    LOGS,
    jobs_of,
    json_parts,
    log_prefixes,
    normal_parts,
    options_of,
    said_of_copies,
    said_of_jobs,
    said_of_status,
    same_run,
)
from storlab.tools.fio.terse import LINE, TerseReport, last_of_each_run, read_terse, terse_values
from storlab.tools.importer import HOST_LOAD, Importer, Part
from storlab.tools.kinds import is_of
from storlab.tools.load_averages import LOADS, HostLoad, parse_host_loads
from storlab.tools.passed_on import labels_of, peeled

# fio's logs beside its JSON, as series: averaged ones (``log_avg_msec``), those with a line for every operation, and
# those with histograms (``write_hist_log``).
#
# Those of single operations may have gigabytes. They are read in chunks, by steps of a second; where the JSON has no
# histograms (it isn't JSON+), theirs take that place. All of them count the same operations, so one kind is read: of
# latencies where there is.

_LOG = re.compile(r"(?P<prefix>.+)_(?P<kind>bw|iops|clat|lat|slat|clat_hist)(\.(?P<number>\d+))?\.log", re.DOTALL)
_RATES = ("bw", "iops")
_LATENCIES = ("clat", "lat")
_KINDS = (*_LATENCIES, "bw", "iops", "slat")  # of single operations, the best first
_HISTOGRAM = "clat_hist"
_STEP = 1.0  # s


def logs_of(documents: Sequence[Document], names: Collection[str]) -> list[str]:
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
    used, used_histograms = (Counter(p for part in parts for p in _told(part, of)) for of in (LOGS, HISTOGRAM_LOGS))
    names = [path.name for path in folder.iterdir() if path.is_file()] if used or used_histograms else []
    read = [_with_logs(part, folder, names, used) for part in parts]
    return [_with_histogram_logs(part, folder, names, used_histograms) for part in read]


def _told(part: Part, fact: str) -> Any:
    """A fact of a part that was read of JSON: the beginnings of its logs' names, or its jobs' options."""
    return part.measured.facts.get(fact, {})


def _logs(prefix: str, names: Iterable[str]) -> list[re.Match[str]]:
    return [log for log in map(_LOG.fullmatch, sorted(names)) if log and log["prefix"] == prefix]


def _of(prefix: str, jobs: Iterable[Mapping[str, str]], names: Collection[str], *, total: bool) -> list[str]:
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
    measured, options = part.measured, _told(part, "options")
    jobs, total = list(options.values()), measured.facts.get("latency") == "total"
    for prefix in _told(part, LOGS) if jobs else ():
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
    measured, options = part.measured, _told(part, "options")
    for prefix in _told(part, HISTOGRAM_LOGS) if options else ():
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


_BOM = b"\xef\xbb\xbf"
_GROUPS = b"(groupid="  # bytes.find of what begins with ": " takes ten times as long in JSON
_IN_THE_MIDST = "fio's output is in the midst of other text"
_ONLY_ITS_LINES = "leave only its lines, from { to }"
_MOST = 5  # lines that are named
_VERSION_2 = re.compile(rb"^2;[^;\n]*;\d+;\d+;(\d+;){4}", re.MULTILINE)
_CUT = re.compile(r"[2-9](?:;fio-|;?f?i?o?\Z)")  # the beginning of a terse line, or of that
_WANTED = "run it with --output-format=json+ (or normal,json+ for both)"


class FioImporter(Importer):
    """A trial for each group of jobs that ran at once."""

    kind: ClassVar[str] = "fio"
    raw_name: ClassVar[str] = "fio-output"
    primary: ClassVar[tuple[str, ...]] = ("bandwidth",)
    unknown: ClassVar[str] = "on which machine it was, what else that did, nor what happened between the runs"
    repeats: ClassVar[bool] = True
    clients: ClassVar[bool] = True

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return _read(text.removeprefix(_BOM), source)

    def beside(self, name: str, text: bytes, names: Collection[str]) -> Sequence[str]:
        if not any(each.endswith(".log") for each in names):
            return ()  # as in most folders, where the text need not be parsed for it
        try:
            return logs_of(_known(text.removeprefix(_BOM), "").documents, names)
        except ParseError:
            return ()

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        return with_logs(parts, folder)


@dataclass(frozen=True)
class _Text:
    """A file, or what is left of it without what something else put before its lines."""

    text: bytes
    documents: list[Document]
    broken: list[NoJson]

    @property
    def unread(self) -> list[int]:
        """In which lines documents stand that could not be told from the text around them."""
        keys, line, at = list[int](), 1, 0
        for match in islice(KEY.finditer(self.text), len(self.documents) + len(self.broken) + _MOST):
            line, at = line + self.text.count(b"\n", at, match.start()), match.start()
            keys.append(line)
        starts = [each.line for each in self.documents] + [error.begins for error in self.broken]
        starts.sort()
        spans = pairwise([0, *keys])
        return [key for before, key in spans if bisect_right(starts, key) == bisect_right(starts, before)][:_MOST]


def _known(text: bytes, source: str) -> _Text:
    """The first form of the text that holds results, and nothing of fio's JSON that could not be read.

    Of its output for people the last form: a job may have any name, so its line is known behind anything.
    """
    forms = list[_Text]()
    for each in peeled(text):
        forms.append(_Text(each, *read_documents(each, source)))
        documents, keys = len(forms[-1].documents), len(KEY.findall(each))
        if documents >= keys and (documents or LINE.search(each)):
            return forms[-1]
    return max(reversed(forms), key=lambda form: (len(form.documents), _GROUPS in form.text))


def _read(text: bytes, source: str) -> Sequence[Part]:
    found = _known(text, source)
    text, documents, broken = found.text, found.documents, found.broken
    terse = LINE.search(text) is not None
    if documents:
        said = ["its terse lines are left out: the JSON counts"] if terse else []
        said += [f"line {line}: {_IN_THE_MIDST}, and left out" for line in found.unread]
        return _first_says(json_parts(documents, broken, source), [*said, *_of_people(text, documents, source)])
    if terse:
        return _terse_parts(text, source)
    groups = text.find(_GROUPS)
    if lines := found.unread or ([text.count(b"\n", 0, groups) + 1] if groups >= 0 and labels_of(text) else []):
        labels = labels_of(text)
        remedy = f"give each of these a file of its own: {', '.join(labels)}" if labels else _ONLY_ITS_LINES
        raise ParseError(f"{_IN_THE_MIDST}: {remedy}", source, lines[0])
    if groups >= 0 and (runs := read_normal(text, source)):
        return normal_parts(runs, source)
    raise broken[0] if broken else _refusal(text, source)


def _of_people(text: bytes, documents: Sequence[Document], source: str) -> list[str]:
    try:
        runs = read_normal(text, source) if _GROUPS in text else []
    except ParseError as error:
        return [f"line {error.line}: fio's output for people is left out: the JSON counts"]
    others = [each for each in runs if not any(same_run(each, document) for document in documents)]
    return [f"line {each.line}: a run in fio's output for people is left out: the JSON counts" for each in others]


def _refusal(text: bytes, source: str) -> ParseError:
    if match := _VERSION_2.search(text):
        line = text.count(b"\n", 0, match.start()) + 1
        return ParseError(f"fio's terse output of version 2 isn't read: {_WANTED}", source, line)
    lines = [] if b"\0" in text else text.decode(errors="replace").splitlines()  # of a program, lines may be anything
    said = next((line for line in lines if line.startswith("fio:")), "")
    message = "holds no result of fio, neither JSON nor terse lines"
    return ParseError(f"{message}; it says: {printable(said)}" if said else message, source, 1)


def _terse_parts(text: bytes, source: str) -> list[Part]:
    lines = [line.rstrip("\r") for line in text.decode(errors="replace").split("\n")]
    numbers = [number for number, line in enumerate(lines, start=1) if LINE.match(line.encode())]
    warnings = []
    if _CUT.match(lines[-1]) is not None:
        numbers = [number for number in numbers if number < len(lines)]
        if not numbers:
            raise ParseError("fio's terse line was cut off: nothing is whole", source, len(lines))
        warnings.append(f"line {len(lines)}: the terse line was cut off, and left out")
    reports = [read_terse(lines[number - 1], source, number) for number in numbers]
    runs = last_of_each_run(reports)
    if len(reports) > len(runs):
        warnings.append(said_of_status(len(reports) - len(runs)))
    once: dict[str, TerseReport] = {}
    for at in runs:
        once.setdefault(lines[numbers[at] - 1], reports[at])
    if len(runs) > len(once):
        warnings.append(said_of_copies(len(runs) - len(once)))
    if len(once) > 1:
        warnings.append("terse lines don't say which jobs ran at once: each is taken to be a run of its own")
    said = said_of_jobs(lines)
    return _first_says([_terse_part(report, said) for report in once.values()], warnings)


def _terse_part(report: TerseReport, said: Mapping[str, Mapping[str, str]]) -> Part:
    traits = {"job": printable(report.name), **said.get(report.name, {})}
    facts: dict[str, object] = {"version": report.version}
    if report.error or not report.directions:
        reason = f"fio ended with errno {report.error}" if report.error else "fio read and wrote nothing"
        return Part(Measurements(facts=facts), traits=traits, status="failed", reason=reason)
    measured = Measurements(metric_frame(terse_values(report)), facts=facts, declared=report.declared)
    return Part(measured, traits=traits)


def _first_says(parts: list[Part], warnings: Sequence[str]) -> list[Part]:
    return [parts[0].warned(*warnings, first=True), *parts[1:]]


# Results as lab notes keep them: fio's output of each machine that took part, and what ``w`` printed on their host.


class FalconImporter(FioImporter):
    """A trial for each moment: nodes' files of the same name, and the host's, are of one."""

    kind: ClassVar[str] = "falcon"
    raw_name: ClassVar[str] = "output"
    unknown: ClassVar[str] = "on which machines it was, what else these did, nor what happened between the runs"
    repeats: ClassVar[bool] = False
    by_node: ClassVar[bool] = True

    def knows(self, text: bytes) -> bool:
        return is_of(FioImporter.kind, text) or b"load average" in text

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if not is_of(FioImporter.kind, text) and (loads := parse_host_loads(text.decode(errors="replace"), source)):
            return [_load(each) for each in loads]
        return super().read(text, source, options)


def _load(host: HostLoad) -> Part:
    values = (spec.value(value) for spec, value in zip(LOADS, host.averages, strict=True))
    return Part(Measurements(metric_frame(values), facts=host.facts, declared=LOADS), source=HOST_LOAD)
