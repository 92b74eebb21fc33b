"""Phases of elbencho, in whichever file they are: creating directories, writing, reading, deleting, one after another.

Each has two columns of results: until the *first* thread was done with its share, and until the *last* was. The latter
is what the whole work took, and has the plain name here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import pairwise

from storlab.metrics import MetricSpec, Specs, Value

_NAMES = {
    "MKDIRS": "dirs.create",
    "RMDIRS": "dirs.delete",
    "STATDIRS": "dirs.stat",
    "STAT": "files.stat",
    "RMFILES": "files.delete",
    "MKBUCKETS": "buckets.create",
    "RMBUCKETS": "buckets.delete",
    "HEADOBJ": "objects.stat",
    "RMOBJECTS": "objects.delete",
    "LISTOBJ": "objects.list",
}
_PAUSE = 10.0  # s
_DROP_CACHES = "DROPCACHE"
_OPERATION = re.compile(r"[A-Z][A-Z0-9_-]{1,30}(?:\+[a-z]){0,2}")
_MIXED = re.compile(r"(?:RWMIX|MIX-T)(?P<share>\d{1,9})")
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,9})?")

Bin = tuple[str, float, float, int]
"""Of a histogram: metric, lower and upper edge in s, and how many."""


@dataclass
class Phase:
    """One phase. ``numbers``: what follows its name → base units. ``read``: the reads of a mixed phase, likewise.

    ``bins``: name, lower, upper (s), count. ``settings``: what elbencho was told, as far as the file says. ``started``
    is aware. ``command``: the whole of it, where the file says it of each phase.
    """

    operation: str
    line: int
    numbers: dict[str, float] = field(default_factory=dict)
    read: dict[str, float] = field(default_factory=dict)
    bins: list[Bin] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    series: list[tuple[str, float, float]] = field(default_factory=list)
    started: datetime | None = None
    command: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """By which its metrics begin: ``write``; ``mixed`` of one that reads and writes at once."""
        plain = self.operation.partition("+")[0]
        return "mixed" if _MIXED.fullmatch(plain) else _NAMES.get(plain, plain.lower())

    @property
    def syncs(self) -> bool:
        """Whether it only brings to disk what others wrote; there may be several in a trial."""
        return self.name == "sync"

    @property
    def mixed(self) -> bool:
        return self.name == "mixed"

    def written(self) -> str:
        """The name of what is not read: that of the phase, or of the writes of a mixed one."""
        return "mixed.write" if self.mixed else self.name

    def values(self) -> Iterator[Value]:
        """All of its numbers as metrics."""
        for name, numbers in ((self.written(), self.numbers), ("mixed.read", self.read if self.mixed else {})):
            for suffix, number in numbers.items():
                if (spec := Specs(of_name(name)).find(f"{name}.{suffix}")).unit:
                    yield Value(f"{name}.{suffix}", number, spec.unit, spec.better, spec.across)

    def declared(self) -> tuple[MetricSpec, ...]:
        return (*of_name(self.written()), *(of_name("mixed.read") if self.mixed else ()))


@cache
def of_name(name: str) -> tuple[MetricSpec, ...]:
    """The metrics of a phase, or of one direction of a mixed one."""
    rates = [
        ("bandwidth", "B/s", True),
        ("iops", "1/s", True),
        ("rate", "1/s", True),
    ]
    return (
        *(
            spec
            for suffix, unit, series in rates
            for spec in (
                MetricSpec(
                    f"{name}.{suffix}", unit, "higher", quantity="throughput", by_job=False, series=series,
                    follows="" if suffix == "bandwidth" else f"{name}.bandwidth",
                ),
                MetricSpec(f"{name}.{suffix}.first", unit, "higher"),
            )
        ),
        MetricSpec(f"{name}.bytes", "B", quantity="bytes"),
        MetricSpec(f"{name}.entries", "1"),
        MetricSpec(f"{name}.operations", "1", quantity="operations"),
        MetricSpec(f"{name}.time", "s", "lower", "max"),
        MetricSpec(f"{name}.time.first", "s", "lower", "max"),
        MetricSpec(f"{name}.cpu", "1", "neither", "mean"),
        *_latencies(f"{name}.latency"),
        *_latencies(f"{name}.entry.latency"),
    )  # fmt: skip


def _latencies(of: str) -> tuple[MetricSpec, ...]:
    return (
        MetricSpec(of, "s", "lower", "merge", "latency"),
        MetricSpec(f"{of}.mean", "s", "lower", "mean", of=of, statistic="mean"),
        MetricSpec(f"{of}.min", "s", "lower", "min", of=of, statistic="min"),
        MetricSpec(f"{of}.max", "s", "lower", "max", of=of, statistic="max"),
        MetricSpec(of + ".p{percentile}", "s", "lower", "merge", of=of, statistic="percentile"),
    )


SYNCED = MetricSpec("sync.time", "s", "lower", "max")
"""How long all syncs of a trial took."""


def is_operation(text: str) -> bool:
    """Whether it can be the name of a phase."""
    return _OPERATION.fullmatch(text) is not None


def number(text: str) -> float | None:
    """A number as elbencho prints it; nothing for anything else."""
    return float(text) if _NUMBER.fullmatch(text) else None


def exact(phase: Phase) -> None:
    """Rates that elbencho rounds down to whole MiB/s, from the bytes and the time, where these say the same.

    Of a slow disk, 3 MiB/s may be anything below 4.
    """
    for numbers in (phase.numbers, phase.read):
        rate, total, time = (numbers.get(name) for name in ("bandwidth", "bytes", "time"))
        time = phase.numbers.get("time") if time is None else time
        if rate is not None and (total is None or not time):
            what = "total" if total is None else "time"
            phase.warnings.append(
                f"{phase.operation} lacks its {what}: its bandwidth is as it is printed, rounded down to whole MiB/s"
            )
        if rate is None or not total or not time or time < 1.0:
            continue
        if rate <= total / time * (1 + 2e-3) and total / time < (rate + 2**20) * (1 + 2e-3):
            numbers["bandwidth"] = total / time


def in_trials(phases: Iterable[Phase]) -> list[list[Phase]]:
    """Phases that follow each other with the same settings are a trial, until one comes again.

    So ``elbencho -w`` and ``elbencho -r`` on the same files are one, and ``--iterations`` are repeats.
    """
    trials: list[list[Phase]] = []
    for phase in phases:
        if phase.operation == _DROP_CACHES:
            continue
        last = trials[-1] if trials else []
        again = not phase.syncs and phase.name in {each.name for each in last}
        if not last or again or _apart(last[-1].settings, phase):
            trials.append([])
        trials[-1].append(phase)
    for trial in trials:
        for earlier, later in pairwise(trial):
            _warn_of_pause(earlier, later)
    return [trial for trial in trials if any(not phase.syncs for phase in trial)]


def _warn_of_pause(earlier: Phase, later: Phase) -> None:
    """One command goes from phase to phase at once, so these may be of two runs."""
    if later.command and later.command == earlier.command and earlier.started and later.started:
        pause = (later.started - earlier.started).total_seconds() - earlier.numbers.get("time", 0.0)
        if abs(pause) > _PAUSE:
            said = f"line {later.line}: {later.operation} began {pause:.0f} s after the end of {earlier.operation}"
            later.warnings.append(f"{said}, though of the same command: lines of two runs may be missing between them")


def _apart(settings: Mapping[str, str], phase: Phase) -> bool:
    return phase.settings != settings


def share_of_reads(operation: str) -> str | None:
    """What a mixed phase was told: the percentage of reads, or the number of threads that read."""
    match = _MIXED.fullmatch(operation.partition("+")[0])
    return None if match is None else operation.partition("+")[0]
