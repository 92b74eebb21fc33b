"""fio's terse output of versions 3 to 5 (``--output-format=terse``, ``--append-terse``): each line is a report.

Source: fio 3.33, ``stat.c`` (``show_thread_status_terse_all``) and ``HOWTO.rst`` ("Terse output"). Version 3 is the
default; 4 adds trims after the writes, and 5 six more fields to each direction, at its end. Rates are KiB/s and
1/s, percentiles and extremes of latency µs, all cut to whole numbers. The metrics are those of ``output``, as far as a
line has them: no histogram, so percentiles combine over nothing. A line is a job, or with ``group_reporting`` all jobs
of a group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from storlab.errors import ParseError
from storlab.metrics import MetricSpec, Specs, Value, specs_of
from storlab.tools.fio.declared import METRICS, declared, wanted_percentiles

LINE = re.compile(rb"^[2-9];fio-[^;\n]*;", re.MULTILINE)
"""How a terse line of any version from 3 on begins (2 names no version of fio)."""

_DIRECTIONS = ("read", "write", "trim")
_FIRST = 5  # where the first direction begins
_COUNT, _NUMBER, _SHARE, _PERCENTILE = "a count", "a number", "a percentage", "a percentile, such as 99.000000%=209"
_KINDS = {
    _COUNT: r"\d{1,15}",
    _NUMBER: r"\d{1,15}(?:\.\d+)?|-?nan|inf",
    _SHARE: r"(?:\d{1,15}(?:\.\d+)?|-?nan|inf)%",
    _PERCENTILE: r"\d{1,3}(?:\.\d+)?%=\d{1,15}",
}
_DEFAULT = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
"""fio's own ``percentile_list`` (``def_percentile_list`` in ``stat.h`` of 3.33)."""
_DEFAULT_NAMES = frozenset(f"{each:.12g}" for each in _DEFAULT)
_LATENCY = (_COUNT, _COUNT, _NUMBER, _NUMBER)  # minimum, maximum, mean, deviation
_COMMON = (*[_COUNT] * 4, *_LATENCY, *_LATENCY, *[_PERCENTILE] * 20, *_LATENCY, _COUNT, _COUNT, _SHARE, *[_NUMBER] * 2)
_DIRECTION = {"3": _COMMON, "4": _COMMON, "5": (*_COMMON, _COUNT, *_LATENCY, _COUNT)}
_WAYS = {"3": _DIRECTIONS[:2], "4": _DIRECTIONS, "5": _DIRECTIONS}
_CPU = (_SHARE, _SHARE, *[_COUNT] * 3)
_AFTER = (*_CPU, *[_SHARE] * 29)  # then those of disks, of errors that were passed over, and a description


@dataclass(frozen=True)
class TerseDirection:
    """What was read, written or trimmed. Bytes/s, 1/s, bytes, s. ``extremes``: of latency, µs, as fio counts on."""

    bandwidth: float
    iops: float
    bytes: float
    runtime: float
    latency: dict[str, float]  # "mean", "min", "max", "p50", …: s
    extremes: tuple[float, float]


@dataclass(frozen=True)
class TerseReport:
    """One line. ``error`` is the errno that ended the job, or 0; ``directions`` are those that had any I/O."""

    version: str
    name: str
    group: int
    error: int
    directions: dict[str, TerseDirection]
    cpu: tuple[float, float]  # user, system, as shares of the run time
    counted: tuple[float, ...]  # context switches, major and minor faults
    percentiles: tuple[float, ...]  # those that become metrics

    @property
    def runtime(self) -> float:
        return max((way.runtime for way in self.directions.values()), default=0.0)

    @property
    def declared(self) -> tuple[MetricSpec, ...]:
        return declared(percentiles=self.percentiles)


def read_terse(line: str, source: str, number: int) -> TerseReport:
    """A terse line without its end. Raises ``ParseError`` with ``source`` and its ``number`` where it is none."""
    fields = line.split(";")
    version = fields[0]
    if version not in _WAYS:
        said = f"fio's terse output of version {version[:9]!r}: versions 3, its default, 4 and 5 are read"
        raise ParseError(said, source, number)
    width, number_of = len(_DIRECTION[version]), len(_WAYS[version])
    # unified_rw_reporting=2 adds all directions' sum after them
    directions = next((each for each in (number_of, number_of + 1, 1) if _form(version, each).match(line)), 0)
    if not directions:
        raise ParseError(_damage(fields), source, number)
    if directions == 1:
        said = "fio's terse line is of a run with unified_rw_reporting=1, which makes one of all directions"
        raise ParseError(f"{said}: have fio write JSON, or run it without that option", source, number)
    cpu = _FIRST + directions * width
    found = {way: _direction(fields[_FIRST + at * width :]) for at, way in enumerate(_WAYS[version])}
    return TerseReport(
        version=fields[1].removeprefix("fio-"),
        name=fields[2],
        group=int(fields[3]),
        error=int(fields[4]),
        directions={way: each for way, (each, _) in found.items() if each.bytes or each.bandwidth},
        cpu=(_number(fields[cpu]) / 100, _number(fields[cpu + 1]) / 100),
        counted=tuple(map(_number, fields[cpu + 2 : cpu + len(_CPU)])),
        percentiles=wanted_percentiles(":".join(stated) for _, stated in found.values() if stated != _DEFAULT_NAMES),
    )


