"""Runs of vdbench (``RD=``), in whichever file they are: intervals, and their average without the first or the warm-up.

Two kinds: raw I/O on disks or files (``SD``, ``WD``), and operations on a file system (``FSD``, ``FWD``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from storlab.base.errors import ParseError
from storlab.base.text import printable
from storlab.metrics import MetricSpec, Value, by_name, latencies

Numbers = Mapping[str, float]
"""Metric → its number in base units."""

_AVERAGE = re.compile(r"avg_\d{1,9}(?:-\d{1,9})?")
_OTHERS = re.compile(r"(?:std|min|max)_\d{1,9}(?:-\d{1,9})?")
_DAY = 86400.0
_BACK = 3000.0  # s by which clocks go back at most, but for an hour in autumn: all else is the next day
_LONGEST = 63
_FORMAT = re.compile(r"SD_format|format_for_.*", re.I)
OPERATIONS = (*("mkdir", "rmdir", "create", "open", "close", "delete", "getattr", "setattr", "access", "copy", "move"),)

METRICS = by_name(
    [
        MetricSpec("iops", "1/s", "higher", quantity="throughput", by_job=False, series=True),
        MetricSpec("rate", "1/s", "higher", quantity="throughput", by_job=False, series=True),
        MetricSpec(
            "bandwidth", "B/s", "higher", quantity="throughput", by_job=False, series=True, follows="iops"
        ),
        *(
            spec
            for way in ("read", "write")
            for spec in (
                MetricSpec(f"{way}.iops", "1/s", "higher"),
                MetricSpec(f"{way}.bandwidth", "B/s", "higher"),
            )
        ),
        *(spec for of in ("latency", "read.latency", "write.latency") for spec in latencies(of, "", ())),
        MetricSpec("latency.stddev", "s", "lower", "mean", of="latency", statistic="stddev"),
        MetricSpec("request.size", "B", across="mean"),
        MetricSpec("read.share", "1", across="mean", domain="share"),
        MetricSpec("queue.depth", "1"),
        MetricSpec("cpu", "1", across="mean", domain="share"),
        MetricSpec("cpu.system", "1", across="mean", domain="share"),
        *(
            spec
            for operation in OPERATIONS
            for spec in (
                MetricSpec(f"{operation}.rate", "1/s", "higher"),
                MetricSpec(f"{operation}.latency", "s", "lower", "merge", "latency"),
                MetricSpec(
                    f"{operation}.latency.mean", "s", "lower", "mean", of=f"{operation}.latency", statistic="mean"
                ),
            )
        ),
    ]
)  # fmt: skip
"""``rate``: of the operations that a file system was asked for (``fwdrate``), where ``iops`` are requests."""

SERIES = ("iops", "rate", "bandwidth", "latency.mean", "read.latency.mean", "write.latency.mean")
_RATE_OF = {
    **{f"{operation}.latency.mean": f"{operation}.rate" for operation in OPERATIONS},
    **{f"{way}.latency.{of}": f"{way}.iops" for way in ("read", "write") for of in ("mean", "max")},
}


@dataclass
class Interval:
    """One line: its number, when it was printed (s of the day), what it has."""

    number: int
    time: float | None
    numbers: Numbers


@dataclass
class Run:
    """One run. ``settings``: what it was told, as far as the file says. ``warm_up``: in s, which no average counts.

    ``last``: the time of the line before, in s of the day.
    """

    name: str
    line: int
    settings: dict[str, str] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    average: Numbers = field(default_factory=dict)
    warm_up: float = 0.0
    last: float | None = None

    @property
    def formats(self) -> bool:
        return _FORMAT.fullmatch(self.name) is not None

    def add(self, interval: str, time: float | None, numbers: Numbers) -> str:
        if time is not None and self.last is not None and 0 < (self.last - time) % _DAY < _BACK:
            return f"{self.name} goes back in time: lines are there twice, or those of two runs"
        self.last = time
        if _AVERAGE.fullmatch(interval) is not None:
            self.average = numbers
        elif interval.isascii() and interval.isdigit() and len(interval) < 10:
            number, last = int(interval), self.intervals[-1].number if self.intervals else -1
            if number <= last:
                why = "the line with which a run starts is missing, or lines are there twice"
                return f"interval {number} of {self.name} comes after {last}: {why}"
            self.intervals.append(Interval(number, time, numbers))
        elif _OTHERS.fullmatch(interval) is None:
            return f"{printable(interval)[:_LONGEST]} is neither an interval nor an average"
        return ""

    def values(self) -> Iterator[Value]:
        """Of the average; where the run was cut short before it, the mean of the intervals that it would count."""
        for name, number in done(self.average or self._mean()).items():
            yield METRICS[name].value(number)

    @property
    def counted(self) -> Sequence[Interval]:
        """The intervals that an average is of: those after the warm-up, or all but the first."""
        if not self.warm_up:
            return self.intervals[1:] or self.intervals
        step = self._step() or 1.0  # of a single interval: the usual one
        return [each for each in self.intervals if each.number * step > self.warm_up]

    def _mean(self) -> dict[str, float]:
        rest = self.counted
        names = dict.fromkeys(name for each in rest for name in each.numbers)
        means: dict[str, float] = {}
        for name in names:
            found = [each.numbers[name] for each in rest if name in each.numbers]
            means[name] = max(found) if name.endswith(".max") else sum(found) / len(found)
        return means

    def samples(self) -> Iterator[tuple[str, float, float]]:
        """Metric, time in s, value: of each interval, at its end. None where nobody knows how long intervals are."""
        step = self._step()
        if step is None:
            return
        known = {name for each in self.intervals for name, value in each.numbers.items() if value}
        for metric in SERIES:
            if metric in known:
                for each in self.intervals:
                    if metric in each.numbers:
                        yield metric, each.number * step, each.numbers[metric]

    def _step(self) -> float | None:
        """Whole seconds between two lines, as vdbench has only such."""
        steps = [
            ((later.time - earlier.time) % _DAY) / (later.number - earlier.number)
            for earlier, later in pairwise(self.intervals)
            if earlier.time is not None and later.time is not None and later.number > earlier.number
        ]
        step = round(median(steps)) if steps else 0
        return float(step) if step > 0 else None


def done(numbers: Numbers) -> dict[str, float]:
    """Without what was not done: its rate and times are printed as 0."""
    share = numbers.get("read.share")
    idle = {"read"} if share == 0 else {"write"} if share == 1 else set()
    if not any(numbers.get(name) for name in ("iops", "rate", "bandwidth")):
        return {}
    return {
        name: value
        for name, value in numbers.items()
        if name.partition(".")[0] not in idle or name == "read.share"
        if not (name in _RATE_OF and numbers.get(_RATE_OF[name], 1.0) == 0)
        if value or name in ("read.share", "iops", "rate", "cpu", "cpu.system", "queue.depth")
    }


# ``flatfile.html``: a line of column names after comments that begin with ``*``, then a line each interval.
#
# Source: vdbench's documentation, "Selective flatfile parsing", and the comments in the file, which explain each
# column. Times are in ms; a comment says what an MB is.

_FIRST = ("tod", "timestamp", "run", "interval")
_MIB, _MS, _PERCENT = 2.0**20, 1e-3, 1e-2
_COMMON: Mapping[str, tuple[str, float]] = {
    "mb/sec": ("bandwidth", _MIB),
    "resp": ("latency.mean", _MS),
    "resp_max": ("latency.max", _MS),
    "resp_std": ("latency.stddev", _MS),
    "read_resp": ("read.latency.mean", _MS),
    "write_resp": ("write.latency.mean", _MS),
    "read_max": ("read.latency.max", _MS),
    "write_max": ("write.latency.max", _MS),
    "cpu_used": ("cpu", _PERCENT),
    "cpu_kernel": ("cpu.system", _PERCENT),
}
_RAW = {
    "rate": ("iops", 1.0),
    "bytes/io": ("request.size", 1.0),
    "read%": ("read.share", _PERCENT),
    "queue_depth": ("queue.depth", 1.0),
}
_FILES: Mapping[str, tuple[str, float]] = {
    "rate": ("rate", 1.0),
    "read_rate": ("read.iops", 1.0),
    "write_rate": ("write.iops", 1.0),
    "mb_read": ("read.bandwidth", _MIB),
    "mb_write": ("write.bandwidth", _MIB),
    "xfersize": ("request.size", 1.0),
    **{f"{name}_rate": (f"{name}.rate", 1.0) for name in OPERATIONS},
    **{f"{name}_resp": (f"{name}.latency.mean", _MS) for name in OPERATIONS},
}
_SETTINGS = ("reqrate", "xfersize", "threads", "rdpct", "rhpct", "whpct", "seekpct", "lunsize")
_NOTHING = frozenset({"n/a", "NaN", "nan"})
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?")
_CLOCK = re.compile(r"(\d{2}):(\d{2}):(\d{2}\.\d{3})")


def is_flatfile(text: bytes) -> bool:
    return re.search(rb"^[ \t]*tod[ \t]+timestamp[ \t]+run[ \t]+interval\s", text, re.M | re.I) is not None


def read_flatfile(text: str, source: str) -> list[Run]:
    """All runs, in order. Raises ``ParseError`` with the line."""
    names: list[str] = []
    runs: list[Run] = []
    megabyte = 1e6 if "(MB=1000*1000)" in text.replace(" ", "") else _MIB
    lines = text.split("\n")
    for line, words in enumerate(lines, start=1):
        fields = words.split()
        if tuple(field.lower() for field in fields[:4]) == _FIRST:
            names = [field.lower() for field in fields]
        elif names and len(fields) >= len(_FIRST) and clock(fields[0]) is not None:
            if len(fields) != len(names):
                if line == len(lines):
                    break  # it was cut off
                raise ParseError(f"has {len(fields)} fields, and the line of names {len(names)}", source, line)
            _add(runs, dict(zip(names, fields, strict=True)), megabyte, source, line)
    if not names:
        raise ParseError("is no flatfile of vdbench: it has no line of names that begins with tod", source)
    return runs


def clock(text: str) -> float | None:
    """``16:24:32.018`` as s of the day."""
    match = _CLOCK.fullmatch(text)
    return None if match is None else int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])


def _add(runs: list[Run], row: Mapping[str, str], megabyte: float, source: str, line: int) -> None:
    raw = "bytes/io" in row
    columns = {**_COMMON, **(_RAW if raw else _FILES)}
    settings = _settings(row, _SETTINGS if raw else ("reqrate",))
    name = printable(row["run"])[:_LONGEST]
    numbers = {}
    for column, (metric, scale) in columns.items():
        text = row.get(column, "n/a")
        if text in _NOTHING:
            continue
        if _NUMBER.fullmatch(text) is None:
            raise ParseError(f"column {column}: {printable(text)[:_LONGEST]} is not a number", source, line)
        numbers[metric] = float(text) * (megabyte if scale == _MIB else scale)
    last = runs[-1] if runs else None
    again = last is not None and last.intervals and row["interval"] == "1"  # as one that was cut short
    if last is None or last.name != name or last.settings != settings or last.average or again:
        runs.append(Run(name, line, settings))
    if said := runs[-1].add(row["interval"], clock(row["tod"]), numbers):
        raise ParseError(said, source, line)


def _settings(row: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {
        name: printable(f"{float(row[name]):.15g}" if _NUMBER.fullmatch(row[name]) else row[name])[:_LONGEST]
        for name in names
        if row.get(name, "n/a") not in _NOTHING
    }
