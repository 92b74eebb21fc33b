"""Waits for locks: what ``storlab-agent locks`` prints about them (``docs/reference/locks-output.md``), as metrics
(``docs/reference/metrics.md``) and histograms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import polars as pl

from storlab.base.errors import ParseError
from storlab.base.patterns import Pattern, PatternError, pattern
from storlab.base.units import shown
from storlab.measurements import HISTOGRAM_COLUMNS
from storlab.metrics import MetricSpec, Value, percentiles_of
from storlab.percentiles import percentiles_of_bins
from storlab.probes.lines import Count, Lines

Symbol = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_$]{1,512}\Z")]
LockType = Literal[
    "mutex", "rwsem-read", "rwsem-write", "percpu-rwsem-read", "percpu-rwsem-write", "semaphore",
    "spinlock", "rwlock-read", "rwlock-write", "rt-mutex", "rt-rw-read", "rt-rw-write", "other",
]  # fmt: skip
Waiter = Literal["own", "kernel", "other"]


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """A function that waits for locks of one type; ``None`` if its address is in no function that the kernel shows."""

    function: Symbol | None
    module: Symbol | None
    type: LockType


class Waits(msgspec.Struct, frozen=True, array_like=True):
    """Waits that ended, of one caller and one kind of waiter. ``times``: lower and upper bound in ns, count."""

    caller: Caller
    waiter: Waiter
    count: Count
    slept: Count
    time: Count
    times: tuple[tuple[Count, Count, Count], ...]


class Lost(msgspec.Struct, frozen=True):
    """What is not in the counts; ``missed`` is ``None`` if the kernel doesn't count that."""

    full: Count = 0
    begun: Count = 0
    ends: Count = 0
    locks: Count = 0
    missed: Count | None = 0


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line: from here on everything is counted. ``left_out``: ranges of functions that lock without room."""

    monotonic_ns: Count
    realtime_ns: Count
    left_out: Count = 0


class Counts(msgspec.Struct, frozen=True, tag_field="event", tag="counts"):
    """All that was counted since the start. ``locks``: how many different locks each caller waited for.

    ``waiting``: waits that had not ended.
    """

    final: bool
    monotonic_ns: Count
    realtime_ns: Count
    waits: tuple[Waits, ...]
    locks: tuple[tuple[Caller, Count], ...]
    waiting: Count
    lost: Lost


Line = Started | Counts

LINES: Lines[Line] = Lines(Line, Started, "the lock tracer")


def lost_sentences(lost: Lost) -> tuple[str, ...]:
    said = (
        (lost.full, "{} waits were not counted, because the table of callers was full"),
        (lost.begun, "{} waits were not counted, because too many went on at once"),
        (lost.ends, "{} waits were not counted, because their end was not seen"),
        (lost.missed, "{} times the kernel could not run the lock tracer: as many waits may not be counted"),
        (lost.locks, "{} waits were for locks that the full table had no room for: there are more different locks"),
    )
    unknown = "this kernel does not report how often it could not run the lock tracer"
    return (
        *(sentence.format(number) for number, sentence in said if number),
        *([unknown] if lost.missed is None else []),
    )


class Output(NamedTuple):
    """What one tracer printed: its first line, and its last counts."""

    started: Started
    counts: Counts

    @property
    def duration(self) -> float:
        """In s, until the last counts."""
        return max(self.counts.monotonic_ns - self.started.monotonic_ns, 0) / 1e9

    def warnings(self) -> tuple[str, ...]:
        end = "the lock tracer did not end cleanly: what came after its last count is missing"
        left_out = (
            f"{self.started.left_out} ranges of functions that lock had no room in the tracer: waits in them have "
            "these functions as their callers"
        )
        return (
            *(() if self.counts.final else (end,)),
            *((left_out,) if self.started.left_out else ()),
            *lost_sentences(self.counts.lost),
        )


def read_output(lines: Path | Iterable[bytes], source: str = "") -> Output:
    """The first line and the last counts of one tracer: none, if it was killed before. Raises ``ParseError``."""
    seen = Seen()
    for number, line in LINES.read(lines, source):
        if isinstance(line, Counts) and any(lo >= up or not n for each in line.waits for lo, up, n in each.times):
            raise ParseError("has a bin of times of no width, or of no count", source or str(lines), number)
        seen.add(line)
    assert seen.started is not None  # or there are no lines
    at = seen.started
    return Output(at, seen.counts or Counts(False, at.monotonic_ns, at.realtime_ns, (), (), 0, Lost()))


class Seen:
    """What came so far; ``apart``: waits of a command are counted apart from those of everybody else."""

    def __init__(self, apart: bool = False) -> None:
        self.apart = apart
        self.started: Started | None = None
        self.counts: Counts | None = None

    def add(self, line: Line) -> None:
        if isinstance(line, Started):
            self.started = line
        else:
            self.counts = line

    def output(self) -> Output | None:
        return None if self.started is None or self.counts is None else Output(self.started, self.counts)

    @property
    def elapsed(self) -> float:
        """In s."""
        output = self.output()
        return output.duration if output else 0.0

    def warnings(self) -> tuple[str, ...]:
        output = self.output()
        return output.warnings() if output else ("the lock tracer did not end cleanly: there are no counts",)


Groups = Mapping[str, Sequence[str]]
"""Name → patterns of functions, in the order in which they are tried."""
MOST_GROUPS = 16
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_PATTERN = re.compile(r"[A-Za-z0-9_$*]{1,128}")

CALLER = "caller"
"""The word of families that have a member for each function that waits."""
GROUP = "group"
"""The word of families that have a member for each group of functions which a study declares."""
UNKNOWN = "unknown"
"""Stands for a caller whose address is in no function that the kernel shows."""

_FOREMOST = 24
"""Callers of a trial that are looked at: those with the longest time, and those with the most waits. Few of the others
matter, and each more that is compared makes all of them harder to tell from chance."""
_KEPT = 500
"""Callers of a trial that become metrics, by time and by waits. What one beyond them has is next to nothing."""
WAITERS: tuple[Waiter, ...] = ("own", "kernel", "other")
_PERCENTILES = (50.0, 99.0)
_NANOSECOND = 1e-9

ALL_WAITS = MetricSpec("waits", "1", "lower", noun="waits for locks", evidence="shared")
ALL_TIME = MetricSpec("wait-time", "s", "lower", noun="waited for locks", evidence="shared")
GROUP_WAITS, GROUP_TIME = (
    replace(each, name=f"{each.name}.{{{GROUP}}}", noun=f"{each.noun} by the group {{{GROUP}}}")
    for each in (ALL_WAITS, ALL_TIME)
)
SHARES = {
    each.name: MetricSpec(each.name.replace(".", "-share."), "1", across="none", evidence="none", domain="share")
    for each in (GROUP_WAITS, GROUP_TIME)
}
"""Of what all groups waited."""
WAITS = MetricSpec(
    "waits.{caller}", "1", "lower", noun="waits for locks by {caller}", evidence="shared", zero_if_absent=True,
    foremost=_FOREMOST,
)  # fmt: skip
TIME = MetricSpec(
    "wait-time.{caller}", "s", "lower", noun="waited for locks by {caller}", evidence="shared", zero_if_absent=True,
    foremost=_FOREMOST,
)  # fmt: skip
LOCKS = MetricSpec("locks.{caller}", "1", across="max", evidence="none", zero_if_absent=True)
PER_OPERATION = {
    each.name: MetricSpec(
        each.name.replace("waits", "waits-per-operation").replace("wait-time", "wait-time-per-operation"),
        each.unit,
        "lower",
        "none",
        evidence="none",
        zero_if_absent=each.zero_if_absent,
    )
    for each in (ALL_WAITS, ALL_TIME, GROUP_WAITS, GROUP_TIME, WAITS, TIME)
}
"""For each operation of the loads."""
_HISTOGRAM = MetricSpec("{type}.wait", "s", "lower", "merge", "latency")
_OF_TIMES = percentiles_of(_HISTOGRAM.name, _PERCENTILES)
METRICS = (
    ALL_WAITS, ALL_TIME, GROUP_WAITS, GROUP_TIME, *SHARES.values(),
    WAITS, TIME, LOCKS, *PER_OPERATION.values(), _HISTOGRAM, *_OF_TIMES,
)  # fmt: skip
"""Members of a group's families have no dot, those of a caller's have one: ``waits.zil``, ``waits.mutex.zil_itx``."""


@dataclass
class Tally:
    """What one caller waited, in the lines of a tracer or in some of them. ``time`` in s."""

    count: int = 0
    slept: int = 0
    time: float = 0.0
    locks: int = 0
    times: Counter[tuple[int, int]] = field(default_factory=Counter)  # (lower, upper) in ns → count


def by_caller(counts: Counts, waiters: Collection[Waiter] = WAITERS) -> dict[Caller, Tally]:
    """Those who waited, the longest first. ``locks`` are of all waiters, whichever are asked for."""
    found: dict[Caller, Tally] = {}
    for each in counts.waits:
        if each.waiter in waiters:
            tally = found.setdefault(each.caller, Tally())
            tally.count += each.count
            tally.slept += each.slept
            tally.time += each.time * _NANOSECOND
            for lower, upper, count in each.times:
                tally.times[lower, upper] += count
    for caller, many in counts.locks:
        if caller in found:
            found[caller].locks = many
    return dict(sorted(found.items(), key=lambda item: -item[1].time))


def values(counts: Counts, groups: Groups | None = None) -> Iterator[Value]:
    callers = by_caller(counts)
    yield ALL_WAITS.value(sum(each.count for each in callers.values()))
    yield ALL_TIME.value(sum(each.time for each in callers.values()))
    for name, tally in _grouped(callers, groups or {}).items():
        yield GROUP_WAITS.value(tally.count, group=name)
        yield GROUP_TIME.value(tally.time, group=name)
    for name, tally in _named(callers).items():
        yield WAITS.value(tally.count, caller=name)
        yield TIME.value(tally.time, caller=name)
        yield LOCKS.value(tally.locks, caller=name)
    for kind, bins in _by_type(callers).items():
        for spec, seconds in zip(_OF_TIMES, percentiles_of_bins(bins, _PERCENTILES).values(), strict=True):
            yield spec.value(seconds, type=kind)


def _grouped(callers: Mapping[Caller, Tally], groups: Groups) -> dict[str, Tally]:
    """Of all callers, not only of those that become metrics; a group that never waited has 0."""
    found = {name: Tally() for name in groups}
    for caller, tally in callers.items():
        if (name := group_of(caller.function or UNKNOWN, groups)) is not None:
            found[name].count += tally.count
            found[name].time += tally.time
    return found


def _named(callers: dict[Caller, Tally]) -> dict[str, Tally]:
    """Those that become metrics. Functions of one name in two modules are one."""
    by_count = sorted(callers, key=lambda caller: -callers[caller].count)
    kept = {*list(callers)[:_KEPT], *by_count[:_KEPT]}
    found: dict[str, Tally] = {}
    for caller, tally in callers.items():
        if caller in kept:
            one = found.setdefault(f"{caller.type}.{caller.function or UNKNOWN}", Tally())
            one.count, one.time, one.locks = one.count + tally.count, one.time + tally.time, one.locks + tally.locks
    return found


def histograms(counts: Counts) -> pl.DataFrame:
    """``HISTOGRAM_COLUMNS``: how long waits took, by type of lock."""
    rows = [
        (None, _HISTOGRAM.name.format(type=kind), *each)
        for kind, bins in _by_type(by_caller(counts)).items()
        for each in bins
    ]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")


def _by_type(callers: dict[Caller, Tally]) -> dict[str, list[tuple[float, float, int]]]:
    """Lower and upper bound in s, and count."""
    sums: dict[str, Counter[tuple[int, int]]] = {}
    for caller, tally in callers.items():
        sums.setdefault(caller.type, Counter()).update(tally.times)
    return {
        kind: [(lower * _NANOSECOND, upper * _NANOSECOND, count) for (lower, upper), count in sorted(bins.items())]
        for kind, bins in sorted(sums.items())
        if bins
    }


def check_groups(groups: Groups) -> None:
    """Raise ``ValueError`` for a name that is no word of a metric's name, and for what can't match a function."""
    for name, patterns in groups.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not a valid name of a group: write lowercase letters, digits, hyphens")
        if not patterns:
            raise ValueError(f'the group {name} has no functions: write patterns, such as ["{name}_*"]')
        for each in patterns:
            if not _PATTERN.fullmatch(each):
                raise ValueError(
                    f"{shown(each)} matches no function of the kernel: write a name, with * for any characters"
                )
        try:
            _compiled(patterns)
        except PatternError as error:
            raise ValueError(f"the patterns of {name} can't be matched: {error}") from None


def group_of(function: str, groups: Groups) -> str | None:
    for name, patterns in groups.items():
        if next(_compiled(patterns).first_groups(function), None) is not None:
            return name
    return None


def _compiled(patterns: Sequence[str]) -> Pattern:
    written = (".*".join(re.escape(part) for part in each.split("*")) for each in patterns)
    return pattern(f"^({'|'.join(written)})$")
