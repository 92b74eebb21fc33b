"""Storlab's verdicts on many studies at once, with a look after every round.

Nothing of the engine is written a second time but what must hold for any verdict: that interval and ranks both speak
against 1, or against both ends of the margin. Only where they do is the engine asked, and its answer counts. That
this short cut misses nothing is tested (``tests/scripts/test_soundness.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness.noise import Floats
from storlab.analysis.anytime import width_factors
from storlab.analysis.signed_rank import STRENGTHS, WEIGHTS
from storlab.analysis.verdict import Rules, judge

_BETS = np.concatenate([STRENGTHS, -STRENGTHS])
_SHARES = np.concatenate([WEIGHTS, WEIGHTS]) / 2


def running(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n − 1) of the first n values of each row, for every n."""
    n = np.arange(1, values.shape[1] + 1)
    shift = values[:, :1]  # sums of squares of what is far from 0 lose their digits
    mean = np.cumsum(values - shift, axis=1) / n
    squares = np.maximum(np.cumsum((values - shift) ** 2, axis=1) - n * mean**2, 0.0)
    return mean + shift, np.sqrt(squares / np.maximum(n - 1, 1))


def missed(values: Floats, truth: float, alpha: float) -> NDArray[np.bool_]:
    """For every row and every n: whether the interval of the first n values misses ``truth``."""
    mean, sd = running(values)
    factors = width_factors(np.arange(1, values.shape[1] + 1), alpha)
    known = np.isfinite(factors)
    return known & (np.abs(mean - truth) > np.where(known, factors, 0.0) * sd * (1 - 1e-9))


def signed_ranks(values: Floats) -> Floats:
    """``sign_i · rank_i / i`` of every row: ranks of |value| among those so far, ties averaged."""
    size = np.abs(values)
    ranks = np.ones(values.shape)
    for i in range(1, values.shape[1]):
        before, own = size[:, :i], size[:, i : i + 1]
        ranks[:, i] += ((before < own).sum(axis=1) + (before <= own).sum(axis=1)) / 2
    return np.asarray(np.sign(values) * ranks / np.arange(1, values.shape[1] + 1))


def log_evidence(values: Floats, centre: float = 0.0) -> Floats:
    """log of what all bets have after every round of every row: at least the evidence for either side of ``centre``."""
    off = values - centre
    off = np.where(np.abs(off) <= 1e-12, 0.0, np.round(off, 12))
    ranked = signed_ranks(off)
    logs = [np.log(s) + np.cumsum(np.log1p(np.tanh(b * ranked)), axis=1) for b, s in zip(_BETS, _SHARES, strict=True)]
    return np.asarray(np.logaddexp.reduce(logs))


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


def _worth_asking(log_ratios: Floats, rules: Rules) -> NDArray[np.bool_]:
    """For every row and every n: whether interval and ranks allow any verdict at all."""
    looks = missed(log_ratios, 0.0, rules.alpha)
    looks[:, : rules.min_rounds - 1] = False
    _keep_where_ranks_agree(looks, log_ratios, rules, 0.0)
    if rules.margin > 0:
        edge = math.log1p(rules.margin)
        within = missed(log_ratios, edge, rules.alpha) & missed(log_ratios, -edge, rules.alpha)
        within &= np.abs(running(log_ratios)[0]) <= edge
        within[:, : rules.min_rounds - 1] = False
        _keep_where_ranks_agree(within, log_ratios, rules, edge)
        _keep_where_ranks_agree(within, log_ratios, rules, -edge)
        looks |= within
    return looks


def _keep_where_ranks_agree(looks: NDArray[np.bool_], log_ratios: Floats, rules: Rules, centre: float) -> None:
    rows = np.nonzero(looks.any(axis=1))[0]
    if len(rows):
        looks[rows] &= log_evidence(log_ratios[rows], centre) >= -math.log(rules.alpha) - 1e-9
