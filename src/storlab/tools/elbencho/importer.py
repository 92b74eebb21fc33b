"""elbencho's results: phases with the same settings that follow each other are a trial, until one comes again.

elbencho's results as it prints them, and as it appends them to a file (``--resfile``).

Source: https://github.com/breuner/elbencho/blob/master/docs/result-columns-explanation.md and what versions 1.6 to
3 print. A phase begins with its name in the first column and ends with ``---``. Numbers are whole, but times.
Before a run stands ``ISO DATE:`` or, of some versions, ``ISO DATE start:`` and after it ``ISO DATE end:``.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import ClassVar

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import printable
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import Value
from storlab.tools.elbencho.phases import (
    SYNCED,
    Bin,
    Phase,
    exact,
    in_trials,
    is_operation,
    is_table,
    number,
    read_table,
    share_of_reads,
)
from storlab.tools.importer import Part, TextImporter

_ISO_DATE = re.compile(r"ISO DATE(?: start)? *: (?P<date>.*)")
_ISO_END = re.compile(r"ISO DATE end *:.*")
_TOLD = ("LABEL: ", "COMMAND LINE: ")
_END, _RULE = "---", "========="
_HEADING = ["OPERATION", "RESULT", "TYPE", "FIRST", "DONE", "LAST", "DONE"]
BEGIN = rb"OPERATION +RESULT TYPE|ISO DATE|COMMAND LINE: |LABEL: "
"""What lines begin with that elbencho doesn't indent, beside the names of phases."""
_TIME = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6}(?:\.\d{1,3})?)s)?")
_MIB = 2.0**20
_TYPES = {
    "IOPS": ("iops", 1.0),
    "IOPS write": ("iops", 1.0),
    "Throughput MiB/s": ("bandwidth", _MIB),
    "Throughput MB/s": ("bandwidth", 1e6),
    "MiB/s write": ("bandwidth", _MIB),
    "MB/s write": ("bandwidth", 1e6),
    "Total MiB": ("bytes", _MIB),
    "MiB write": ("bytes", _MIB),
    "IOs total": ("operations", 1.0),
    "IOs write": ("operations", 1.0),
    "CPU util %": ("cpu", 1e-2),
}
_READS = {
    "IOPS read": ("iops", 1.0),
    "MiB/s read": ("bandwidth", _MIB),
    "MB/s read": ("bandwidth", 1e6),
    "MiB read": ("bytes", _MIB),
    "IOs read": ("operations", 1.0),
}
_ENTRIES = re.compile(r"(?P<what>Files|Objects|Buckets|Dirs)(?P<rate>/s)?(?: (?P<of>total|write|read))?")
_LATENCY = re.compile(
    r"(?P<what>Files|Objects|Buckets|Dirs|IO)(?: (?P<way>wr|rd))? (?P<kind>latency|lat % us|lat hist)"
)
_ONE_WAY = re.compile("IOPS|Throughput .*|Total MiB")
_WAY, _RATE = re.compile(" (?:write|read|wr|rd)(?: |$)"), re.compile("IOPS|/s")
_TOTAL = re.compile("Total MiB|MiB (?:write|read)|total$|IOs ")
_STATISTICS = {"min": "min", "avg": "mean", "max": "max"}
_PERCENTILE = re.compile(r"(\d{1,2}(?:\.9{1,9})?)%<=(\d{1,15}(?:\.\d)?)")
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(us|ms|s)")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_FRACTION = 4  # bins of its histogram for each doubling
_LONGEST_LOG2 = 28
_OPTIONS = {
    **dict.fromkeys(("-t", "--threads"), "threads"),
    **dict.fromkeys(("-b", "--block"), "block size"),
    **dict.fromkeys(("-s", "--size"), "file size"),
    **dict.fromkeys(("-n", "--dirs"), "dirs"),
    **dict.fromkeys(("-N", "--files"), "files"),
    "--iodepth": "IO depth",
    "--hosts": "hosts",
    "--timelimit": "time limit",
    "--limitread": "limit of reads",
    "--limitwrite": "limit of writes",
    "--rwmixthr": "threads that read",
}
_SWITCHES = {"--direct": "direct IO", "--rand": "random", "--trunc": "truncate", "--mmap": "mmap"}
_WITHOUT_VALUE = re.compile(
    r"-(?![tbsnN])\w|--(?:write|read|stat\w*|mkdirs|del\w+|sync|dropcache|lat\w*|cpu|all\w+|no\w+)"
)
_LONGEST, _LONGEST_PATHS = 63, 200
_OF_BLOCKS = re.compile("IOPS|Throughput |Total MiB|IO ")


