"""When enough is known of a curve: once the interval of each of its points is narrow enough.

The intervals are anytime-valid (``stats.anytime``), so looking at them after every round costs no correctness.
"""

from __future__ import annotations

from collections.abc import Iterator

from storlab.analysis.stats.anytime import FORESEEABLE, width_factor
from storlab.analysis.summary import Estimate, Summary
from storlab.metrics import named

CURVE_PRECISION = 0.10
"""Half-width of a point's interval as a share of its mean, where the study names none: what a curve shows as a line."""


def points(summary: Summary) -> list[Estimate]:
    keys = set(named(summary.primary, dict.fromkeys((e.source, e.metric) for e in summary.estimates)))
    return [e for e in summary.estimates if (e.source, e.metric) in keys]


def relative_width(point: Estimate) -> float | None:
    """Half-width of its interval as a share of its mean; ``None`` without an interval, or for a mean of 0."""
    if point.high is None or not point.mean:
        return None
    return abs((point.high - point.mean) / point.mean)  # the lower end may have been cut off at 0


def open_points(summary: Summary, precision: float) -> list[Estimate]:
    """The points that are not yet known to ± ``precision``. A point that is 0 in every round is known."""
    return [point for point in points(summary) if not _is_known(point, precision)]


def _is_known(point: Estimate, precision: float) -> bool:
    width = relative_width(point)
    return width <= precision if width is not None else point.mean == 0 and point.sd == 0


def rounds_left(points: list[Estimate], precision: float) -> int | None:
    """More rounds until all are known to ± ``precision``, if they vary as they did; ``None`` where that is unknown."""
    return max(_each(points, precision), default=None) if all(point.cv is not None for point in points) else None


def _each(points: list[Estimate], precision: float) -> Iterator[int]:
    for point in points:
        needed = next(
            (n for n in range(2, FORESEEABLE) if width_factor(n, 1 - point.confidence) * (point.cv or 0) <= precision),
            FORESEEABLE,
        )
        yield max(1, needed - point.rounds)
