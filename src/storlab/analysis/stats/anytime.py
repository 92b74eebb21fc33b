"""Intervals for a mean that stay valid though one looks after every round and stops when one likes.

The Gaussian-mixture t martingale. For ``n`` rounds with mean ``m`` and standard deviation ``s`` (n − 1), against the
hypothesis that the mean is ``mu``, let t = √n·(m − mu)/s, ν = n − 1, a = 1 + n·g. With an effect size
(mean ÷ standard deviation) drawn from N(0, g) and the right Haar measure on the standard deviation, the Bayes factor

    B = a^(−1/2) · [(1 + t²/ν) / (1 + t²/(ν·a))]^(n/2)

is a martingale with respect to the data up to their scale, if the mean is ``mu``. So the probability that B ever
reaches 1/α, after any number of rounds, is at most α (Ville's inequality). The means with B < 1/α are a confidence
sequence, in closed form: with k = (√a/α)^(2/n) and u = (k − 1)/(1 − k/a), it is m ± s/√n · √(ν·u) where k < a, else
the whole line.

Assumed: rounds are independent and their noise is roughly normal. So it describes single cells; verdicts rest on
``signed_rank``, which needs no shape of noise. No running intersection is taken: the interval is that of the rounds at
hand, so it depends on the data and not on when someone looked.

Sources: Gönen, Johnson, Lu and Westfall 2005, "The Bayesian two-sample t test", for B. Hendriksen, de Heide and
Grünwald 2021, "Optional stopping with Bayes factors", for its validity under stopping. Wang and Ramdas 2024,
"Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance". Lindon, Ham, Tingley and
Bojinov 2022, "Anytime-valid linear models and regression adjusted causal inference in randomized experiments".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EFFECT_VARIANCE = 10.0
"""g: the variance of the effect size that the test is tuned for. Any g > 0 is valid; it only moves power.

Half-width in standard deviations, α = 0.05 (a t interval of a fixed number of rounds has 1.24, 0.72, 0.37):

    rounds     5      10     30
    g = 1      3.78   1.22   0.61
    g = 10     2.42   1.32   0.68

Rounds are dear and storage effects are often larger than their noise, so few rounds matter most: g = 10 costs a tenth
of width at 30 rounds and saves a third at 5. At α = 0.005, g = 1 has no interval at all at 5 and 6 rounds.
"""

ROUNDING = 1e-12
"""Differences below this share of the values are rounding of float arithmetic, not measurements."""

_LARGEST = float(np.finfo(np.float64).max)

FORESEEABLE = 10_000
"""Rounds beyond which no forecast is made: nobody waits for them."""


@dataclass(frozen=True)
class Interval:
    """The mean of ``n`` values with its interval; ends are infinite where ``n`` allows none."""

    n: int
    mean: float
    sd: float  # n − 1; 0 where the values differ by rounding only; NaN for one value
    low: float
    high: float

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low)


def check_alpha(alpha: float) -> None:
    """Raise ``ValueError`` unless 0 < ``alpha`` < 1."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must lie between 0 and 1")


def width_factors(n: NDArray[np.int64], alpha: float, g: float = EFFECT_VARIANCE) -> Floats:
    """Half-width ÷ standard deviation for each number of rounds in ``n``; infinite where there is none."""
    check_alpha(alpha)
    if not 0 < g < math.inf:
        raise ValueError(f"g is {g}; it must be positive and finite")
    rounds = np.maximum(np.asarray(n, dtype=np.float64), 1.0)
    log_a = np.log1p(rounds * g)
    log_k = (log_a - 2 * math.log(alpha)) / rounds  # logs: (√a/α)^(2/n) overflows for n = 1 and a tiny alpha
    possible = (np.asarray(n) >= 2) & (log_k < log_a)
    log_k = np.where(possible, log_k, 0.0)
    squared = (rounds - 1) / rounds * np.expm1(log_k) / -np.expm1(log_k - log_a)
    return np.where(possible, np.sqrt(squared), np.inf)


@lru_cache(maxsize=64)
def _factors(alpha: float) -> Floats:
    """``width_factors`` of 0 … FORESEEABLE rounds; every comparison of a study asks for the same alpha."""
    factors = width_factors(np.arange(FORESEEABLE + 1), alpha)
    factors.flags.writeable = False
    return factors


def width_factor(n: int, alpha: float) -> float:
    """Half-width ÷ standard deviation after ``n`` rounds; infinite where there is no interval yet."""
    if 0 <= n <= FORESEEABLE:
        return float(_factors(alpha)[n])
    return float(width_factors(np.array([n]), alpha)[0])


def half_width(sd: float, n: int, alpha: float) -> float:
    """Half of the width of the 1 − ``alpha`` interval of a mean; infinite where there is none."""
    factor = width_factor(n, alpha)
    return factor * sd if math.isfinite(factor) else math.inf


def spread(values: Floats) -> tuple[float, float]:
    """Mean and standard deviation (n − 1; NaN for one value), the latter 0 where only rounding differs."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan
    sd = float(values.std(ddof=1))
    return mean, 0.0 if sd <= ROUNDING * float(np.abs(values).max()) else sd


def log_evidence_of_means(values: Floats, g: float = EFFECT_VARIANCE) -> Floats:
    """log B of each row of ``values`` (shape ``(rows, n)``, finite): evidence that its mean is not 0, as above.

    A row of zeros has none; one of equal values has the most that so many can.
    """
    n = values.shape[1]
    if n < 2:
        return np.zeros(len(values))
    mean, sd = values.mean(axis=1), values.std(axis=1, ddof=1)
    sd = np.where(sd <= ROUNDING * np.abs(values).max(axis=1, initial=0.0), 0.0, sd)
    log_a = math.log1p(n * g)
    with np.errstate(all="ignore"):
        squared = n * (mean / sd) ** 2 / (n - 1)
        found = -log_a / 2 + n / 2 * (np.log1p(squared) - np.log1p(squared * math.exp(-log_a)))
    most = (n - 1) / 2 * log_a  # where the quotient is no float
    found = np.where(np.isfinite(found), found, most)
    return np.asarray(np.where(values.any(axis=1), found, 0.0))


def mean_interval(values: Floats, alpha: float) -> Interval:
    """The anytime-valid interval of the mean of ``values`` (shape ``(n,)``, n ≥ 1, finite).

    Values that are all equal give a point: honest for counts, and worth a warning elsewhere.
    """
    if len(values) == 0:
        raise ValueError("no values: an interval needs at least one")
    mean, sd = spread(values)
    half = half_width(sd, len(values), alpha)
    return Interval(len(values), mean, sd, mean - half, mean + half)
