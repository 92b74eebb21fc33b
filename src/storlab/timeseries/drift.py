"""Whether a series rises or falls over its time.

Two witnesses must agree, since noise that lingers for a good part of a series easily looks like a trend to either:

- The Mann-Kendall test, which asks nothing of the noise's shape, with the variance corrected for the autocorrelation of
  the ranks: K. H. Hamed, A. R. Rao, *A modified Mann-Kendall trend test for autocorrelated data*, Journal of Hydrology
  204, 1998.
- The least-squares slope, measured against how far the sums of what it leaves wander, which needs no estimate of the
  autocorrelation: the self-normalisation of X. Shao, *A self-normalized approach to confidence interval construction in
  time series*, JRSS B 72(3), 2010. ``THRESHOLD`` is the 99th percentile of this for independent samples, by
  simulation; it is higher where little is left of independent samples (``tests/timeseries/test_drift.py``).

The slope that is told is Sen's: the median of the slopes of all pairs (P. K. Sen, *Estimates of the regression
coefficient based on Kendall's tau*, JASA 63, 1968). All of it is meant for means of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from storlab.timeseries.correlation import autocorrelation, effective_sample_size
from storlab.timeseries.steady import block_means
from storlab.timeseries.variability import Floats

LEAST = 20
MOST_PAIRED = 100
"""Values of which all pairs are taken; of more, means of neighbours."""
P = 0.01
LAG_Z = 1.96  # autocorrelations beyond what chance shows at 5 % enter the correction
THRESHOLD = 40.0
DEPENDENT = 10.0  # ``THRESHOLD`` grows by this ÷ the effective number of values


@dataclass(frozen=True)
class Trend:
    """``slope`` for each step from one value to the next; ``sure``: whether both witnesses say that there is one."""

    slope: float
    sure: bool


def trend(values: Floats) -> Trend | None:
    """The trend of ``values`` (shape ``(n,)``, evenly spaced); ``None`` for fewer than ``LEAST``."""
    if len(values) < LEAST:
        return None
    merged = -(-len(values) // MOST_PAIRED)
    slope, p = mann_kendall(block_means(values, merged))
    left, wander = self_normalised(values)
    least = THRESHOLD * (1 + DEPENDENT / max(effective_sample_size(left), 1.0))
    return Trend(slope / merged, p < P and wander > least)


def mann_kendall(values: Floats) -> tuple[float, float]:
    """Sen's slope of ``values`` (shape ``(n,)``, n ≥ 4), and the two-sided p of the test by Hamed and Rao."""
    n = len(values)
    earlier, later = np.triu_indices(n, 1)
    differences = values[later] - values[earlier]
    slope = float(np.median(differences / (later - earlier)))
    score = float(np.sign(differences).sum())
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18 * _correction(values - slope * np.arange(n))
    if score == 0 or variance <= 0:
        return slope, 1.0
    return slope, math.erfc((abs(score) - 1) / math.sqrt(2 * variance))


def _correction(detrended: Floats) -> float:
    """n ÷ n*, by which dependence between neighbours widens the variance of the score; never below 1."""
    n = len(detrended)
    rho = autocorrelation(_ranks(detrended))
    lags = np.arange(1, n - 2)
    counted = np.abs(rho[lags]) > LAG_Z / math.sqrt(n)
    weights = (n - lags) * (n - lags - 1.0) * (n - lags - 2.0)
    return max(1.0, 1 + 2 / (n * (n - 1.0) * (n - 2.0)) * float((weights * rho[lags])[counted].sum()))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, ties averaged; SciPy's would take a third of a second to import."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse], dtype=np.float64)


def self_normalised(values: Floats) -> tuple[Floats, float]:
    """What the least-squares line leaves of ``values``, and |slope|·n^2.5 ÷ √ΣSₜ², S being the sums of what is left."""
    n = len(values)
    x = np.arange(n) - (n - 1) / 2
    centred = values - values.mean()
    slope = float(x @ centred) / float(x @ x)
    left = np.asarray(centred - slope * x)
    wander = float(np.sqrt((np.cumsum(left) ** 2).sum()))
    rounding = 1e-9 * float(np.abs(values).max()) * n  # of a line without noise, sums are nothing but rounding
    if abs(slope) * n <= rounding / n:
        return left, 0.0
    return left, abs(slope) * n**2.5 / max(wander, rounding)
