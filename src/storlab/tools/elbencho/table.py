"""elbencho's CSV: results (``--csvfile``), a line a phase, and live statistics (``--livecsv``), a line each interval.

Source: https://github.com/breuner/elbencho/blob/master/docs/csv-docs.md, and its CHANGELOG for what came when. Fields
are not quoted: elbencho replaces commas in labels and in the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from storlab.errors import ParseError
from storlab.text import first, is_whole, printable
from storlab.tools.elbencho.phases import Phase, exact, is_operation, number
from storlab.units import size_text

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
    """Whether a text that begins like this is CSV of elbencho's, of either kind."""
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
    """What tells runs apart: sizes as they are written in a command, switches as words."""
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
    """Of each phase the lines of all threads together; those of single ones and of hosts are left out."""
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
    """One line: its rates as samples, its totals as those of the phase so far."""
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
