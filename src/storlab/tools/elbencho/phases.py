"""Phases of elbencho, in whichever file they are: creating directories, writing, reading, deleting, one after another.

Each has two columns of results: until the *first* thread was done with its share, and until the *last* was. The latter
is what the whole work took, and has the plain name here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

from storlab.base.errors import ParseError
from storlab.base.text import first, is_whole, printable
from storlab.base.units import size_text
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
        return "mixed.write" if self.mixed else self.name

    def values(self) -> Iterator[Value]:
        for name, numbers in ((self.written(), self.numbers), ("mixed.read", self.read if self.mixed else {})):
            for suffix, number in numbers.items():
                if (spec := Specs(of_name(name)).find(f"{name}.{suffix}")).unit:
                    yield Value(f"{name}.{suffix}", number, spec.unit, spec.better, spec.across)

    def declared(self) -> tuple[MetricSpec, ...]:
        return (*of_name(self.written()), *(of_name("mixed.read") if self.mixed else ()))


@cache
def of_name(name: str) -> tuple[MetricSpec, ...]:
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
        if not last or again or last[-1].settings != phase.settings:
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


def share_of_reads(operation: str) -> str | None:
    """What a mixed phase was told: the percentage of reads, or the number of threads that read."""
    match = _MIXED.fullmatch(operation.partition("+")[0])
    return None if match is None else operation.partition("+")[0]


# elbencho's CSV: results (``--csvfile``), a line a phase, and live statistics (``--livecsv``), a line each interval.
#
# Source: https://github.com/breuner/elbencho/blob/master/docs/csv-docs.md, and its CHANGELOG for what came when.
# Fields are not quoted: elbencho replaces commas in labels and in the command.

RESULTS = ("operation", "time ms [last]")
LIVE = ("Phase", "RuntimeMS", "Rank")
_MIB = 2.0**20
_RATES = {"entries/s": ("rate", 1.0), "IOPS": ("iops", 1.0), "MiB/s": ("bandwidth", _MIB)}
_TOTALS = {"entries [last]": ("entries", 1.0), "MiB [last]": ("bytes", _MIB)}
_LATENCIES = {
    f"{kind} lat us [{column}]": (f"{name}.{statistic}", 1e-6)
    for kind, name in (("IO", "latency"), ("Ent", "entry.latency"))
    for column, statistic in (("min", "min"), ("avg", "mean"), ("max", "max"))
}
_COLUMNS: Mapping[str, tuple[str, float]] = {
    "time ms [last]": ("time", 1e-3),
    "time ms [first]": ("time.first", 1e-3),
    **{f"{column} [last]": each for column, each in _RATES.items()},
    **{f"{column} [first]": (f"{name}.first", scale) for column, (name, scale) in _RATES.items()},
    "CPU% [last]": ("cpu", 1e-2),
    **_TOTALS,
    **_LATENCIES,
}
"""Column → what follows the phase's name, and what one of it is in base units."""
_SETTINGS = (
    *("label", "path type", "paths", "hosts", "threads", "dirs", "files", "file size", "block size", "direct IO"),
    *("random", "random aligned", "IO depth", "shared paths", "truncate"),
)
_SIZES = ("file size", "block size")
_SWITCHES = ("direct IO", "random", "random aligned", "shared paths", "truncate")
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})[.-](\d{1,4})")
_STARTS_SINCE = (3, 0, 27)
"""Before, the date of a line is that of the phase's end."""
_LONGEST = 63
_MOST = 100_000
"""Lines of a file: elbencho writes one a phase."""


def is_table(text: bytes) -> bool:
    names = text.partition(b"\n")[0].decode(errors="replace").strip().split(",")
    return set(RESULTS) <= set(names) or set(LIVE) <= set(names)


def read_table(text: str, source: str) -> list[Phase]:
    """All phases of a file of either kind. Raises ``ParseError`` with the line."""
    heading, *_ = text.partition("\n")
    names = [name.strip() for name in heading.strip().split(",")]
    if set(LIVE) <= set(names):
        return list(_live(text, names, source))
    rows = dict[tuple[str, ...], int]()  # the line on which each is
    phases, copies = list[Phase](), list[str]()
    for line, row in _rows(text, names, source):
        if row.get("ISO date") and rows.setdefault(tuple(row.values()), line) != line:
            copies.append(f"{line}")
        else:
            phases.append(_phase(line, row, source))
    if not phases:
        raise ParseError("is a table of elbencho without a phase", source, 1)
    if copies:
        phases[0].warnings.append(f"line {first(copies)}: the same as one above, date and all, and left out")
    return phases