def read_text(text: str, source: str) -> list[Phase]:
    """All phases. Raises ``ParseError`` where there is none."""
    phases: list[Phase] = []
    settings: dict[str, str] = {}
    started: datetime | None = None
    below = False  # a heading
    heading = False
    types: set[str] | None = None  # those that the phase has whose lines these are
    for line, words in enumerate(text.splitlines(), start=1):
        headed = heading
        heading = words.split(maxsplit=len(_HEADING)) == _HEADING
        if (date := _ISO_DATE.fullmatch(words)) is not None:
            settings, started, below, types = {}, _date(date["date"]), False, None
        elif _ISO_END.fullmatch(words) is not None:
            settings, started, below, types = {}, None, False, None
        elif words.startswith(_RULE) and not headed:  # below a heading that is missing
            settings, started, below, types = {}, None, True, None
        elif heading or words.startswith(_TOLD):
            if below:  # of the next run, whose date isn't there
                settings, started = {}, None
            below, types = heading, None
            settings |= _told(words)
        elif words.rstrip() == _END and types is not None:
            phases[-1].warnings.pop(0)
            types = None
        elif below and ":" in words:
            left, _, results = words.partition(":")
            type_ = left.split()
            begins = type_ and not left[0].isspace() and is_operation(type_[0])
            if begins and _in_columns(" ".join(type_[1:]), results):
                phases.append(Phase(type_.pop(0), line, settings=dict(settings), started=started))
                phases[-1].warnings.append(f"{phases[-1].operation} is cut short: no line {_END} ends it")
                started, types = None, set()  # a date is that of the first phase of a run only
            if not _in_columns(" ".join(type_), results):
                continue
            if types is not None:
                _check_order(phases[-1], types, " ".join(type_), line)
                _read(phases[-1], " ".join(type_), results.strip())
            elif left[0].isspace():
                raise ParseError("belongs to no phase: the line above it that names one is missing", source, line)
    if not phases:
        raise ParseError("is no output of elbencho: it has no phase below a heading OPERATION", source)
    told = f"\n{_TOLD[1]}" in text
    for phase in phases:
        exact(phase)
        if any("rate" in numbers and "entries" not in numbers for numbers in (phase.numbers, phase.read)):
            said = "has a rate of files and no total: one of them is of another phase, or missing"
            phase.warnings.append(f"line {phase.line}: {phase.operation} {said}")
        if told and not phase.settings:
            said = "nothing above says what elbencho was told, though the file does of some"
            phase.warnings.append(f"line {phase.line}: {said}")
    return phases


def _told(words: str) -> dict[str, str]:
    if words.startswith(_TOLD[0]):
        return {"label": printable(words.removeprefix(_TOLD[0]))[:_LONGEST]}
    return _settings(words.removeprefix(_TOLD[1])) if words.startswith(_TOLD[1]) else {}


def _check_order(phase: Phase, types: set[str], type_: str, line: int) -> None:
    """A phase has each type once, its totals below its rates, and none of other phases: else these are another's."""
    entries, of = _ENTRIES.fullmatch(type_), phase.name.partition(".")[0].capitalize()
    rate = _RATE.search(type_) is not None
    unlike = _ONE_WAY.fullmatch(type_) is not None if phase.mixed else _WAY.search(type_) is not None
    unlike |= entries is not None and of in ("Dirs", "Files", "Buckets", "Objects") and entries["what"] != of
    unlike |= _LATENCY.fullmatch(type_) is not None and not any(map(_RATE.search, types))
    unlike |= of in ("Dirs", "Files", "Buckets", "Objects") and _OF_BLOCKS.match(type_) is not None
    unlike |= rate and any(_TOTAL.search(each) and not _RATE.search(each) for each in types)
    if unlike or type_ in types:
        said = f"{type_} isn't where {phase.operation} has it, or there already"
        phase.warnings.append(f"line {line}: {said}: a line is missing, as that which names a phase, or twice")
    types.add(type_)


