"""Runs of vdbench (``RD=``), in whichever file they are: intervals, and their average without the first or the warm-up.

Two kinds: raw I/O on disks or files (``SD``, ``WD``), and operations on a file system (``FSD``, ``FWD``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from storlab.metrics import MetricSpec, Value, by_name, latencies
from storlab.text import printable

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
        """Whether it only lays out what others work on."""
        return _FORMAT.fullmatch(self.name) is not None

    def add(self, interval: str, time: float | None, numbers: Numbers) -> str:
        """Take a line in; or say why it can't be one of this run."""
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
