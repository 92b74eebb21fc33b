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

from storlab.measurements import SERIES_COLUMNS, Value, empty
from storlab.workloads.fio_document import Node

_QUANTITIES = {"iops": "iops", "bw": "bw", "lat": "lat_ns"}


@dataclass(frozen=True)
class Steady:
    """What the steady-state blocks of all jobs say; ``series`` has ``SERIES_COLUMNS``."""

    values: tuple[Value, ...] = ()
    series: pl.DataFrame = field(default_factory=lambda: empty(SERIES_COLUMNS))
    warnings: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)


def steady_states(jobs: Sequence[Node], names: Sequence[str]) -> Steady:
    """The ``steadystate`` blocks of these jobs, whose names are ``names``."""
    values: list[Value] = []
    rows: list[tuple[str, str, float, float, str]] = []
    warnings: list[str] = []
    facts: dict[str, object] = {}
    for node, name in zip(jobs, names, strict=True):
        if "steadystate" not in node:
            continue
        block = node["steadystate"]
        criterion = block["ss"].text()
        attained = block["attained"].count() > 0
        facts[name] = criterion
        values.append(Value("steady.attained", attained, "1", "neither", "min", name))
        if not attained:
            warnings.append(f"job {name} did not reach its steady state ({criterion})")
        samples = _samples(block, attained)
        if not samples:
            continue
        values += _flatness(block, criterion, samples, name)
        ends = _run_time(node)
        for quantity, metric, unit in (("bw", "steady.bandwidth", "B/s"), ("iops", "steady.iops", "1/s")):
            column = samples.get(quantity, [])
            # The window ends with the job; a sample is a second.
            rows += [
                (name, metric, max(ends - len(column) + at, 0.0), value, unit)
                for at, value in enumerate(column, start=1)
            ]
    if not facts:
        return Steady()
    values.append(Value("steady.attained", not warnings, "1", "neither", "min"))
    return Steady(
        values=tuple(values),
        series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"),
        warnings=tuple(warnings),
        facts={"steady.criterion": facts},
    )


def _samples(block: Node, attained: bool) -> dict[str, list[float]]:
    """The window's samples by quantity. Where it didn't fill up it ends in zeros that were never measured."""
    data = block["data"]
    columns = {key: [sample.number() for sample in data[key].items()] for key in _QUANTITIES.values() if key in data}
    filled = min((len(column) for column in columns.values()), default=0)
    if not attained:
        while filled and not any(column[filled - 1] for column in columns.values()):
            filled -= 1
    return {key: column[:filled] for key, column in columns.items()} if filled else {}


def _flatness(block: Node, criterion: str, samples: dict[str, list[float]], job: str) -> list[Value]:
    """The deviation or the slope, whichever fio computed; neither before the window was full."""
    quantity = criterion.split(":")[0].removesuffix("_slope")
    column = samples.get(_QUANTITIES.get(quantity, ""), [])
    mean = sum(column) / len(column) if column else 0.0
    if not mean or len(column) < block["duration"].count():
        return []
    if "_slope" in criterion:
        return [Value("steady.slope", block["slope"].number() / mean, "1/s", "neither", "none", job)]
    return [Value("steady.deviation", block["max_deviation"].number() / mean, "1", "lower", "max", job)]


def _run_time(node: Node) -> float:
    runtimes = [node[key]["runtime"].count() for key in ("read", "write", "trim", "mixed") if key in node]
    return max(runtimes, default=0) / 1000