def _rows(text: str, names: Sequence[str], source: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Lines with all of their fields; one of an older version, which had fewer columns, is refused."""
    lines = text.split("\n")
    if len(lines) > _MOST:
        raise ParseError(f"has more than {_MOST} lines", source, _MOST)
    for line, words in enumerate(lines[1:], start=2):
        if not words.strip() or words.strip() == lines[0].strip():
            continue  # before 2.1.3 each run wrote the names again
        fields = words.rstrip("\r").split(",", len(names) - 1)
        if len(fields) < len(names):
            if line == len(lines):
                return  # it was cut off
            raise ParseError(f"has {len(fields)} fields, and the first line {len(names)}", source, line)
        yield line, {name: field.strip() for name, field in zip(names, fields, strict=True)}


def _phase(line: int, row: Mapping[str, str], source: str) -> Phase:
    operation = row["operation"]
    if not is_operation(operation):
        raise ParseError(f"column operation: {printable(operation)[:_LONGEST]} is no phase of elbencho", source, line)
    phase = Phase(operation, line, settings=_settings(row), command=row.get("command", ""))
    for column, text in row.items():
        plain = column.removeprefix("rwmix read ")
        if plain not in _COLUMNS or not text:
            continue
        name, scale = _COLUMNS[plain]
        value = number(text)
        if value is None:
            raise ParseError(f"column {column}: {printable(text)[:_LONGEST]} is not a number", source, line)
        (phase.read if plain != column else phase.numbers)[name] = value * scale
    phase.started = _started(row, phase.numbers.get("time", 0.0))
    exact(phase)
    return phase


def _settings(row: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in _SETTINGS:
        text = row.get(name, "")
        if text and name in _SIZES and is_whole(text):
            text = size_text(int(text))
        elif name in _SWITCHES and text in ("0", "1"):
            text = "yes" if text == "1" else "no"
        if text:
            found[name] = printable(text)[:_LONGEST]
    return found


def _started(row: Mapping[str, str], lasted: float) -> datetime | None:
    """When the phase began, where the date has its zone."""
    try:
        date = datetime.fromisoformat(row.get("ISO date", ""))
        if date.tzinfo is None:
            return None
        version = _VERSION.search(row.get("version", ""))
        ended = version is None or tuple(map(int, version.groups())) < _STARTS_SINCE
        return (date - timedelta(seconds=lasted) if ended else date).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_SERIES = {
    "MiB/s": ("bandwidth", _MIB),
    "IOPS": ("iops", 1.0),
    "Entries/s": ("rate", 1.0),
    "Lat IO us": ("latency.mean", 1e-6),
    "Lat Ent us": ("entry.latency.mean", 1e-6),
}


def _live(text: str, names: Sequence[str], source: str) -> Iterator[Phase]:
    phases: list[Phase] = []
    last = -1.0
    for line, row in _rows(text, names, source):
        operation, runtime = row["Phase"], number(row["RuntimeMS"])
        if row["Rank"] != "Total":
            continue
        if runtime is None or not is_operation(operation):
            raise ParseError("is no line of live statistics: its phase or its run time is damaged", source, line)
        label = row.get("Label", "")
        if not phases or phases[-1].operation != operation or runtime < last:
            settings = {"label": printable(label)[:_LONGEST]} if label else {}
            phases.append(Phase(operation, line, settings=settings))
        last = runtime
        _add(phases[-1], row, runtime * 1e-3)
    if not phases:
        raise ParseError("is a table of elbencho's live statistics without a line of all threads", source, 1)
    for phase in phases:
        for numbers, of in ((phase.numbers, phase.written()), (phase.read, "mixed.read")):
            if rates := [value for name, _, value in phase.series if name == f"{of}.iops" and value]:
                numbers["iops"] = sum(rates) / len(rates)  # intervals are alike, and the file has no count
        done = {name for name, _, value in phase.series if value}
        phase.series = [sample for sample in phase.series if sample[0] in done]  # elbencho prints 0 of the others
        phase.warnings.append(
            f"{phase.operation}: by its live statistics, which end before the phase does: totals are those of the last "
            "line"
        )
        yield phase


def _add(phase: Phase, row: Mapping[str, str], time: float) -> None:
    read = phase.mixed and row.get("MixType") == "Read"
    numbers = phase.read if read else phase.numbers
    prefix = "mixed.read" if read else phase.written()
    for column, (name, scale) in _SERIES.items():
        value = number(row.get(column, ""))
        if value is not None:
            phase.series.append((f"{prefix}.{name}", time, value * scale))
    done, entries = number(row.get("DoneBytes", "")), number(row.get("Entries", ""))
    if not time:
        return
    if done:
        numbers |= {"bytes": done, "bandwidth": done / time}
    if entries:
        numbers |= {"entries": entries, "rate": entries / time}