def _in_columns(type_: str, results: str) -> bool:
    """Whether they are results: any other line with a colon may begin with a word that looks like a phase's name."""
    return bool(type_) and (len(results.split()) == 2 or results.lstrip().startswith("[ "))


def _read(phase: Phase, type_: str, results: str) -> None:
    if results.startswith("[ ") and results.endswith(" ]"):
        _read_latencies(phase, type_, results[2:-2])
        return
    both = results.split(maxsplit=2)
    if len(both) != 2:
        return
    first, last = both
    if type_ in ("Elapsed time", "Elapsed ms"):
        times = [_seconds(text, "ms" if type_ == "Elapsed ms" else "") for text in (first, last)]
        _keep(phase.numbers, "time", times[0], times[1])
        return
    name, scale, numbers = "", 1.0, phase.numbers
    if type_ in _TYPES:
        name, scale = _TYPES[type_]
    elif type_ in _READS:
        (name, scale), numbers = _READS[type_], phase.read
    elif (entries := _ENTRIES.fullmatch(type_)) is not None and not (
        entries["what"] == "Dirs" and phase.name in ("write", "read", "mixed")
    ):  # of directories beside files (--dirstats), each has as many, so they say the same
        name, numbers = "rate" if entries["rate"] else "entries", phase.read if entries["of"] == "read" else numbers
        name = "" if entries["rate"] and entries["of"] == "total" else name
    if name:
        before, after = number(first), number(last)
        _keep(numbers, name, None if before is None else before * scale, None if after is None else after * scale)


def _keep(numbers: dict[str, float], name: str, first: float | None, last: float | None) -> None:
    if last is not None:
        numbers.setdefault(name, last)
        if first is not None and name in ("time", "iops", "bandwidth", "rate"):
            numbers.setdefault(f"{name}.first", first)


def _read_latencies(phase: Phase, type_: str, text: str) -> None:
    match = _LATENCY.fullmatch(type_)
    if match is None:
        return
    read = match["way"] == "rd" and phase.mixed
    numbers, prefix = (phase.read, "mixed.read") if read else (phase.numbers, phase.written())
    name = "latency" if match["what"] == "IO" else "entry.latency"
    if match["kind"] == "latency":
        for word in text.split():
            statistic, _, told = word.partition("=")
            duration = _DURATION.fullmatch(told)
            if statistic in _STATISTICS and duration is not None:
                numbers[f"{name}.{_STATISTICS[statistic]}"] = float(duration[1]) * _UNITS[duration[2]]
    elif match["kind"] == "lat % us":
        for percentile, bound in _PERCENTILE.findall(text):
            numbers[f"{name}.p{float(percentile):g}"] = float(bound) * 1e-6
    else:
        phase.bins += _bins(f"{prefix}.{name}", text)


def _bins(metric: str, text: str) -> Iterator[Bin]:
    """``1.2: 7, 2048: 9``: the upper edge of each in µs, of which each doubling has four; they are printed rounded."""
    for pair in text.split(", "):
        edge, _, count = pair.partition(": ")
        upper = number(edge)
        if upper is None or upper < 1 or not (count.isascii() and count.isdigit() and 0 < len(count) < 16):
            continue
        at = round(_FRACTION * math.log2(upper))
        if 1 <= at <= _FRACTION * _LONGEST_LOG2 and int(count):
            yield (
                metric,
                (2 ** ((at - 1) / _FRACTION) if at > 1 else 0.0) * 1e-6,
                2 ** (at / _FRACTION) * 1e-6,
                int(count),
            )


def _seconds(text: str, unit: str) -> float | None:
    """``2m3.241s``, ``85ms``; or a plain number of milliseconds, as versions before 2.3 print it."""
    if unit:
        value = number(text)
        return None if value is None else value * _UNITS[unit]
    if (short := _DURATION.fullmatch(text)) is not None:
        return float(short[1]) * _UNITS[short[2]]
    match = _TIME.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _settings(command: str) -> dict[str, str]:
    try:
        words = shlex.split(command[:100_000])
    except ValueError:
        return {}
    found = {_SWITCHES[word]: "yes" for word in words if word in _SWITCHES}
    for word, value in zip_longest(words, words[1:], fillvalue=""):  # the last word has none
        option, equals, own = word.partition("=")
        if option in _OPTIONS and (own or value):
            found[_OPTIONS[option]] = printable(own if equals else value)[:_LONGEST]
    paths = _paths(words[1:])
    return found | ({"paths": printable(" ".join(paths))[:_LONGEST_PATHS]} if paths else {})


