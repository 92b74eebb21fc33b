"""A series over its time, in so few steps that a chart can show them, with nothing lost that stands out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storlab.timeseries.variability import Floats

HOUR = 3600.0
LONG = 2 * HOUR
"""Longer series are shown in hours."""
_STEPS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, HOUR)


@dataclass(frozen=True, eq=False)
class Course:
    """Of each step that has samples: its middle in s, and mean, least, largest and population variance there."""

    t: Floats
    mean: Floats
    low: Floats
    high: Floats
    variance: Floats
    count: Floats


def course(t: Floats, values: Floats, step: float) -> Course:
    """``values`` at ``t`` s (both of shape ``(n,)``, finite) in steps of ``step`` s, from 0.

    A sample at the end of an interval belongs to the step before it: tools report what they did *until* ``t``.
    """
    if not len(values):
        nothing = np.zeros(0)
        return Course(nothing, nothing, nothing, nothing, nothing, nothing)
    slots = np.maximum(np.ceil(t / step - 1e-9) - 1, 0).astype(np.int64)
    order = np.argsort(slots, kind="stable")
    slots, values = slots[order], values[order]
    starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
    count = np.diff(np.append(starts, len(values))).astype(np.float64)
    mean = np.add.reduceat(values, starts) / count
    off = values - np.repeat(mean, count.astype(np.int64))
    return Course(
        t=(slots[starts] + 0.5) * step,
        mean=mean,
        low=np.minimum.reduceat(values, starts),
        high=np.maximum.reduceat(values, starts),
        variance=np.add.reduceat(off * off, starts) / count,
        count=count,
    )


def even_step(duration: float, most: int) -> float:
    """The least round time by which ``duration`` s is divided into ``most`` parts or fewer: 30 s, 1 h, 2 h."""
    for step in _STEPS:
        if duration <= step * most:
            return step
    return float(np.ceil(duration / most / HOUR)) * HOUR
