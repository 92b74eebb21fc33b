"""What the columns of a table are: its user's mapping, as ``storlab import csv`` takes it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, get_args

from storlab.base.errors import UserError
from storlab.base.units import shown
from storlab.metrics import Better

_KIB = 1024.0
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"B": 1.0, "KiB": _KIB, "MiB": _KIB**2, "GiB": _KIB**3, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}
UNITS: dict[str, tuple[float, str]] = {
    "1": (1, "1"),
    "%": (0.01, "1"),
    **{name: (size, "s") for name, size in _TIMES.items()},
    **{name: (size, "B") for name, size in _SIZES.items()},
    **{f"{name}/s": (size, "B/s") for name, size in _SIZES.items()},
    **{f"{name}/s": (size, "1/s") for name, size in {"1": 1.0, "k": 1e3, "M": 1e6}.items()},
}
"""Unit as its user writes it → what one of it is in a base unit, and that base unit."""

_SPELLED = {
    **{name: unit for unit in ("ns", "us", "ms", "s") for name in (f"{unit}ec", f"{unit}ecs")},
    **dict.fromkeys(("µs", "μs", "µsec", "μsec"), "us"),  # the sign micro, and the letter mu
    **{f"{size}{per}": f"{size}/s" for size in _SIZES for per in ("/sec", "ps")},
    **dict.fromkeys(("iops", "IOPS", "IO/s", "ops/s", "op/s", "req/s", "tps", "qps", "Hz"), "1/s"),
    **dict.fromkeys(("seconds", "sec."), "s"),
    "percent": "%",
}
"""Other spellings of units in the headings of columns."""

_IN_HEADING = re.compile(r"(?P<name>.*\S)\s*(\((?P<round>[^()]*)\)|\[(?P<square>[^\[\]]*)\])")


@dataclass(frozen=True)
class ValueColumn:
    """A column of numbers: what one of them is in the base unit, which direction is better, and its metric.

    ``stated``: whether its user or its heading says the unit; else it is that of its fields, if they have one.
    """

    name: str
    factor: float = 1.0
    unit: str = "1"
    better: Better = "neither"
    metric: str = ""
    stated: bool = False


@dataclass(frozen=True)
class TableMapping:
    """What each column is. ``metric``: the column that names the metric of each row, in a long table.

    ``ignored``: columns that don't matter, whatever they say. ``separator``: between fields; without one, whichever of
    the usual ones the first line has most of. ``decimal``: the sign between whole numbers and fractions.
    """

    values: tuple[ValueColumn, ...]
    factors: tuple[str, ...] = ()
    metric: str | None = None
    round: str | None = None
    time: ValueColumn | None = None
    separator: str | None = None
    decimal: str = "."
    ignored: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        others = (self.metric, self.round, self.time.name if self.time else None)
        named = (name for name in others if name is not None)
        return (*(value.name for value in self.values), *self.factors, *named, *self.ignored)

    @property
    def each_row_a_trial(self) -> bool:
        return self.metric is None and self.round is None and self.time is None


def mapping_of(options: Mapping[str, Any]) -> TableMapping:
    """The mapping that a user gave, as the run's manifest keeps it: every option as it was written.

    Raises ``UserError``, which names the option and what to write instead.
    """
    values = tuple(value_column(text) for text in options.get("value", ()))
    if not values:
        raise UserError("--value is needed: the column that holds the numbers, such as --value IOPS:1/s:higher")
    metric = options.get("metric_column")
    if metric is not None and len(values) > 1:
        raise UserError("with --metric-column each row has one number: give --value once")
    time = options.get("time_column")
    when = None if time is None else _time_column(time)
    separator, decimal = _separator(options.get("separator")), options.get("decimal", ".")
    if decimal not in (".", ","):
        raise UserError(f"--decimal {shown(str(decimal))}: it is . or ,")
    if separator == decimal:
        raise UserError(f"--separator {shown(separator)} is --decimal as well: a table can have one of them only")
    columns = (values, tuple(options.get("factor_column", ())), metric, options.get("round_column"), when)
    found = TableMapping(*columns, separator, decimal, tuple(options.get("ignore_column", ())))
    twice = {name for name in found.columns if found.columns.count(name) > 1}
    if twice:
        raise UserError(f"the column {shown(sorted(twice)[0])} was given twice")
    return found


def _separator(text: str | None) -> str | None:
    """One sign; ``tab`` and ``\\t`` for what a shell does not make easy to write."""
    if text is None:
        return None
    sign = "\t" if text in ("tab", "\\t", "\t") else text
    if len(sign) != 1 or sign in '"\r\n' or sign.isalnum():
        raise UserError(f"--separator {shown(text)}: it is one sign, such as ; or | or tab")
    return sign


def value_column(text: str) -> ValueColumn:
    """``NAME``, ``NAME:UNIT`` or ``NAME:UNIT:BETTER``; a colon in the name needs all three. Raises ``UserError``.

    No unit, as in ``NAME::BETTER``: that of the heading.
    """
    parts: Sequence[str] = text.rsplit(":", 2)
    if len(parts) == 3 and parts[2] not in get_args(Better):
        raise UserError(f"--value {shown(text)}: {shown(parts[2])} is none of higher, lower and neither")
    name, unit, better = (*parts, "", "neither")[:3] if len(parts) == 1 else (*parts, "neither")[:3]
    if (unit and unit not in UNITS) or not name:
        raise UserError(f"--value {shown(text)}: write NAME:UNIT:BETTER, with a unit of {', '.join(UNITS)}")
    size = UNITS[unit or "1"]
    return ValueColumn(name, *size, better, name, bool(unit))  # type: ignore[arg-type]  # checked above


def found_in(value: ValueColumn, headings: Sequence[str]) -> ValueColumn:
    """The value with the column of a table that is meant, and its unit. Raises ``UserError`` for two units.

    ``METRIC=COLUMN`` gives it another name; a unit in the heading, ``read bw (MiB/s)``, need not be in either.
    """
    name = value.name
    metric, equals, column = name.partition("=")
    if name not in headings and _bare(name, headings) is None and equals and metric and column:
        value, name = replace(value, metric=metric), column
    heading = name if name in headings else _bare(name, headings) or name
    plain, unit = unit_of(heading)
    if unit is not None:
        renamed = value.metric if value.metric not in (name, heading) else plain
        if value.stated and (value.factor, value.unit) != UNITS[unit]:
            raise UserError(f"column {shown(heading)} has another unit in its heading than it is given here")
        factor, base = UNITS[unit]
        value = replace(value, metric=renamed, factor=factor, unit=base, stated=True)
    return replace(value, name=heading)


def _bare(name: str, headings: Sequence[str]) -> str | None:
    found = [heading for heading in headings if heading != name and unit_of(heading) != (heading, None)]
    found = [heading for heading in found if unit_of(heading)[0] == name]
    return found[0] if len(found) == 1 else None


def unit_of(heading: str) -> tuple[str, str | None]:
    """A heading without the unit that ends it, and that unit as ``UNITS`` has it: ``lat [usec]`` is in ``us``."""
    match = _IN_HEADING.fullmatch(heading)
    if match is None:
        return heading, None
    unit = named_unit((match["round"] or match["square"] or "").strip())
    return (match["name"], unit) if unit else (heading, None)


def named_unit(text: str) -> str:
    """The unit as ``UNITS`` has it, however it is spelled; empty where there is none of this name."""
    return text if text in UNITS else _SPELLED.get(text, "")


def _time_column(text: str) -> ValueColumn:
    name, _, unit = text.rpartition(":") if ":" in text else (text, "", "s")
    if UNITS.get(unit, (0, ""))[1] != "s":
        raise UserError(f"--time-column {shown(text)}: write NAME or NAME:UNIT, with a unit of ns, us, ms, s, min, h")
    return ValueColumn(name, *UNITS[unit], stated=":" in text)


# Fields of a table as text: what separates them, which have no figure, and the number in one with its own unit.

DELIMITERS = ",;\t"
_QUOTED = re.compile(r'"[^"]*"')
_NO_FIGURE = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "-", "–", "—"})
"""What programs and people write into a field that has no figure, in any case."""
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?)?\s?(Z|UTC|[-+]\d\d:?\d\d)?|\d\d:\d\d:\d\d([.,]\d+)?"
)
_NUMBERS = {
    decimal: re.compile(
        rf"([-+]?(?:\d+(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?|[-+]?\d{{1,3}}(?:{group}\d{{3}})+{point}\d+)"
        r"(?![\d.,])\s?(\D.{0,15})?",
        re.ASCII,
    )
    for decimal, point, group in ((".", r"\.", ","), (",", ",", r"\."))
}
"""Decimal sign → a number and what follows. Thousands are grouped only where a fraction shows which sign is which."""


@dataclass(frozen=True)
class Figure:
    """A number as its field has it: in ``unit`` where that says one, a key of ``UNITS``; multiplied by a prefix."""

    number: float
    unit: str = ""
    prefixed: bool = False

    @property
    def base(self) -> str:
        return UNITS[self.unit][1] if self.unit else ""


def delimiter_of(header: str, decimal: str = ".") -> str:
    """Whichever of the usual ones the line of headings has most of, outside of quotes."""
    bare = _QUOTED.sub("", header)
    return max(DELIMITERS.replace(decimal, ""), key=bare.count)


def plain(text: str, decimal: str) -> float | None:
    """The number that a field is, without anything else in it: of most fields, and quickly."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text and text.isascii() else None


