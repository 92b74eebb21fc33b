"""What the columns of a table are: its user's mapping, as ``storlab import csv`` takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from storlab.errors import UserError
from storlab.metrics import Better
from storlab.units import shown

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
        """Whether no column says that several rows belong together."""
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
    """The only heading that is this name and a unit."""
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
