"""The evidence of ``horizon`` for many studies at once, which forecasts and simulations need: a round of all at a time.

That the steps are the same is tested (``tests/analysis/test_horizon.py``).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats import horizon
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.horizon import Bet
from storlab.analysis.stats.signed_rank import STRENGTHS, log_stake, odds


def signed_ranks(values: Floats) -> Floats:
    """``sign_i · rank_i / i`` of every row: ranks of |value| among those so far, ties averaged."""
    size = np.abs(values)
    ranks = np.ones(values.shape)
    for i in range(1, values.shape[1]):
        before, own = size[:, :i], size[:, i : i + 1]
        ranks[:, i] += ((before < own).sum(axis=1) + (before <= own).sum(axis=1)) / 2
    return np.asarray(np.sign(values) * ranks / np.arange(1, values.shape[1] + 1))


def log_evidence(values: Floats, bet: Bet, log_goal: float, centre: float = 0.0) -> tuple[Floats, Floats]:
    """log K for "above" and for "below" ``centre`` after every round of every row, all rounds with a ratio."""
    off = values - centre
    off = np.where(np.abs(off) <= 1e-12, 0.0, np.round(off, 12))
    stakes = odds(signed_ranks(off), np.arange(1.0, values.shape[1] + 1))
    return _one(stakes, bet, log_goal), _one(-stakes, bet, log_goal)


def reaches(values: Floats, bet: Bet, log_goal: float, centre: float = 0.0) -> tuple[NDArray[np.bool_], ...]:
    """Whether either is enough, after every round of every row."""
    return tuple(each >= log_goal for each in log_evidence(values, bet, log_goal, centre))


def _one(stakes: Floats, bet: Bet, log_goal: float) -> Floats:
    aimed, runs, others = horizon._SHARES[bet.preset]
    ends, over = bet.horizons[0][1], [*bet._in_force()][1:]
    price = horizon._floor(aimed * math.exp(-log_goal), ends)
    weights = (runs if price else runs + aimed) * horizon._RUNS + others * horizon._OPEN
    with np.errstate(divide="ignore"):
        shares = np.log(weights)[:, None, None]
    rest = np.logaddexp.reduce(np.cumsum(log_stake(stakes), axis=2) + shares) - log_goal
    scores = stakes[1] / STRENGTHS[1]
    prices, left = np.full(len(scores), price), horizon._left(ends)
    found = np.empty(scores.shape)
    for number in range(1, scores.shape[1] + 1):
        for after, rounds, extends in over:
            if after == number - 1:
                grid = 2.0 ** min(rounds - after, horizon._FINEST)
                if extends:
                    more = horizon._MOVED * np.exp(np.minimum(rest[:, after - 1], horizon._LARGEST))
                    prices = prices + np.floor(more * grid + 1e-9) / grid
                    rest[:, after:] += math.log(1 - horizon._MOVED)
                else:
                    prices = np.floor(prices * grid + 1e-9) / grid
                ends, left = rounds, horizon._left(rounds)
        if number <= ends:
            moving = (prices > 0) & (prices < 1)
            prices[moving] = _step(prices[moving], scores[moving, number - 1], ends - number, left[number])
        with np.errstate(divide="ignore"):
            found[:, number - 1] = log_goal + np.logaddexp(rest[:, number - 1], np.log(prices))
    return found


def _step(price: Floats, score: Floats, left: int, sigma: float) -> Floats:
    grid = 2.0 ** min(left, horizon._FINEST)
    up = _raised(price, np.abs(score) / sigma) if left else np.minimum(1.0, 2 * price)
    lowest, highest = np.ceil(price * grid) / grid, np.floor(np.minimum(1.0, 2 * price) * grid) / grid
    up = np.clip(np.floor(up * grid + 0.5) / grid, lowest, highest)
    return np.where(score > 0, up, np.where(score < 0, 2 * price - up, np.floor(price * grid) / grid))


def _raised(price: Floats, size: Floats) -> Floats:
    from scipy.special import ndtr, ndtri

    y = size - ndtri(np.minimum(price, 0.5))
    for _ in range(6):
        near, far = y - size, y + size
        slope = (np.exp(-near * near / 2) + np.exp(-far * far / 2)) / math.sqrt(2 * math.pi)
        y = y + (ndtr(-near) + ndtr(-far) - price) / np.maximum(slope, 1e-300)
    up = np.clip(2 * ndtr(-np.maximum(y - size, 0.0)), price, np.minimum(1.0, 2 * price))
    return np.where(price >= 0.5 + ndtr(-2 * size), 1.0, up)
