"""fio's steady-state detection (``--steadystate``), as it reports it.

Source: fio's ``steadystate.c``, ``stat.c`` and ``HOWTO.rst``. fio watches a window of ``duration`` samples
and ends the job when the largest distance from the window's mean, or the slope of a least-squares line, is
below the limit. In its JSON ``bw`` is in B/s (a run of fio 3.33 shows it), ``iops`` in 1/s.

| metric | unit | |
| --- | --- | --- |
| ``steady.attained`` | 1 | 1 where the criterion was met, 0 where the job ended before |
| ``steady.deviation`` | 1 | largest distance from the window's mean, as a share of that mean |
| ``steady.slope`` | 1/s | slope as a share of the window's mean, per sample of one second |

Series ``steady.bandwidth`` and ``steady.iops``: the samples of the last window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from storlab.formats.fio.declared import METRICS
from storlab.formats.fio.document import JobBlock, SteadyBlock
from storlab.measurements import SERIES_COLUMNS, Value, empty

_QUANTITIES = ("iops", "bw", "lat")


@dataclass(frozen=True)
class Steady:
    """What the steady-state blocks of all jobs say; ``series`` has ``SERIES_COLUMNS``."""

    values: tuple[Value, ...] = ()
    series: pl.DataFrame = field(default_factory=lambda: empty(SERIES_COLUMNS))
    warnings: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)


_NONE = Steady()


def steady_states(jobs: Sequence[JobBlock], names: Sequence[str]) -> Steady:
    """The ``steadystate`` blocks of these jobs, whose names are ``names``."""
    values: list[Value] = []
    rows: list[tuple[str, str, float, float, str]] = []
    warnings: list[str] = []
    facts: dict[str, object] = {}
    for job, name in zip(jobs, names, strict=True):
        block = job.steadystate
        if block is None:
            continue
        facts[name] = block.criterion
        values.append(METRICS["steady.attained"].value(block.attained > 0, name))
        if not block.attained:
            warnings.append(f"job {name} did not reach its steady state ({block.criterion})")
        samples = _samples(block)
        if not samples:
            continue
        values += _flatness(block, samples, name)
        ends = _run_time(job)
        for quantity, metric, unit in (("bw", "steady.bandwidth", "B/s"), ("iops", "steady.iops", "1/s")):
            column = samples.get(quantity, [])
            # The window ends with the job; a sample is a second.
            rows += [
                (name, metric, max(ends - len(column) + at, 0.0), value, unit)
                for at, value in enumerate(column, start=1)
            ]
    if not facts:
        return _NONE
    values.append(METRICS["steady.attained"].value(not warnings))
    return Steady(
        values=tuple(values),
        series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"),
        warnings=tuple(warnings),
        facts={"steady.criterion": facts},
    )


def _samples(block: SteadyBlock) -> dict[str, list[float]]:
    """The window's samples by quantity. Where it didn't fill up it ends in zeros that were never measured."""
    read = zip(_QUANTITIES, (block.data.iops, block.data.bw, block.data.lat_ns), strict=True)
    columns = {quantity: [sample or 0.0 for sample in column] for quantity, column in read if column is not None}
    filled = min((len(column) for column in columns.values()), default=0)
    if not block.attained:
        while filled and not any(column[filled - 1] for column in columns.values()):
            filled -= 1
    return {key: column[:filled] for key, column in columns.items()} if filled else {}


def _flatness(block: SteadyBlock, samples: dict[str, list[float]], job: str) -> list[Value]:
    """The deviation or the slope, whichever fio computed; neither before the window was full."""
    quantity = block.criterion.split(":")[0].removesuffix("_slope")
    column = samples.get(quantity, [])
    mean = sum(column) / len(column) if column else 0.0
    if not mean or len(column) < block.duration:
        return []
    if "_slope" in block.criterion:
        return [METRICS["steady.slope"].value((block.slope or 0.0) / mean, job)]
    return [METRICS["steady.deviation"].value((block.max_deviation or 0.0) / mean, job)]


def _run_time(job: JobBlock) -> float:
    runtimes = [way.runtime for way in (job.read, job.write, job.trim, job.mixed) if way is not None]
    return max(runtimes, default=0) / 1000
