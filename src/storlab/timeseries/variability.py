"""How much the samples of one trial vary and depend on each other, in the words of those who report the variability of
databases.

*TPS variability* is the population variance of the samples (÷ n, not ÷ (n − 1)), σ its square root, the *variance
factor* of two runs the larger variance ÷ the smaller. Outliers are Tukey's: beyond ``whiskers`` interquartile ranges
from the quartiles, with percentiles interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Sequence
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