def _kinds(version: str, directions: int) -> tuple[str, ...]:
    """Of the fields after the name, as far as each line has them."""
    return (_COUNT, _COUNT, *_DIRECTION[version] * directions, *_AFTER)


@cache
def _form(version: str, directions: int) -> re.Pattern[str]:
    fields = ";".join(f"(?:{_KINDS[kind]})" for kind in _kinds(version, directions))
    return re.compile(f"{version};[^;]*;[^;]*;{fields}(?=;|$)")


def _damage(fields: list[str]) -> str:
    """What is wrong with a line: the first field that isn't what belongs there."""
    kinds = ("", "", "", *_kinds(fields[0], len(_WAYS[fields[0]])))
    for at, (kind, text) in enumerate(zip(kinds, fields, strict=False)):
        if kind and not re.fullmatch(_KINDS[kind], text):
            said = f"fio's terse line is damaged: it has {len(fields)} fields, of which field {at + 1} should be {kind}"
            return f"{said}, and is {text[:40]!r}"
    return f"fio's terse line has {len(fields)} fields of {len(kinds)}: it was cut off"


def terse_values(report: TerseReport) -> Iterator[Value]:
    """Its metrics, of all jobs together: by direction, and over all where that is a sum."""
    specs = specs_of(report.declared)
    for way, direction in report.directions.items():
        yield from _of_direction(f"{way}.", direction, specs)
    ways = list(report.directions.values())
    if not ways:
        return
    if len(ways) == 1:
        yield from _of_direction("", ways[0], specs)
    else:
        yield from _rates(
            "", *(math.fsum(getattr(way, name) for way in ways) for name in ("bandwidth", "iops", "bytes"))
        )
    yield METRICS["cpu.user"].value(report.cpu[0])
    yield METRICS["cpu.system"].value(report.cpu[1])
    yield METRICS["runtime"].value(report.runtime)


def _of_direction(prefix: str, way: TerseDirection, specs: Specs) -> Iterator[Value]:
    """Of percentiles those that become metrics, which combine over nothing."""
    yield from _rates(prefix, way.bandwidth, way.iops, way.bytes)
    for name, seconds in way.latency.items():
        spec = specs.find(f"{prefix}latency.{name}")
        if spec.unit:
            value = spec.value(seconds)
            yield value if spec.percentile is None else replace(value, across="none")


def _rates(prefix: str, bandwidth: float, iops: float, size: float) -> Iterator[Value]:
    for name, number in (("bandwidth", bandwidth), ("iops", iops), ("bytes", size)):
        yield METRICS[f"{prefix}{name}"].value(number)


def _number(text: str) -> float:
    """A field; what fio could not compute is 0, as where nothing was measured."""
    value = float(text.removesuffix("%"))
    return value if math.isfinite(value) else 0.0


@lru_cache(256)
def _short(percentile: str) -> str:
    """``99`` for ``99.000000``."""
    return f"{float(percentile):.12g}"


def _direction(fields: Sequence[str]) -> tuple[TerseDirection, frozenset[str]]:
    """One that begins with these fields, and the percentiles that it states."""
    kib, bandwidth, iops, runtime = map(float, fields[:4])
    if not (kib or bandwidth):
        return TerseDirection(0.0, 0.0, 0.0, 0.0, {}, (0.0, 0.0)), frozenset()
    completion, total = ([_number(field) for field in fields[at : at + 3]] for at in (8, 32))
    stated = (field.split("%=") for field in fields[12:32])
    given = {_short(name): float(value) / 1e6 for name, value in stated if name != "0"}  # 0 where there are fewer
    # With disable_clat there is the total alone. Percentiles may be of either, and what took less than 1 µs has none.
    least, most, mean = completion if completion[1] else total
    latency = {"mean": mean / 1e6, "min": least / 1e6, "max": most / 1e6}
    latency |= {f"p{percentile}": value for percentile, value in given.items()}
    latency = {name: value for name, value in latency.items() if value}
    return TerseDirection(bandwidth * 1024, iops, kib * 1024, runtime / 1000, latency, (least, most)), frozenset(given)