def _paths(words: list[str]) -> list[str]:
    begin = next((at + 1 for at, word in reversed(list(enumerate(words))) if word.startswith("-")), 0)
    option = words[begin - 1] if begin else ""
    of_option = begin and "=" not in option and not (option in _SWITCHES or _WITHOUT_VALUE.fullmatch(option))
    return words[begin + 1 :] or words[begin:] if of_option else words[begin:]


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text.strip())
        return date.astimezone(UTC) if date.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


_TEXT = re.compile(rb"\nOPERATION +RESULT TYPE")
_TABLE = re.compile(rb"\n[^\n]{0,1000},(?:operation,time ms|RuntimeMS,Rank,)")
_SERIES_UNITS = {"bandwidth": "B/s", "mean": "s"}
"""Of series, by the end of their name; all others are rates."""


class ElbenchoImporter(TextImporter):
    """CSV of results and of live statistics, and text. Trials with the same settings are rounds."""

    kind: ClassVar[str] = "elbencho"
    raw_name: ClassVar[str] = "elbencho.txt"
    primary: ClassVar[tuple[str, ...]] = (
        *("write.bandwidth", "read.bandwidth", "mixed.write.bandwidth"),
        *("write.rate", "read.rate", "dirs.create.rate", "files.stat.rate", "files.delete.rate"),
    )
    unknown: ClassVar[str] = "on which storage it ran, whether caches were dropped, nor what else ran meanwhile"

    begin: ClassVar[bytes] = BEGIN
    binary: ClassVar[str] = "is no output of elbencho: neither CSV nor text"

    def parts(self, text: bytes, source: str) -> Sequence[tuple[int, Part]]:
        read, other = (read_table, _TEXT) if is_table(text[: 1 << 16]) else (read_text, _TABLE)
        if (found := other.search(text)) is not None:
            line = text.count(b"\n", 0, found.end()) + 1
            raise ParseError("begins another kind of elbencho's files, text or CSV: save each by itself", source, line)
        trials = in_trials(read(text.decode(errors="replace"), source))
        if not trials:
            raise ParseError("has no phase of elbencho but syncs and dropped caches", source)
        return [(trial[0].line, _part(trial)) for trial in trials]


def _part(phases: Sequence[Phase]) -> Part:
    values = list(_values(phases))
    warnings = [warning for phase in phases for warning in phase.warnings]
    traits = dict(phases[0].settings)
    mixed = [told for phase in phases if (told := share_of_reads(phase.operation)) is not None]
    if mixed:
        traits["mixed"] = mixed[0]
    started = next((phase.started for phase in phases if phase.started is not None), None)
    facts: dict[str, object] = {"phases": " ".join(phase.operation for phase in phases)}
    timed = [phase for phase in phases if not phase.syncs]
    bins = [(None, *each) for phase in timed for each in phase.bins]
    declared = dict.fromkeys(spec for phase in timed for spec in phase.declared())
    measured = Measurements(
        metric_frame(values),
        series=_series(timed),
        histograms=pl.DataFrame(bins, schema=HISTOGRAM_COLUMNS, orient="row"),
        warnings=tuple(warnings),
        facts=facts | dict(phases[0].settings),
        declared=(*declared, *((SYNCED,) if len(timed) < len(phases) else ())),
    )
    lasted = sum(phase.numbers.get("time", 0.0) for phase in phases)
    if not values:
        return Part(Measurements(facts=facts), traits=traits, status="failed", reason="elbencho measured nothing")
    return Part(measured, traits=traits, started=started, lasted=lasted if started else None)


def _values(phases: Sequence[Phase]) -> Iterator[Value]:
    for phase in phases:
        if not phase.syncs:
            yield from phase.values()
    syncs = [phase.numbers["time"] for phase in phases if phase.syncs and "time" in phase.numbers]
    if syncs:
        yield SYNCED.value(sum(syncs))


def _series(phases: Sequence[Phase]) -> pl.DataFrame:
    rows = [
        (None, metric, time, value, _SERIES_UNITS.get(metric.rpartition(".")[2], "1/s"))
        for phase in phases
        for metric, time, value in phase.series
    ]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row").sort("metric", maintain_order=True)
