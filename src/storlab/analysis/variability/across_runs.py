"""How much samples vary within the trials of two runs that are compared: described side by side, and never judged.

The words are those of the field: population variance, σ, coefficient of variation, outliers, longest stall, and the
*variance factor*: the larger variance by the smaller. What each is stands in ``docs/reference/metrics.md``. Samples of
one trial depend on each other, so neither a variance nor the factor has an interval here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from storlab.analysis.questions import Planned
from storlab.analysis.runs.merged_runs import Merged
from storlab.timeseries.variability import STATISTICS, times_least, whiskers_of


@dataclass(frozen=True)
class Spread:
    """Of one side: means over its trials, in base units; ``None`` where the trials don't have it."""

    trials: int
    mean: float | None
    variance: float | None
    sigma: float | None
    cv: float | None
    outliers: float | None
    longest_stall: float | None


@dataclass(frozen=True)
class Varying:
    """Both sides of one comparison. ``factor``: larger variance ÷ smaller; ``None`` where the smaller is 0.

    ``whiskers``: interquartile ranges from the quartiles, beyond which samples are outliers.
    """

    a: str
    b: str
    within: dict[str, str]
    source: str
    metric: str
    unit: str
    of_a: Spread
    of_b: Spread
    factor: float | None
    larger: str  # the side that varies more; empty where neither does
    whiskers: float


def varying(merged: Merged) -> tuple[Varying, ...]:
    """Of each comparison within a combination whose metric has a variance on both sides."""
    found = []
    for item in merged.planned:
        if not item.question.pooled and not item.problem and not item.waiting:
            of_a, of_b = (_spread(merged, cell, item) for cell in item.cells[0])
            if of_a.variance is not None and of_b.variance is not None:
                whiskers = whiskers_of(merged.declared[item.question.source], item.question.metric)
                found.append(_varying(item, of_a, of_b, of_a.variance, of_b.variance, whiskers))
    return tuple(found)


def _varying(item: Planned, of_a: Spread, of_b: Spread, a: float, b: float, whiskers: float) -> Varying:
    q = item.question
    larger = "" if a == b else q.a if a > b else q.b
    factor = times_least((a, b))[0 if a >= b else 1]
    return Varying(q.a, q.b, dict(q.within), q.source, q.metric, q.unit, of_a, of_b, factor, larger, whiskers)


def _spread(merged: Merged, cell: int, item: Planned) -> Spread:
    source, metric = item.question.source, item.question.metric
    values = [s.value for s in merged.samples(cell, (source, metric))]
    names = (merged.declared[source].statistic(metric, each) for each in STATISTICS)
    each = ([s.value for s in merged.samples(cell, (source, name))] for name in names)
    return Spread(len(values), _mean(values), *map(_mean, each))


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
