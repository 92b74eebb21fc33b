"""The shape of samples: shared bins, density, bell curve, box, quantiles; and their course over time, in few steps.

Bins, bell curve and box are those of the charts that people know from comparisons of databases: 30 shared edges, the
normal distribution over μ ± 3σ, Tukey's whiskers (``variability``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storlab.metrics import WHISKERS
from storlab.timeseries.variability import Floats, outliers

EDGES = 30
"""Of histograms that lie over each other: 29 bins."""
FAR = 10.0
"""Interquartile ranges from the quartiles: no bulk of samples reaches as far."""
_LEAST = 1e-250  # the heights of a density of smaller samples are beyond what a float can hold
_GRID = 512
"""Bins that a density is smoothed from: much narrower than its bandwidth."""
_POINTS = 80
"""Of a density curve, and twice as many where it is not nearly 0: finer than that is finer than the pixels."""


def shared_edges(groups: Iterable[Floats], edges: int = EDGES) -> Floats:
    """``edges`` (shape ``(edges,)``), evenly from the least to the largest of all samples.

    Two of them, a hair apart, around samples that are all the same. Raises ``ValueError`` where there are none.
    """
    some = [group for group in groups if len(group)]
    if not some:
        raise ValueError("no samples: there is nothing to divide")
    low, high = min(float(group.min()) for group in some), max(float(group.max()) for group in some)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        half = 0.5e-3 * abs(low) or 0.5
        return np.array([low - half, low + half])
    return np.linspace(low, high, edges)


def shares(values: Floats, edges: Floats) -> Floats:
    """The part of ``values`` in each bin (shape ``(len(edges) - 1,)``); the last bin holds its upper edge, too."""
    counts, _ = np.histogram(values, edges)
    return np.asarray(counts / max(len(values), 1), dtype=np.float64)


def near(values: Floats) -> NDArray[np.bool_]:
    """Which of ``values`` (shape ``(n,)``) lie within ``FAR`` interquartile ranges of the quartiles.

    A chart that shows the others, too, shows nothing else: one stall would leave all samples in one bin.
    """
    first, third = np.percentile(values, [25, 75])
    reach = FAR * float(third - first) or np.inf
    return np.asarray((values >= first - reach) & (values <= third + reach))


def density(values: Floats) -> tuple[Floats, Floats] | None:
    """Where, and how many of the samples per unit: a Gaussian kernel estimate.

    Its area is 1, less what is not ``near``.

    The bandwidth is Silverman's, 0.9·min(σ, IQR ÷ 1.34)·n^(−1/5) (B. W. Silverman, *Density Estimation*, 1986,
    section 3.4.2). It takes samples as independent; where they are not, the curve is rougher than it ought to be.
    Smoothed from a fine histogram, which is fast for any number of samples. ``None`` where nothing varies.
    """
    from scipy.ndimage import gaussian_filter1d  # slow to load, and only charts need it

    scale = float(np.abs(values).max(initial=0))
    if len(values) < 2 or scale < _LEAST:
        return None
    bulk = near(values)
    values = values / scale  # in their own unit, what is interpolated may leave the range of floats
    first, third = np.percentile(values, [25, 75])
    sigma = float(values.std())
    spread = min(sigma, float(third - first) / 1.34) or sigma
    width = 0.9 * spread * len(values) ** -0.2
    if width <= 1e-9:  # by rounding only
        return None
    kept = values[bulk]
    low, high = float(kept.min()) - 4 * width, float(kept.max()) + 4 * width
    bounded = low < 0 <= float(kept.min())  # rates: what the kernel would put below 0 is put back above it
    low = 0.0 if bounded else low
    bins = max(_GRID, math.ceil(8 * (high - low) / width))
    counts, edges = np.histogram(kept, bins, (low, high))
    step = float(edges[1] - edges[0])
    smooth = gaussian_filter1d(
        counts / (len(values) * step), width / step, mode="reflect" if bounded else "constant", truncate=6.0
    )
    centres = (edges[:-1] + edges[1:]) / 2
    # Most points where the curve is: a far outlier must not leave a narrow peak to a few of them.
    high_enough = np.flatnonzero(smooth > 1e-6 * smooth.max())
    dense = centres[high_enough[np.linspace(0, len(high_enough) - 1, 2 * _POINTS).astype(np.int64)]]
    at = np.unique(np.concatenate([np.linspace(low, high, _POINTS), dense]))
    return at * scale, np.interp(at, centres, smooth) / scale


def bell(mean: float, sigma: float, points: int = 100) -> tuple[Floats, Floats]:
    """The normal distribution over μ ± 3σ: where (shape ``(points,)``), and its density there. ``sigma`` > 0."""
    at = np.linspace(mean - 3 * sigma, mean + 3 * sigma, points)
    return at, np.exp(-0.5 * ((at - mean) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))


@dataclass(frozen=True, eq=False)
class Box:
    """Quartiles, the last samples within the whiskers' reach, and those outside it."""

    low: float
    first: float
    median: float
    third: float
    high: float
    outliers: Floats


def box(values: Floats, whiskers: float = WHISKERS) -> Box:
    """Of ``values`` (shape ``(n,)``, n ≥ 1)."""
    out = outliers(values, whiskers)
    inside = values[~out]
    first, median, third = (float(value) for value in np.percentile(values, [25, 50, 75]))
    return Box(float(inside.min()), first, median, third, float(inside.max()), values[out])


def quantile_differences(values: Floats, base: Floats, at: Floats) -> Floats:
    """By how much each quantile of ``values`` differs from that of ``base``, as a share of the latter.

    ``at``: which quantiles, from 0 to 1. NaN where that of ``base`` is not above 0.
    """
    own, theirs = np.quantile(values, at), np.quantile(base, at)
    positive = theirs > 0
    return np.where(positive, own / np.where(positive, theirs, 1.0) - 1, np.nan)


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
