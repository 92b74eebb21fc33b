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

from storlab.base.errors import ParseError
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

    def may_become(self, later: TerseDirection) -> bool:
        more = self.bytes <= later.bytes and self.runtime <= later.runtime
        return more and self.extremes[0] >= later.extremes[0] and self.extremes[1] <= later.extremes[1]


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


# Which terse lines are reports of a run that went on (``--status-interval``): the last of each run has all of it.
#
# Unlike fio's JSON, terse lines don't say when they were written. So lines are those of one run only where everything
# agrees: name, group and version are the same; bytes, context switches, page faults and extremes of latency never
# fall back; bytes increase, and the run time in equal steps, but for the first and the last. Repeats don't do that:
# of a fixed time, their run times are next to equal; of a fixed size, their bytes are.

_JITTER, _ROUNDED = 0.25, 0.1  # of a step, and s: fio's helper thread may be late
_LEAST = 0.1  # of the run time: two runs of a fixed time differ by less
_SEEN = 8  # steps before the next, of thousands
_MOST_JOBS = 32  # that a report lists one by one, without group_reporting


def last_of_each_run(reports: Sequence[TerseReport]) -> list[int]:
    """The numbers, from 0, of those that are no earlier state of a later one."""
    kept, at = list[int](), 0
    while at < len(reports):
        jobs, times = next(
            (
                (jobs, times)
                for jobs in range(1, min(_MOST_JOBS, (len(reports) - at) // 2) + 1)
                if _same(reports[at], reports[at + jobs]) and (times := _times(reports, at, jobs)) > 1
            ),
            (1, 1),
        )
        at += jobs * times
        kept += range(at - jobs, at)
    return kept


def _times(reports: Sequence[TerseReport], at: int, jobs: int) -> int:
    steps = [_Steps() for _ in range(jobs)]
    clones = [line.runtime for line in reports[at : at + jobs] if _same(line, reports[at])]
    if not _alike(clones):  # processes of one job begin at once
        return 1
    end = at
    while end + jobs <= len(reports):
        lines = reports[end : end + jobs]
        before = reports[end - jobs : end] if end > at else lines
        if not all(_goes_on(one, two) for one, two in zip(before, lines, strict=True)):
            break
        if not all(step.fits(line.runtime) for step, line in zip(steps, lines, strict=True)):
            return 1  # by its counts it may be the next, and yet its time isn't: so the others may be by chance
        for step, line in zip(steps, lines, strict=True):
            step.take(line.runtime)
        end += jobs
    times = (end - at) // jobs
    first, last = reports[at : at + jobs], reports[end - jobs : end]
    grown = sum(map(_bytes, first)) < sum(map(_bytes, last))
    return times if times > 1 and grown and any(step.apart for step in steps) else 1


def _same(one: TerseReport, two: TerseReport) -> bool:
    return (one.name, one.group, one.version, one.error) == (two.name, two.group, two.version, two.error)


def _goes_on(one: TerseReport, two: TerseReport) -> bool:
    ways = [(way, two.directions.get(name)) for name, way in one.directions.items()]
    counted = all(before <= after for before, after in zip(one.counted, two.counted, strict=True))
    return _same(one, two) and counted and all(later is not None and way.may_become(later) for way, later in ways)


def _bytes(report: TerseReport) -> float:
    return sum(way.bytes for way in report.directions.values())


def _alike(times: Sequence[float]) -> bool:
    return max(times) <= _later(min(times))


def _later(time: float) -> float:
    return time * (1 + _JITTER) + _ROUNDED


class _Steps:
    """The run times of one job's lines, as far as they are those of one run."""

    def __init__(self) -> None:
        self._at, self._steps, self._ended = 0.0, list[float](), False

    def fits(self, runtime: float) -> bool:
        """Whether it may be the next. A job may start later than others, and end before them."""
        step = runtime - self._at
        if step <= 0 or self._ended:
            return step == 0
        steps = [*self._steps[-_SEEN:], step]
        whole = steps[1:-1] or steps[1:]  # the first may be shorter, and so may the last
        return len(steps) < 3 or (_alike(whole) and max(steps) <= _later(max(whole)))

    def take(self, runtime: float) -> None:
        """Add it, which ``fits``."""
        step, self._at = runtime - self._at, runtime
        if step > 0:
            self._steps.append(step)
        else:
            self._ended = bool(self._steps)

    @property
    def apart(self) -> bool:
        """Whether it went on for longer than repeats differ by."""
        longest = max(self._steps, default=0.0)
        return longest > 2 * _ROUNDED and (
            len(self._steps) > 2 or min(self._steps[1:], default=0.0) > _LEAST * self._at
        )
