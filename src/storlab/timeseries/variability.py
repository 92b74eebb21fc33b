"""How much the samples of one trial vary and depend on each other, in the words of those who report the variability of
databases.

*TPS variability* is the population variance of the samples (÷ n, not ÷ (n − 1)), σ its square root, the *variance
factor* of two runs the larger variance ÷ the smaller. Outliers are Tukey's: beyond ``whiskers`` interquartile ranges
from the quartiles, with percentiles interpolated linearly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy import fft
from numpy.typing import NDArray

from storlab.metrics import WHISKERS, MetricSpec, Specs

Floats = NDArray[np.float64]

STALLED = 0.01
"""A sample of at most this share of the median is part of a stall."""


OUTLIERS = "outliers"
STATISTICS = ("variance", "sigma", "cv", OUTLIERS, "longest_stall")
"""What is known of the samples of a throughput, by which names."""


@cache
def declares(throughput: MetricSpec, whiskers: float = WHISKERS) -> tuple[MetricSpec, ...]:
    """``STATISTICS`` of a throughput as metrics, in their order."""
    name, units = throughput.name, (squared(throughput.unit), throughput.unit, "1", "1", "s")
    specs = (
        MetricSpec(f"{name}.{each}", unit, "lower", "none", of=name, statistic=each)
        for each, unit in zip(STATISTICS, units, strict=True)
    )
    return tuple(replace(spec, whiskers=whiskers) if spec.statistic == OUTLIERS else spec for spec in specs)


def whiskers_of(specs: Specs, throughput: str) -> float:
    """How many interquartile ranges from the quartiles the outliers of a throughput begin, as its source declares."""
    return specs.find(specs.statistic(throughput, OUTLIERS)).whiskers or WHISKERS


def squared(unit: str) -> str:
    """The unit of a variance: "1/s²"."""
    return "/".join(part if part == "1" else f"{part}²" for part in unit.split("/"))


@dataclass(frozen=True)
class Variability:
    """Of samples in some unit: ``mean`` and ``sigma`` in that unit, ``variance`` in its square.

    ``cv``: σ as a share of the mean's size; ``None`` where the mean is 0. ``longest_stall`` in s.
    """

    n: int
    mean: float
    variance: float
    sigma: float
    cv: float | None
    outliers: int
    longest_stall: float


def variability(values: Floats, interval: float, whiskers: float = WHISKERS) -> Variability:
    """``values`` (shape ``(n,)``, finite), one every ``interval`` s. Raises ``ValueError`` for none."""
    if not len(values):
        raise ValueError("no samples: nothing varies")
    mean, sigma = float(values.mean()), _sigma(values)
    return Variability(
        n=len(values),
        mean=mean,
        variance=sigma * sigma,
        sigma=sigma,
        cv=sigma / abs(mean) if mean else None,
        outliers=int(outliers(values, whiskers).sum()),
        longest_stall=longest_stall(values, interval),
    )


def _sigma(values: Floats) -> float:
    size = float(np.abs(values).max())
    return float(values.std()) if 1e-100 < size < 1e100 or not size else float((values / size).std()) * size


def median(values: Floats) -> float:
    """Of ``values`` (shape ``(n,)``, n ≥ 1, finite). NumPy's own spends five times as long on looking for NaN."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    ordered = np.partition(values, (half - 1, half))
    return float((ordered[half - 1] + ordered[half]) / 2)


def outliers(values: Floats, whiskers: float = WHISKERS) -> NDArray[np.bool_]:
    """Which of ``values`` (shape ``(n,)``) lie outside [Q1 − ``whiskers``·IQR, Q3 + ``whiskers``·IQR]."""
    if not len(values):
        return np.zeros(0, dtype=np.bool_)
    low, high = np.percentile(values, [25, 75])
    reach = whiskers * (high - low)
    return np.asarray((values < low - reach) | (values > high + reach))


def longest_stall(values: Floats, interval: float, share: float = STALLED) -> float:
    """The longest time, in s, in which every sample was at most ``share`` of the median: known to within ``interval``.

    Of a series whose median is 0 every sample of 0 counts: it mostly stood still.
    """
    if not len(values):
        return 0.0
    still = values <= share * max(median(values), 0.0)
    edges = np.flatnonzero(np.diff(still.astype(np.int8), prepend=0, append=0))
    return float((edges[1::2] - edges[::2]).max(initial=0) * interval)


def times_least(numbers: Sequence[float]) -> list[float | None]:
    """How many times the smallest each of these variances or counts is: 1 or more; ``None`` where only that is 0.

    It describes these series. It is no test: their samples depend on each other, and one trial of each is one pair.
    """
    least = min(numbers, default=0.0)
    return [1.0 if value == least else value / least if least > 0 else None for value in numbers]


def autocorrelation(values: Floats) -> Floats:
    """ρ(0) … ρ(n − 1) of ``values`` (shape ``(n,)``), each lag's sum ÷ n; all 0 but ρ(0) where nothing varies."""
    n = len(values)
    centred = values - values.mean() if n else values
    scale = float(np.abs(centred).max(initial=0.0))
    if scale <= 1e-12 * float(np.abs(values).max(initial=0.0)):  # nothing but rounding
        return np.asarray(np.eye(1, n, dtype=np.float64)[0])
    spectrum = fft.rfft(centred / scale, _length(n))
    sums = fft.irfft(spectrum * spectrum.conj(), _length(n))[:n]
    return np.asarray(sums / sums[0])


def _length(n: int) -> int:
    """A power of two, which is fast, of at least 2n, so that the end does not meet the begin."""
    return 1 << (2 * n - 1).bit_length()


def effective_sample_size(values: Floats) -> float:
    """How many independent samples say as much about the mean as these: between 1 and n, and 0 for none.

    It is n ÷ τ, with the integrated autocorrelation time τ = 1 + 2·Σρ(k) summed as C. J. Geyer says (*Practical Markov
    chain Monte Carlo*, Statistical Science 7(4), 1992, section 3.3): over pairs ρ(2k) + ρ(2k + 1), made to fall, until
    the first that isn't positive.
    """
    n = len(values)
    if n < 4:
        return float(n)
    rho = autocorrelation(values)
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    positive = np.minimum.accumulate(pairs[: ends[0]] if len(ends) else pairs)
    tau = max(2 * float(positive.sum()) - 1, 1.0)  # what alternates is worth no more than independent samples here
    return max(n / tau, 1.0)


def robust_ar1(values: Floats) -> float:
    """The autocorrelation φ of neighbours, as of an AR(1) process, that changes of the level hardly disturb.

    (median |x[i+2] − x[i]|)² ÷ (median |x[i+1] − x[i]|)² − 1: S. Chakar, E. Lebarbier, C. Lévy-Leduc, S. Robin, *A
    robust approach for estimating change-points in the mean of an AR(1) process*, Bernoulli 23(2), 2017, equation 5.
    Between 0 and 0.99; 0 where most neighbours are equal.
    """
    if len(values) < 4:
        return 0.0
    one, two = (median(np.abs(values[lag:] - values[:-lag])) for lag in (1, 2))
    return min(max((two / one) ** 2 - 1, 0.0), 0.99) if one > 0 else 0.0


# The shape of samples: shared bins, density, bell curve, box, quantiles; and their course over time, in few steps.
#
# Bins, bell curve and box are those of the charts that people know from comparisons of databases: 30 shared edges,
# the normal distribution over μ ± 3σ, Tukey's whiskers (``variability``).

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
