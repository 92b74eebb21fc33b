"""Which terse lines are reports of a run that went on (``--status-interval``): the last of each run has all of it.

Unlike fio's JSON, terse lines don't say when they were written. So lines are those of one run only where everything
agrees: name, group and version are the same; bytes, context switches, page faults and extremes of latency never fall
back; bytes increase, and the run time in equal steps, but for the first and the last. Repeats don't do that: of a
fixed time, their run times are next to equal; of a fixed size, their bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence

from storlab.tools.fio.terse import TerseDirection, TerseReport

_JITTER, _ROUNDED = 0.25, 0.1  # of a step, and s: fio's helper thread may be late
_LEAST = 0.1  # of the run time: two runs of a fixed time differ by less
_SEEN = 8  # steps before the next, of thousands
_MOST_JOBS = 32  # that a report lists one by one, without group_reporting


def last_of_each_run(reports: Sequence[TerseReport]) -> list[int]:
    """The numbers, from 0, of those that are no earlier state of a later one."""
    kept, at = list[int](), 0
    while at < len(reports):
        jobs, times = next(
            ((jobs, times) for jobs in _numbers(reports, at) if (times := _times(reports, at, jobs)) > 1), (1, 1)
        )
        at += jobs * times
        kept += range(at - jobs, at)
    return kept


def _numbers(reports: Sequence[TerseReport], at: int) -> list[int]:
    """How many lines a report that begins there may have: until one of the same job comes again."""
    first = reports[at]
    most = range(1, min(_MOST_JOBS, (len(reports) - at) // 2) + 1)
    return [number for number in most if _same(first, reports[at + number])]


def _times(reports: Sequence[TerseReport], at: int, jobs: int) -> int:
    """How many reports of so many lines each, from there on, are of one run."""
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
    """Whether ``two`` may be what became of ``one``."""
    ways = [(way, two.directions.get(name)) for name, way in one.directions.items()]
    counted = all(before <= after for before, after in zip(one.counted, two.counted, strict=True))
    return _same(one, two) and counted and all(later is not None and _grew(way, later) for way, later in ways)


def _grew(one: TerseDirection, two: TerseDirection) -> bool:
    more = one.bytes <= two.bytes and one.runtime <= two.runtime
    return more and one.extremes[0] >= two.extremes[0] and one.extremes[1] <= two.extremes[1]


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
