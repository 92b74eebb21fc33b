"""Storlab's verdicts on many studies at once, with a look after every round.

Nothing of the engine is written a second time but what must hold for any verdict: that the evidence for one side of 1,
or for both ends of the margin, is enough. Only where it is, is the engine asked, and its answer counts. That
this short cut misses nothing is tested (``tests/scripts/test_soundness.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness.noise import Floats
from storlab.analysis.stats import signs
from storlab.analysis.stats.anytime import ROUNDING, width_factors
from storlab.analysis.stats.horizons import signed_ranks
from storlab.analysis.stats.signed_rank import WEIGHTS, log_stake, odds
from storlab.analysis.verdict import ALPHA_OF_MEAN, Rules, judge

_NEARLY = 1e-9


def log_evidence(values: Floats, centre: float = 0.0) -> tuple[Floats, Floats]:
    """log P and log N of ``centre`` after every round of every row."""
    off = values - centre
    off = np.where(np.abs(off) <= 1e-12, 0.0, np.round(off, 12))
    stakes = odds(signed_ranks(off), np.arange(1.0, values.shape[1] + 1))

    def one(side: int) -> Floats:
        bets = zip(stakes, WEIGHTS, strict=True)
        logs = [math.log(share) + np.cumsum(log_stake(side * stake), axis=1) for stake, share in bets]
        return np.asarray(np.logaddexp.reduce(logs))

    return one(1), one(-1)


def log_difference(values: Floats) -> Floats:
    """log M after every round of every row."""
    return np.asarray(np.logaddexp(*log_evidence(values)) - math.log(2))


def missed(values: Floats, truth: float, alpha: float) -> NDArray[np.bool_]:
    """For every row and every n: whether the interval of the first n values misses ``truth``."""
    return np.asarray(np.maximum(*log_evidence(values, truth)) >= math.log(2 / alpha) - _NEARLY)


def lies_beyond(values: Floats, edge: float, side: int, log_needed: float) -> NDArray[np.bool_]:
    """For every row and every n: whether ranks and signs of the first n values both put the typical one beyond."""
    ranks = log_evidence(values, edge)[0 if side > 0 else 1]
    off = side * (values - edge)
    inside, outside = (np.cumsum(far, axis=1) for far in (off > ROUNDING, off < -ROUNDING))
    enough = _enough(values.shape[1], log_needed)[inside, outside]
    return np.asarray(enough & (ranks >= log_needed - _NEARLY))


@lru_cache(maxsize=16)
def _enough(rounds: int, log_needed: float) -> NDArray[np.bool_]:
    """Whether so many rounds inside (first index) and so many beyond are evidence of ``log_needed``, by signs."""
    counts = range(rounds + 1)
    return np.array([[signs.log_evidence(inside, far) >= log_needed - _NEARLY for far in counts] for inside in counts])


@dataclass(frozen=True)
class Verdicts:
    """Of every study: the round of the first verdict (0 where there is none), and whether it was "equivalent"."""

    at: NDArray[np.int64]
    equivalent: NDArray[np.bool_]


def first_verdicts(log_ratios: Floats, rules: Rules) -> Verdicts:
    """The first verdict of every row, with a look after every round."""
    found = Verdicts(np.zeros(len(log_ratios), dtype=np.int64), np.zeros(len(log_ratios), dtype=np.bool_))
    worth = _worth_asking(log_ratios, rules)
    for row in np.nonzero(worth.any(axis=1))[0]:
        for n in np.nonzero(worth[row])[0] + 1:
            verdict = judge(log_ratios[row, :n], "a", "b", rules).verdict
            if verdict != "undecided":
                found.at[row], found.equivalent[row] = n, verdict == "equivalent"
                break
    return found


def _mean_within(log_ratios: Floats, edge: float) -> NDArray[np.bool_]:
    """For every row and every n: whether the interval of the mean, by which "equivalent" is withheld, ends within."""
    n = np.arange(1, log_ratios.shape[1] + 1)
    mean = np.cumsum(log_ratios, axis=1) / n
    squares = np.maximum(np.cumsum(log_ratios**2, axis=1) - n * mean**2, 0.0)
    factors = width_factors(n, ALPHA_OF_MEAN)
    known = np.isfinite(factors)  # of fewer rounds there is no interval
    half = np.where(known, factors, 0.0) * np.sqrt(squares / np.maximum(n - 1, 1))
    return np.asarray(known & (np.abs(mean) + half <= edge + _NEARLY))


def _worth_asking(log_ratios: Floats, rules: Rules) -> NDArray[np.bool_]:
    """For every row and every n: whether the evidence allows any verdict at all."""
    looks = missed(log_ratios, 0.0, rules.alpha / rules.family)
    if rules.margin > 0:
        edge = math.log1p(rules.margin)
        ends = (lies_beyond(log_ratios, -side * edge, side, rules.one_sided) for side in (1, -1))
        looks |= np.logical_and(*ends) & _mean_within(log_ratios, edge)
    looks[:, : rules.min_rounds - 1] = False
    return looks
