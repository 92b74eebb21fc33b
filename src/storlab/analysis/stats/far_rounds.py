"""Rounds that lie far from all others' answer: stalls, which no typical value shows.

Of what happens in one round of twelve, the first ten rounds often hold nothing, so no analysis of their mean bounds it;
only a count does. That rounds beyond a band around 1 are fewer than a share q of all is shown by a bet on "at least q",

    E_q = Σ_λ w_λ · (1 + λ·q)^inside · (1 − λ·(1 − q))^far,   λ·(1 − q) = 1, 0.6, 0.3,

whose capital reaches 1/α with a chance of at most α if at least q of all rounds, whatever came before, are far.
"""

from __future__ import annotations

import math

import numpy as np

from storlab.analysis.stats.anytime import ROUNDING, Floats
from storlab.findings.answers import FarRounds

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
