"""vdbench's flat file, summary and totals: a trial for each run (``RD=``), its intervals as series.

``summary.html`` and ``totals.html``, and what vdbench prints: a heading of two lines, then a line each interval.

Versions differ in their columns, so the heading says which there are: for raw I/O a word above and one below each
(``i/o`` and ``rate``), for file systems names in dots above one or two (``.ReqstdOps.`` above ``rate resp``). Times
are in ms; the heading says whether MB are MiB. The interval, or the words for an average, are right in a field of
10 or 12, so a long one touches the time: ``17:46:35.163avg_31-150``. Source: vdbench's documentation, "Report file
examples".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import is_whole, printable
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.tools.importer import Part, TextImporter
from storlab.tools.vdbench.runs import METRICS, OPERATIONS, Run, clock, is_flatfile, read_flatfile

_MIB, _MS, _PERCENT = 2.0**20, 1e-3, 1e-2
STARTING = re.compile(r"(?P<time>\d{2}:\d{2}:\d{2}\.\d{3}) Starting RD=(?P<name>[^;\s]+)(?P<told>;.*)?")
_HEADING = re.compile(r"(?:\S{1,20} )?\d{2}, \d{4}\s+(?P<names>\.*interval\.*\s.*)", re.I)
_TAG = re.compile(r"<[^<>]{0,200}>")
_SETTING = re.compile(r"([A-Za-z_]{1,30})=([^\s;]{1,60})")
_TOLD = re.compile(r"; (?:I/O rate: (?P<rate>[^;]+)|fwdrate=(?P<fwdrate>[^;.]+))", re.I)
_LINE = re.compile(
    r"(?P<time>\d{2}:\d{2}:\d{2}\.\d{3})(?:\s+(?P<interval>\d+)|\s*(?P<of>(?:avg|std|min|max)_\S*))(?P<numbers>\s.*)"
)
_MESSAGE = re.compile(r"\s*[^\d\s.-]")  # after a number: what follows is a word
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?")
_RAW: Mapping[str, tuple[str, float]] = {
    "i/o rate": ("iops", 1.0),
    "mb/sec 1024**2": ("bandwidth", _MIB),
    "mb/sec 1000**2": ("bandwidth", 1e6),
    "bytes i/o": ("request.size", 1.0),
    "read pct": ("read.share", _PERCENT),
    "resp time": ("latency.mean", _MS),
    "read resp": ("read.latency.mean", _MS),
    "write resp": ("write.latency.mean", _MS),
    "resp max": ("latency.max", _MS),
    "read max": ("read.latency.max", _MS),
    "write max": ("write.latency.max", _MS),
    "resp stddev": ("latency.stddev", _MS),
    "queue depth": ("queue.depth", 1.0),
    "cpu% sys+u": ("cpu", _PERCENT),
    "cpu% sys+usr": ("cpu", _PERCENT),
    "cpu% sys": ("cpu.system", _PERCENT),
}
_FILES: Mapping[str, tuple[str, float]] = {
    "reqstdops rate": ("rate", 1.0),
    "reqstdops resp": ("latency.mean", _MS),
    "cpu% total": ("cpu", _PERCENT),
    "cpu% sys": ("cpu.system", _PERCENT),
    "read pct": ("read.share", _PERCENT),
    "read rate": ("read.iops", 1.0),
    "read resp": ("read.latency.mean", _MS),
    "write rate": ("write.iops", 1.0),
    "write resp": ("write.latency.mean", _MS),
    "mb/sec read": ("read.bandwidth", _MIB),
    "mb/sec write": ("write.bandwidth", _MIB),
    "mb/sec total": ("bandwidth", _MIB),
    "xfer size": ("request.size", 1.0),
    **{f"{name} rate": (f"{name}.rate", 1.0) for name in OPERATIONS},
    **{f"{name} resp": (f"{name}.latency.mean", _MS) for name in OPERATIONS},
}
_PAIRS = (("rate", "resp"), ("total", "sys"), ("read", "write"))
"""Words that stand below one name, where they follow each other."""
_LONGEST = 63


def is_summary(text: bytes) -> bool:
    return re.search(rb"\d\d:\d\d:\d\d\.\d{3} Starting RD=", text) is not None


def read_summary(text: str, source: str) -> list[Run]:
    """All runs, in order. Raises ``ParseError`` where there is none, or with the line of a damaged one."""
    runs: list[Run] = []
    columns: list[tuple[str, float] | None] = []
    heading = ""
    begun = dict[tuple[str, float | None], int]()  # on which line each run does
    lines = [_TAG.sub("", line).strip() for line in text.split("\n")]
    for line, words in enumerate(lines, start=1):
        if heading:
            columns, heading = _columns(heading, words), ""
            if not columns:
                raise ParseError("is below the names of columns, and its words don't belong to these", source, line)
        elif (starting := STARTING.search(words)) is not None:
            told, time = _told(starting["told"] or ""), clock(starting["time"])
            warm_up = float(told["warmup"]) if is_whole(told.get("warmup", "")) else 0.0
            runs.append(Run(printable(starting["name"])[:_LONGEST], line, told, warm_up=warm_up, last=time))
            if (above := begun.setdefault((runs[-1].name, time), line)) != line:
                raise ParseError(f"{runs[-1].name} starts here and, at the same time, on line {above}", source, line)
        elif (found := _HEADING.fullmatch(words)) is not None:
            heading = found["names"]
        elif runs and columns and (of_run := _LINE.fullmatch(words)) is not None:
            _add(runs[-1], of_run, columns, source, line, cut=line == len(lines))
    if not runs:
        raise ParseError("is no output of vdbench: no run starts in it (Starting RD=)", source)
    return runs


def _told(text: str) -> dict[str, str]:
    """The rate that was asked for, how long, and what is looped over: ``For loops: threads=2 xfersize=4k``."""
    settings = {}
    if (rate := _TOLD.search(text)) is not None:
        settings["reqrate"] = printable((rate["rate"] or rate["fwdrate"]).strip())[:_LONGEST]
    named = ((name, printable(value)) for name, value in _SETTING.findall(text) if name != "fwdrate")
    return settings | dict(named)


def _columns(above: str, below: str) -> list[tuple[str, float] | None]:
    names = [word.strip(".").lower() for word in above.split()[1:]]
    parts = below.lower().split()
    if "reqstdops" not in names:
        known = [_RAW.get(f"{name} {part}") for name, part in zip(names, parts, strict=False)]
        return known if len(names) == len(parts) else []
    found: list[tuple[str, float] | None] = []
    for name in names:
        count = 2 if tuple(parts[:2]) in _PAIRS else 1
        found += [_FILES.get(f"{name} {part}") for part in parts[:count]]
        parts = parts[count:]
    return [] if parts else found


def _add(
    run: Run,
    of_run: re.Match[str],
    columns: Sequence[tuple[str, float] | None],
    source: str,
    line: int,
    *,
    cut: bool,
) -> None:
    words = of_run["numbers"].split()
    if (cut and len(words) < len(columns)) or (of_run["interval"] and _MESSAGE.match(of_run["numbers"])):
        return
    if len(words) != len(columns):
        raise ParseError(f"has {len(words)} numbers, and its heading {len(columns)} columns", source, line)
    said: dict[str, tuple[str, float]] = {}
    for text, column in zip(words, columns, strict=True):
        if column is None or text == "NaN":
            continue
        if _NUMBER.fullmatch(text) is None:
            raise ParseError(f"{printable(text)[:_LONGEST]} is not a number", source, line)
        said[column[0]] = text, column[1]
    interval = of_run["interval"] or of_run["of"]
    if wrong := run.add(interval, clock(of_run["time"]), _numbers(said)):
        raise ParseError(wrong, source, line)


def _numbers(said: Mapping[str, tuple[str, float]]) -> dict[str, float]:
    """In base units. A bandwidth of fewer digits than the rate has, as of small requests, is that of these requests."""
    numbers = {name: float(text) * scale for name, (text, scale) in said.items()}
    if {"iops", "bandwidth", "request.size"} <= said.keys():
        (text, scale), product = said["bandwidth"], numbers["iops"] * numbers["request.size"]
        unit = scale / 10 ** len(text.partition(".")[2])  # of the last digit: some are cut off, and not rounded
        if abs(product - numbers["bandwidth"]) < unit and _digits(text) < _digits(said["iops"][0]):
            numbers["bandwidth"] = product
    return numbers


def _digits(text: str) -> int:
    return len(text.replace(".", "").lstrip("0"))


_DECLARED = tuple(METRICS.values())


class VdbenchImporter(TextImporter):
    """Runs with the same name and settings are rounds of one cell. Those that only format are left out."""

    kind: ClassVar[str] = "vdbench"
    raw_name: ClassVar[str] = "vdbench.html"
    primary: ClassVar[tuple[str, ...]] = ("iops", "rate", "bandwidth")
    unknown: ClassVar[str] = "on which machines and storage it ran, nor what else ran meanwhile"

    binary: ClassVar[str] = "is no output of vdbench: neither a flat file nor a summary"

    def parts(self, text: bytes, source: str) -> Sequence[tuple[int, Part]]:
        if is_flatfile(text) and is_summary(text):
            raise ParseError("has the lines of a flat file and those of a summary: save each by itself", source)
        read = read_flatfile if is_flatfile(text) else read_summary
        runs = [run for run in read(text.decode(errors="replace"), source) if run.intervals or run.average]
        if not runs:
            raise ParseError("has no interval of a run of vdbench", source)
        parts = [(run.line, _part(run)) for run in runs if not run.formats]
        formats = [run.name for run in runs if run.formats]
        if not parts:
            raise ParseError(f"has only runs of vdbench that format ({formats[0]}): nothing was measured", source)
        line, first = parts[0]
        if formats and first.status == "done":
            parts[0] = line, first.warned(f"what only formats is left out: {', '.join(dict.fromkeys(formats))}")
        return parts


def _part(run: Run) -> Part:
    traits = {"run": run.name, **run.settings}
    facts: dict[str, object] = dict(traits)
    values = list(run.values())
    if not values:
        reason = f"line {run.line}: vdbench did no operation in {run.name}"
        if not (run.average or run.counted):
            reason = f"line {run.line}: {run.name} was cut short in its warm-up of {run.warm_up:g} s"
        return Part(Measurements(facts=facts), traits=traits, status="failed", reason=reason)
    rows = [(None, metric, time, value, METRICS[metric].unit) for metric, time, value in run.samples()]
    warnings: tuple[str, ...] = ()
    if not run.average:
        but = " without the first" if len(run.intervals) > 1 else ""
        but = f" after {run.warm_up:g} s of warm-up" if run.warm_up else but
        means = f"figures are the means of {len(run.counted)} of its intervals{but}"
        warnings = (f"{run.name} has no average: it was cut short, and {means}",)
    measured = Measurements(
        metric_frame(values),
        series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"),
        warnings=warnings,
        facts=facts,
        declared=_DECLARED,
    )
    return Part(measured, traits=traits)
