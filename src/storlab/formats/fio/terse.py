"""fio's terse output of versions 3 to 5 (``--output-format=terse``, ``--append-terse``): each line is a report.

Source: fio 3.33, ``stat.c`` (``show_thread_status_terse_all``) and ``HOWTO.rst`` ("Terse output"). Version 3 is the
default; 4 adds trims after the writes, and 5 six more fields to each direction, at its end. Rates are KiB/s and
1/s, cut to whole numbers; latencies µs. The metrics are those of ``output``, as far as a line has them: no
histogram, so percentiles combine over nothing. A line is a job, or with ``group_reporting`` all jobs of a group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from storlab.errors import ParseError
from storlab.formats.fio.declared import METRICS
from storlab.metrics import PERCENTILES, Value, percentile_name

LINE = re.compile(rb"^[2-9];fio-[^;\n]*;", re.MULTILINE)
"""How a terse line of any version from 3 on begins (2 names no version of fio)."""

_DIRECTIONS = ("read", "write", "trim")
_FIRST = 5  # where the first direction begins
_WIDTHS = {"3": (41, 41), "4": (41, 41, 41), "5": (47, 47, 47)}  # how many fields each direction has
_AFTER = 34  # fields after them; those of disks, and a description, follow
_PERCENTILE = re.compile(r"(?P<name>\d+(\.\d+)?)%=(?P<value>\d+)")
_LARGEST = 1e15


@dataclass(frozen=True)
class TerseDirection:
    """What was read, written or trimmed. Bytes/s, 1/s, bytes, s."""

    bandwidth: float
    iops: float
    bytes: float
    runtime: float
    latency: dict[str, float]  # "mean", "min", "max", "p50", …: s


@dataclass(frozen=True)
class TerseReport:
    """One line. ``error`` is the errno that ended the job, or 0; ``directions`` are those that had any I/O."""

    version: str
    name: str
    group: int
    error: int
    directions: dict[str, TerseDirection]
    cpu: tuple[float, float]  # user, system, as shares of the run time


def read_terse(line: str, source: str, number: int) -> TerseReport:
    """A terse line without its end. Raises ``ParseError`` with ``source`` and its ``number`` where it is none."""
    fields = line.split(";")
    widths = _WIDTHS.get(fields[0])
    if widths is None:
        said = f"fio's terse output of version {fields[0][:9]!r}: versions 3, its default, 4 and 5 are read"
        raise ParseError(said, source, number)
    cpu = _FIRST + sum(widths)
    if _begins_cpu(fields, _FIRST + widths[0]):
        said = "fio's terse line is of a run with unified_rw_reporting=1, which makes one of all directions"
        raise ParseError(f"{said}: have fio write JSON, or run it without that option", source, number)
    if len(fields) < cpu + _AFTER:
        said = f"fio's terse line has {len(fields)} fields of {cpu + _AFTER}: it was cut off"
        raise ParseError(said, source, number)
    if _begins_cpu(fields, cpu + widths[0]):
        cpu += widths[0]  # unified_rw_reporting=2 adds all directions' sum after them
    read = _Fields(fields, source, number)
    begins = [_FIRST + sum(widths[:way]) for way in range(len(widths))]
    directions = {way: read.direction(first) for way, first in zip(_DIRECTIONS, begins, strict=False)}
    return TerseReport(
        version=fields[1].removeprefix("fio-"),
        name=fields[2],
        group=int(read.at(3)),
        error=int(read.at(4)),
        directions={way: each for way, each in directions.items() if each.bytes or each.bandwidth},
        cpu=(read.at(cpu, "%") / 100, read.at(cpu + 1, "%") / 100),
    )


def _begins_cpu(fields: list[str], index: int) -> bool:
    """Whether the directions end there: a direction begins with KiB, and the CPU's part of the line with a share."""
    return index < len(fields) and fields[index].endswith("%")


def terse_values(report: TerseReport) -> Iterator[Value]:
    """Its metrics, of all jobs together: by direction, and over all where that is a sum."""
    for way, direction in report.directions.items():
        yield from _of_direction(f"{way}.", direction)
    ways = list(report.directions.values())
    if not ways:
        return
    if len(ways) == 1:
        yield from _of_direction("", ways[0])
    else:
        yield from _rates(
            "", *(math.fsum(getattr(way, name) for way in ways) for name in ("bandwidth", "iops", "bytes"))
        )
    yield METRICS["cpu.user"].value(report.cpu[0])
    yield METRICS["cpu.system"].value(report.cpu[1])
    yield METRICS["runtime"].value(max(way.runtime for way in ways))


def _of_direction(prefix: str, way: TerseDirection) -> Iterator[Value]:
    yield from _rates(prefix, way.bandwidth, way.iops, way.bytes)
    for name, seconds in way.latency.items():
        yield replace(METRICS[f"{prefix}latency.{name}"].value(seconds), across="none")


def _rates(prefix: str, bandwidth: float, iops: float, size: float) -> Iterator[Value]:
    for name, number in (("bandwidth", bandwidth), ("iops", iops), ("bytes", size)):
        yield METRICS[f"{prefix}{name}"].value(number)


@dataclass(frozen=True)
class _Fields:
    fields: list[str]
    source: str
    number: int

    def at(self, index: int, unit: str = "") -> float:
        text = self.fields[index]
        try:
            value = float(text.removesuffix(unit))
        except ValueError:
            value = math.nan
        if not 0 <= value <= _LARGEST:
            said = f"field {index + 1} of fio's terse line should be a number, and is {text[:40]!r}"
            raise ParseError(said, self.source, self.number)
        return value

    def direction(self, first: int) -> TerseDirection:
        kib, bandwidth, iops, runtime = (self.at(first + offset) for offset in range(4))
        latency = {name: self.at(first + 8 + at) / 1e6 for at, name in enumerate(("min", "max", "mean"))}
        found = (_PERCENTILE.fullmatch(field) for field in self.fields[first + 12 : first + 32])
        given = {float(match["name"]): float(match["value"]) / 1e6 for match in found if match is not None}
        latency |= {percentile_name(each): given[each] for each in PERCENTILES if each in given}
        return TerseDirection(bandwidth * 1024, iops, kib * 1024, runtime / 1000, latency)
