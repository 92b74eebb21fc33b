"""Evidence from signs and ranks over rounds: valid for any noise, as long as the order within rounds is random.

If two levels do not differ, then swapping their trials within a round changes nothing: each log ratio is as likely
``+x`` as ``−x``, whatever happened in the rounds before. That holds for heavy tails, drift, bursts and unequal rounds
alike, because Storlab draws the order within every round. So the sign of each log ratio is a fair coin, and no bet on
fair coins wins much: with bets that use only what is known before the sign, the capital

    M = Π (1 + tanh(λ · sign_i · rank_i / i))

is a martingale, and the chance that it ever reaches 1/α is at most α (Ville's inequality). ``rank_i`` is the
rank of |log ratio_i| among the first i rounds (ties share theirs). M is averaged over bets of both directions
and four strengths λ, so that weak steady effects and strong ones are both found. Evidence for one direction is what
the bets on it have won, their half of M: never more than M, so never more likely to reach 1/α.

A round at most doubles M, however far out it is. That also bounds what any such test can do: m comparisons at
level α need about log2(2m/α) rounds.

A round that was *lost*, because the trial of one side failed, has no ratio. Leaving it out would select rounds by their
result: who times out in bad trials would be judged by the good ones. Against who failed it counts as the worst that can
be, a round of the highest rank (Lachin 1999, "Worst-rank score analysis with informatively missing observations in
clinical trials"); for anyone it counts as nothing. Each only lowers M.

Sources: Reynolds 1975, "A sequential signed-rank test for symmetry" (sequential ranks). Vovk and Wang 2024,
"Nonparametric e-tests of symmetry". Ramdas, Ruf, Larsson and Koolen 2020, "Admissible anytime-valid
sequential inference must rely on nonnegative martingales", section on symmetric distributions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import lru_cache

import numpy as np

from storlab.analysis.anytime import ROUNDING, Floats

STRENGTHS = np.array([0.2, 0.6, 1.6, 6.0])
"""λ: tuned to effects of about a tenth, a quarter, one and several standard deviations.

Without the weakest, an effect of a seventh of a standard deviation took almost twice as many rounds."""
WEIGHTS = np.array([0.1, 0.2, 0.2, 0.5])
"""Half on the strong bet, which decides large effects in few rounds; any share of the others is soon made up for."""

_LOG_WEIGHTS = np.log(WEIGHTS / 2)  # the other half is bet on the other direction
_LOST = np.log1p(-np.tanh(STRENGTHS))  # of a round of the highest rank against the bet


def sequential_signed_ranks(values: Floats) -> Floats:
    """``sign_i · rank_i / i`` (shape ``(n,)``): ranks of |value| among those so far, ties averaged."""
    seen: list[float] = []
    ranks = []
    for size in np.abs(values).tolist():
        first, last = bisect_left(seen, size), bisect_right(seen, size)
        ranks.append((first + last) / 2 + 1)
        seen.insert(last, size)
    return np.asarray(np.sign(values) * ranks / np.arange(1, len(ranks) + 1), dtype=np.float64)


def log_growth(values: Floats, centre: float, side: int) -> Floats:
    """Log factor in each round (shape ``(bets, n)``) of each bet that ``values`` lie above ``centre``: below it for a
    ``side`` of −1.

    ``values`` in the order of the rounds.
    """
    off = values - centre
    off = np.where(np.abs(off) <= ROUNDING, 0.0, np.round(off, 12))  # equal but for rounding is a tie
    return np.log1p(np.tanh(side * STRENGTHS[:, None] * sequential_signed_ranks(off)))


def log_evidence(values: Floats, centre: float = 0.0, side: int = 1, lost: int = 0) -> float:
    """log of what the bets on one side of ``centre`` have won after all rounds, of ``values`` (shape ``(n,)``) and
    ``lost`` ones.

    Against symmetry about ``centre``; ``side`` is 1 for above it and −1 for below.
    """
    return _mix(log_growth(values, centre, side).sum(axis=1) + lost * _LOST)


def _mix(log_capital: Floats) -> float:
    weighted = log_capital + _LOG_WEIGHTS
    top = float(weighted.max())
    return top + math.log(float(np.exp(weighted - top).sum()))


def rounds_for_evidence(values: Floats, alpha: float, centre: float = 0.0, side: int = 1, lost: int = 0) -> float:
    """The number of ``values`` with which the evidence is expected to reach 1/``alpha``; infinite where it doesn't
    grow.

    A forecast: the best bet so far goes on to win as it did, and rounds are lost as often.
    """
    if len(values) == 0:
        return math.inf
    capital = log_growth(values, centre, side).sum(axis=1) + lost * _LOST
    rate = float(capital.max()) / len(values)
    missing = -math.log(alpha) - _mix(capital)
    if missing <= 0:
        return len(values)
    return len(values) + math.ceil(missing / rate) if rate > 0 else math.inf


@lru_cache(maxsize=64)
def fewest_rounds(alpha: float) -> int:
    """The least number of rounds in which equal log ratios in every round reach 1/``alpha``."""
    n = 1
    while log_evidence(np.ones(n)) < -math.log(alpha):
        n += 1
    return n
