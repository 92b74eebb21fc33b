"""Checks of a sequence of rounds, each a warning: outliers and drift.

Outliers: the modified z-score 0.6745·|x − median|/MAD above 3.5 (Iglewicz and Hoaglin 1993, "How to detect and handle
outliers", section 3.3); where more than half of the values are equal, so that the MAD is 0, the mean absolute deviation
takes its place with 0.7979. Drift: Spearman's rank correlation with the order of the rounds, significant at 1 % (normal
approximation: ρ·√(n − 1) beyond 2.576). Interleaving keeps drift out of comparisons, but it widens their intervals, and
it says that the rounds are not repeats of one and the same thing. A series that drifts need not have any outlier, so
both are checked.

What is said of one cell against a number has no order drawn by lot to stand on, so it also supposes that one round does
not tell of the next. Checked by the correlation of neighbouring ranks (Wald and Wolfowitz 1943, "An exact test for
randomness in the non-parametric case based on serial correlation"; normal approximation), at 10 %, one-sided: a check
that passes what it should not is worse than one that withholds a confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats.anytime import ROUNDING, Floats
from storlab.findings.answers import FarRounds, NotIndependent
from storlab.findings.rounds import Drift, Outliers
from storlab.timeseries.drift import average_ranks

OUTLIER_Z = 3.5
MAD_TO_SD = 0.6745  # MAD of a normal distribution ÷ its standard deviation
MEAN_DEVIATION_TO_SD = 0.7979  # √(2/π): mean absolute deviation of a normal distribution ÷ its sd
OUTLIERS_FROM = 5  # rounds; of fewer, a median says nothing of what is usual

DRIFT_Z = 2.576  # 1 %, two-sided
SERIAL_Z = 1.282  # 10 %, one-sided
SERIAL_FROM = 10  # rounds; below, what lasts over rounds would often pass

DRIFT_FROM = 8  # rounds; below, no order is beyond ``DRIFT_Z`` (ρ can't exceed 1)


def modified_z(values: Floats) -> Floats:
    """Modified z-scores of ``values`` (shape ``(n,)``); all 0 where nothing varies."""
    off = values - np.median(values)
    size = np.abs(off)
    floor = ROUNDING * max(float(np.abs(values).max()), ROUNDING)
    mad = float(np.median(size))
    if mad > floor:
        return np.asarray(MAD_TO_SD * off / mad)
    mean_deviation = float(size.mean())
    if mean_deviation > floor:
        return np.asarray(MEAN_DEVIATION_TO_SD * off / mean_deviation)
    return np.zeros(len(values))


def outliers(values: Floats) -> NDArray[np.bool_]:
    """Which of ``values`` (shape ``(n,)``) are outliers; none of fewer than ``OUTLIERS_FROM``."""
    if len(values) < OUTLIERS_FROM:
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(np.abs(modified_z(values)) > OUTLIER_Z)


def drift_z(values: Floats) -> float:
    """Spearman's ρ of ``values`` with their order, × √(n − 1); 0 where nothing varies."""
    n = len(values)
    if n < 3:
        return 0.0
    ranks = average_ranks(values) - (n + 1) / 2
    order = np.arange(n) - (n - 1) / 2
    scale = float(np.sqrt((ranks @ ranks) * (order @ order)))
    return float(ranks @ order) / scale * float(np.sqrt(n - 1)) if scale > 0 else 0.0


def serial_z(values: Floats) -> float:
    """How much more alike neighbours among ``values`` (shape ``(n,)``) are than by chance; 0 where nothing varies."""
    n = len(values)
    ranks = average_ranks(values) - (n + 1) / 2
    scale = float(ranks @ ranks)
    return (float(ranks[:-1] @ ranks[1:]) / scale + 1 / n) * n**0.5 if scale > 0 else 0.0


def independence_lacks(series: Sequence[Floats]) -> NotIndependent | None:
    """Why rounds of these ``series`` (each of shape ``(n,)``, in order) may tell of each other.

    What series of the same rounds show is averaged: it may have one cause.
    """
    long = [values for values in series if len(values) >= SERIAL_FROM]
    if not series or len(long) < len(series):
        return NotIndependent(SERIAL_FROM)
    if float(np.mean([serial_z(values) for values in long])) > SERIAL_Z:
        return NotIndependent()
    return None


def warn(
    values: Floats,
    rounds: NDArray[np.int64],
    of: Literal["ratio", "metric", "speed"],
    noun: Literal["round", "trial"] = "round",
) -> list[Outliers | Drift]:
    """Outliers and drift among ``values`` (shape ``(n,)``), measured in ``rounds``, in their order."""
    found: list[Outliers | Drift] = []
    out = outliers(values)
    if out.any():
        found.append(Outliers(tuple(rounds[out].tolist()), noun))
    if len(values) >= DRIFT_FROM and abs(z := drift_z(values)) > DRIFT_Z:
        found.append(Drift(of, z > 0, noun))
    return found


# Rounds that lie far from all others' answer: stalls, which no typical value shows.
#
# Of what happens in one round of twelve, the first ten rounds often hold nothing, so no analysis of their mean bounds
# it; only a count does. That rounds beyond a band around 1 are fewer than a share q of all is shown by a bet on "at
# least q",
#
#     E_q = Σ_λ w_λ · (1 + λ·q)^inside · (1 − λ·(1 − q))^far,   λ·(1 − q) = 1, 0.6, 0.3,
#
# whose capital reaches 1/α with a chance of at most α if at least q of all rounds, whatever came before, are far.

BAND = 0.30
"""Rounds that differ by more are far; of a study whose margin is wider, by more than that."""
ALPHA = 0.05
SHARES = (0.5, 0.3, 0.2, 0.1, 0.05)
"""What far rounds may be said to be rarer than: each held to ``ALPHA`` ÷ 5, so that all hold together."""

_STAKES = ((1.0, 0.60), (0.6, 0.25), (0.3, 0.15))  # λ·(1 − q), and its part of the stake


def far_rounds(log_ratios: Floats, margin: float) -> FarRounds:
    """Those among ``log_ratios`` (shape ``(n,)``, finite); ``margin``: that of the comparison."""
    band = max(BAND, margin)
    edge = math.log1p(band) + ROUNDING
    above, below = int((log_ratios > edge).sum()), int((log_ratios < -edge).sum())
    n, far = len(log_ratios), above + below
    needed = math.log(len(SHARES) / ALPHA)
    rarer = [share for share in SHARES if _log_evidence(n - far, far, share) >= needed]
    return FarRounds(above, below, n, band, min(rarer, default=None))


def _log_evidence(inside: int, far: int, share: float) -> float:
    """log E that far rounds are rarer than ``share``."""
    bets = []
    for stake, weight in _STAKES:
        loss = far * math.log1p(-stake) if stake < 1 else (-math.inf if far else 0.0)
        bets.append(math.log(weight) + inside * math.log1p(stake / (1 - share) * share) + loss)
    return float(np.logaddexp.reduce(bets))
