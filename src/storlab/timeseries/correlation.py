"""How far samples of one trial depend on each other.

The effective sample size is n ÷ τ, with the integrated autocorrelation time τ = 1 + 2·Σρ(k) summed as C. J. Geyer says
(*Practical Markov chain Monte Carlo*, Statistical Science 7(4), 1992, section 3.3): over pairs ρ(2k) + ρ(2k + 1), made
to fall, until the first that isn't positive.
"""

from __future__ import annotations

import numpy as np
from numpy import fft

from storlab.timeseries.variability import Floats, median


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
    """How many independent samples say as much about the mean as these: between 1 and n, and 0 for none."""
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