def has_no_figure(text: str) -> bool:
    return text.strip().casefold() in _NO_FIGURE


def is_time(text: str) -> bool:
    """Whether it is a date or a time of day, which differs from row to row without being a setting."""
    return _TIME.fullmatch(text.strip()) is not None


def figure_of(text: str, decimal: str) -> Figure | None:
    """``98400``, ``1.2 GiB/s``, ``98.4k``, ``45%``; ``None`` where it is not a finite number, or of an unknown unit."""
    match = _NUMBERS[decimal].fullmatch(text.strip())
    if match is None:
        return None
    named = (match[2] or "").strip()
    unit = named_unit(named)
    number = float(match[1].replace("." if decimal == "," else ",", "").replace(decimal, "."))
    if not math.isfinite(number) or not (unit or not named or named in _PREFIXES):
        return None
    prefixed = bool(named and not unit)
    return Figure(number * _PREFIXES[named] if prefixed else number, unit, prefixed)


# What the columns of a table probably are, by the words of their headings: nobody else says it of a stranger's table.
#
# Nothing that is read depends on it but what is suggested, and what is asked about before rows become one cell.

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zµμß-ÿ]+|\d+")
_PER_SECOND = re.compile(r"\w+/s(ec)?\b")


def _words_in(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROUNDS = _words_in(
    "run runs round rounds rep reps repeat repetition iteration iter loop trial pass "
    "lauf durchlauf runde wiederholung durchgang"
)
_NUMBERED = frozenset(("no", "nr", "num", "number", "id", "index", "nummer"))
_LOWER = _words_in(
    "lat latency latencies clat slat time elapsed duration seconds sec secs usec msec nsec us µs ms ns s wait await "
    "delay stall stalls jitter percentile stddev stdev std error errors err fail failed failures retries "
    "latenz zeit dauer fehler"
)
_HIGHER = _words_in("iops ops tps qps bw bandwidth throughput rate speed durchsatz bandbreite mbs mbps")
_MEASURED = _LOWER | _HIGHER | frozenset(("mean", "avg", "average", "min", "max", "median", "per", "p", "th", "cpu"))
_SETTINGS = _words_in(
    "numjobs jobs job iodepth depth qd queue queues threads thread clients client procs processes workers nodes direct "
    "buffered sync fsync bs blocksize block blk xfer transfer size filesize filesizes record recordsize recsize reclen "
    "stripe chunk sector cluster runtime ramp scale port cores cpus vcpus disks drives rwmixread rwmix mix "
    "compression level tasks concurrency connections streams replicas"
)


def _words(heading: str) -> list[str]:
    """Those of its name, without a unit: ``latMsAvg`` has lat, ms and avg, ``p99lat`` p, 99 and lat."""
    return [word.lower() for word in _WORD.findall(_PER_SECOND.sub("rate", unit_of(heading)[0]))]


def is_round(heading: str) -> bool:
    words = _words(heading)
    rest = [word for word in words if word not in _NUMBERED]
    return len(rest) == 1 and rest[0] in _ROUNDS


def is_setting(heading: str) -> bool:
    words = _words(heading)
    together = "".join(words)
    measured = _MEASURED.intersection(words) or UNITS.get(unit_of(heading)[1] or "", (0, ""))[1] in ("1/s", "B/s")
    return not measured and (together in _SETTINGS or bool(_SETTINGS.intersection(words)))


def better_of(heading: str, base: str = "") -> Better:
    """Which direction is probably better: of times, percentiles and errors less, of rates more. ``base``: its unit."""
    words = _words(heading)
    percentile = any(word == "p" and after.isdigit() for word, after in pairwise(words))
    base = base or UNITS.get(unit_of(heading)[1] or "", (0, ""))[1]
    if percentile or base == "s" or _LOWER.intersection(words):
        return "lower"
    return "higher" if base in ("1/s", "B/s") or _HIGHER.intersection(words) else "neither"


def counts_per_second(heading: str) -> bool:
    """Whether it names a rate and no unit, whether known or not: ``IOPS``, ``tps``, but not ``IOPS (thousands)``."""
    return not heading.endswith((")", "]")) and bool({"iops", "ops", "tps", "qps"}.intersection(_words(heading)))
