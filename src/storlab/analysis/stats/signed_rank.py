"""Evidence from signs and ranks over rounds: valid for any noise, as long as the order within rounds is random.

If two levels do not differ, then swapping their trials within a round changes nothing: each log ratio is as likely
``+x`` as ``−x``, whatever happened in the rounds before. That holds for heavy tails, drift, bursts and unequal rounds
alike, because Storlab draws the order within every round. So the sign of each log ratio is a fair coin, and no bet on
fair coins wins much: with bets that use only what is known before the sign, the capital of those who bet on "above c",

    P(c) = Σ_λ w_λ Π_i (1 + tanh(λ · sign_i · score_i)),

is a martingale if the log ratios are symmetric about c, and the chance that it ever reaches 1/α is at most α (Ville's
inequality). ``score_i`` grows with the rank of |log ratio_i − c| among the first i rounds (ties share theirs), and the
strengths λ find weak steady effects and strong ones. The middle bets score a rank by what normal noise would have
there, Φ⁻¹((1 + (rank − ½)/i) / 2), which in such noise is the best that ranks can do (van der Waerden 1952) and in any
noise no worse than a t test (Chernoff and Savage 1958). Others score by rank/i: the strongest, which decide while
rounds are few, and the weakest, which lets a level that fails now and then lose less by it. N(c) is the same for
"below c", with the signs turned. M = (P(0) + N(0)) / 2 is the evidence that the two differ at all; that for one
direction is its half of M.

P falls and N rises with c: as c passes a mean of two log ratios, the rank of one of them changes in favour of "below",
and its score with it.
So the values of c that are not ruled out are an interval, which ends at such means (Walsh averages), and their median
(Hodges and Lehmann 1963) is its centre: the *typical* log ratio, which no single round can move far.

A round at most doubles P, however far out it is. That also bounds what any such test can do: evidence of 1/α takes
about log2(2/α) rounds.

A round that was *lost*, because the trial of one side failed, has no ratio. Leaving it out would select rounds by their
result: who times out in bad trials would be judged by the good ones. Against who failed it counts as the worst that can
be, a round of the highest rank (Lachin 1999, "Worst-rank score analysis with informatively missing observations in
clinical trials"); for anyone it counts as nothing. Each only lowers P or N.

Sources: Reynolds 1975, "A sequential signed-rank test for symmetry" (sequential ranks). Vovk and Wang 2024,
"Nonparametric e-tests of symmetry". Chernoff and Savage 1958, "Asymptotic normality and efficiency of certain
nonparametric test statistics". Ramdas, Ruf, Larsson and Koolen 2020, "Admissible anytime-valid
sequential inference must rely on nonnegative martingales", section on symmetric distributions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from storlab.analysis.stats.anytime import ROUNDING, Floats

STRENGTHS = np.array([0.25, 0.4, 0.8, 1.4, 6.0, 20.0])
"""λ: tuned to effects of about an eighth, two fifths, three quarters, one and several standard deviations."""
WEIGHTS = np.array([0.10, 0.10, 0.11, 0.07, 0.20, 0.42])
"""Most on the strongest bet, which decides large effects in few rounds; any share of the others is soon made up for."""
_NORMAL = np.array([False, True, True, True, False, False])  # how the bet scores a rank

_LOG_WEIGHTS = np.log(WEIGHTS)
_MATRIX = 300  # rounds up to which all pairs of them are looked at at once
_PRECISION = 1e-10  # of an end of the interval, of more rounds than that


def log_stake(odds: Floats) -> Floats:
    """log(1 + tanh(x)), also where that is nearly 0."""
    return np.asarray(math.log(2) - np.logaddexp(0.0, -2 * odds), dtype=np.float64)


def odds(signed_ranks: Floats, numbers: Floats) -> Floats:
    """λ · sign · score of each bet, shape ``(bets, *signed_ranks.shape)``.

    ``signed_ranks``: ``sign_i · rank_i / i``; ``numbers``: the i of each, of a shape that is broadcast to theirs.
    """
    from scipy.special import ndtri

    normal = np.sign(signed_ranks) * ndtri((1 + np.maximum(np.abs(signed_ranks) - 0.5 / numbers, 0.0)) / 2)
    shape = (-1,) + (1,) * np.ndim(signed_ranks)
    scores = np.where(_NORMAL.reshape(shape), normal, signed_ranks)
    return np.asarray(STRENGTHS.reshape(shape) * scores, dtype=np.float64)


def _log_lost(rounds: int, lost: int) -> Floats:
    """What each bet loses by ``lost`` rounds after ``rounds`` others: each is of the highest rank, against the bet."""
    return np.asarray(log_stake(-odds(np.ones(lost), np.arange(rounds + 1.0, rounds + lost + 1.0))).sum(axis=1))


def sequential_signed_ranks(values: Floats) -> Floats:
    """``sign_i · rank_i / i`` (shape ``(n,)``): ranks of |value| among those so far, ties averaged."""
    n = len(values)
    size = np.abs(values)
    if n <= _MATRIX:
        earlier = np.tri(n, k=-1)
        before = (size[None, :] < size[:, None]) + 0.5 * (size[None, :] == size[:, None])
        ranks = (before * earlier).sum(axis=1) + 1
    else:
        seen: list[float] = []
        ranks = np.empty(n)
        for index, own in enumerate(size.tolist()):
            first, last = bisect_left(seen, own), bisect_right(seen, own)
            ranks[index] = (first + last) / 2 + 1
            seen.insert(last, own)
    return np.asarray(np.sign(values) * ranks / np.arange(1, n + 1), dtype=np.float64)


def log_growth(values: Floats, centre: float, side: int) -> Floats:
    """Log factor in each round (shape ``(bets, n)``) of each bet that ``values`` lie above ``centre``: below it for a
    ``side`` of −1.

    ``values`` in the order of the rounds.
    """
    off = values - centre
    off = np.where(np.abs(off) <= ROUNDING, 0.0, np.round(off, 12))  # equal but for rounding is a tie
    return log_stake(side * odds(sequential_signed_ranks(off), np.arange(1.0, len(values) + 1)))


def log_evidence(values: Floats, centre: float = 0.0, side: int = 1, lost: int = 0) -> float:
    """log P(``centre``), or log N for a ``side`` of −1, after rounds of ``values`` (shape ``(n,)``) and lost ones."""
    return _mix(log_growth(values, centre, side).sum(axis=1) + _log_lost(len(values), lost))


def _mix(log_capital: Floats) -> float:
    return float(np.logaddexp.reduce(log_capital + _LOG_WEIGHTS))


def log_difference(values: Floats, lost: tuple[int, int] = (0, 0)) -> float:
    """log M: evidence that the two differ. ``lost``: rounds that count against "above", and against "below"."""
    above, below = (log_evidence(values, 0.0, side, of) for side, of in zip((1, -1), lost, strict=True))
    return float(np.logaddexp(above, below)) - math.log(2)


def interval(values: Floats, log_needed: float) -> tuple[float, float]:
    """The values of c for which neither log P(c) nor log N(c) reaches ``log_needed``; as ``not_ruled_out``."""
    return not_ruled_out(values, lambda c, side: log_evidence(values, c, side) >= log_needed)


def not_ruled_out(values: Floats, *rule_out: Callable[[float, int], bool]) -> tuple[float, float]:
    """The values of c that not all of these rule out on either side; ends may be infinite.

    ``values``: shape ``(n,)``, n ≥ 1. Each is asked of a c and a side; it changes with c where evidence does.
    """

    def end(side: int) -> float:
        own = side * values
        tests = [partial(_turned, each, side) for each in rule_out]
        return side * (_last(own, tests) if all(each(float(own.min()) - 1.0) for each in tests) else -math.inf)

    low, high = end(1), end(-1)
    return (low, high) if low <= high else (high, low)  # equal but for rounding


def _turned(rules_out: Callable[[float, int], bool], side: int, centre: float) -> bool:
    return rules_out(side * centre, side)


def _last(values: Floats, tests: Sequence[Callable[[float], bool]]) -> float:
    """The Walsh average up to which all ``tests`` hold, which do below the least value and not above the greatest."""
    if len(values) > _MATRIX:
        low, high = float(values.min()), float(values.max())
        while high - low > _PRECISION * max(1.0, abs(low), abs(high)):
            middle = (low + high) / 2
            low, high = (middle, high) if all(each(middle) for each in tests) else (low, middle)
        return low
    steps = np.unique(_walsh_averages(values))
    between = (steps[:-1] + steps[1:]) / 2  # the evidence changes at the steps, and only there
    end = len(between)
    for at, holds in enumerate(tests):
        if at and (not end or holds(float(between[end - 1]))):  # most often the first one ends first
            continue
        first, end = 0, end - 1 if at else end
        while first < end:
            middle = (first + end) // 2
            if holds(float(between[middle])):
                first = middle + 1
            else:
                end = middle
    return float(steps[end])


def _walsh_averages(values: Floats) -> Floats:
    rows, columns = np.triu_indices(len(values))
    return np.asarray((values[rows] + values[columns]) / 2)


def typical(values: Floats) -> float:
    """The median of all means of two of ``values`` (shape ``(n,)``, n ≥ 1) and of each itself: Hodges and Lehmann."""
    if len(values) <= _MATRIX:
        return float(np.median(_walsh_averages(values)))
    ordered = np.sort(values)
    n, low, high = len(values), float(ordered[0]), float(ordered[-1])
    half = n * (n + 1) / 4
    while high - low > _PRECISION * max(1.0, abs(low), abs(high)):
        middle = (low + high) / 2
        # Pairs (i ≤ j) whose mean is at most the middle, from the number of those with i and j in any order.
        any_order = int(np.searchsorted(ordered, 2 * middle - ordered, side="right").sum())
        twice = int(np.searchsorted(ordered, middle, side="right"))
        low, high = (middle, high) if (any_order + twice) / 2 < half else (low, middle)
    return (low + high) / 2


def rounds_for_evidence(values: Floats, log_needed: float, centre: float = 0.0, side: int = 1, lost: int = 0) -> float:
    """The number of ``values`` with which the evidence is expected to reach it; infinite where it doesn't grow.

    A forecast: the best bet so far goes on to win as it did, and rounds are lost as often.
    """
    if len(values) == 0:
        return math.inf
    capital = log_growth(values, centre, side).sum(axis=1) + _log_lost(len(values), lost)
    rate = float(capital.max()) / len(values)
    missing = log_needed - _mix(capital)
    if missing <= 0:
        return len(values)
    return len(values) + math.ceil(missing / rate) if rate > 0 else math.inf


@lru_cache(maxsize=64)
def fewest_rounds(alpha: float) -> int:
    """The least number of rounds in which any log ratios can be evidence of 1/``alpha`` for a difference."""
    n = 1
    while log_evidence(np.arange(1.0, n + 1)) < math.log(2 / alpha):
        n += 1
    return n
