"""How many rounds an effect is expected to take, in normal noise: for plans and estimates of time, not for verdicts.

The logarithm of the capital of each bet of ``signed_rank`` is a walk whose steps have a mean and a variance that follow
from where a round's rank lies among all others. When such a walk first reaches a bound is known (inverse Gaussian:
Folks and Chhikara 1978, "The inverse Gaussian distribution and its statistical application"). The forecast is the round
by which every second study has what is needed, by the bet that is soonest.

If a part of the stake aims at the last round (``horizon``), studies are simulated: a thousand or so, always the same.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from storlab.analysis.stats.anytime import FORESEEABLE, Floats
from storlab.analysis.stats.horizon import Bet
from storlab.analysis.stats.horizons import reaches
from storlab.analysis.stats.signed_rank import WEIGHTS, fewest_rounds, log_stake, odds

_POINTS = (np.arange(400) + 0.5) / 400
_CERTAIN = 8.0  # standard deviations: every round points the same way
_FAINT = 1e-4
_COARSE, _STEP = 1.2, 1.02  # standard deviations from which on a few rounds are enough; a step of the ladder


def rounds_to_tell(effect: float, alpha: float) -> int | None:
    """Rounds until an effect, in standard deviations of a log ratio, is distinguished from none, at 1 − ``alpha``.

    ``None`` beyond ``FORESEEABLE``. A larger effect never takes more: of few rounds the walk is a coarse picture, so
    there the fewest of all effects on a fixed ladder count that are no larger.
    """
    if effect <= _COARSE:
        return _walked(effect, alpha)
    steps = math.floor(math.log(min(effect, _CERTAIN) / _COARSE) / math.log(_STEP) + 1e-9)
    found = [_walked(_COARSE * _STEP**step, alpha) for step in range(steps + 1)]
    return min((each for each in found if each is not None), default=None)


@lru_cache(maxsize=1024)
def _walked(effect: float, alpha: float) -> int | None:
    from scipy.special import log_ndtr, ndtr

    effect = min(effect, _CERTAIN)
    means, variances = _steps(effect)
    growing = means > 0
    if not effect > 0 or not growing.any():
        return None
    means, variances = means[growing], variances[growing]
    bounds = math.log(2 / alpha) - np.log(WEIGHTS[growing])

    def enough(n: int) -> bool:
        root = np.sqrt(n * variances)
        early = ndtr((n * means - bounds) / root)
        back = np.exp(np.minimum(2 * means * bounds / variances + log_ndtr(-(n * means + bounds) / root), 0.0))
        return bool((early + back).max() >= 0.5)

    low, high = fewest_rounds(alpha), FORESEEABLE
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


@lru_cache(maxsize=256)
def tellable(rounds: int, alpha: float) -> float:
    """The least effect, in standard deviations, that about every second study of so many rounds tells from none.

    Infinite where none is. It is also about half of the width of an interval after so many rounds.
    """

    def told(effect: float) -> bool:
        found = rounds_to_tell(effect, alpha)
        return found is not None and found <= rounds

    low, high = _FAINT, _CERTAIN
    if not told(high):
        return math.inf
    while high - low > 1e-3 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if told(middle) else (middle, high)
    return high


def _steps(effect: float) -> tuple[Floats, Floats]:
    from scipy.special import ndtri

    values = effect + ndtri(_POINTS)
    ranks = (np.argsort(np.argsort(np.abs(values))) + 0.5) / len(values)
    growth = log_stake(odds(np.sign(values) * ranks, np.array(math.inf)))
    return growth.mean(axis=1), growth.var(axis=1)


_STUDIES, _TRIALS = 2_000, 60_000  # at most


def rounds_of_studies(effect: float, bet: Bet, log_goal: float) -> Floats:
    """In which round each of some studies finds an effect, in standard deviations of a log ratio; infinite: in none."""
    ends = bet.last
    noise = np.random.default_rng(20_261_130).normal(size=(min(_STUDIES, max(100, _TRIALS // ends)), ends))
    found = reaches(noise + effect, bet, log_goal)[0]
    return np.where(found.any(axis=1), 1.0 + found.argmax(axis=1), math.inf)


def rounds_to_find(effect: float, bet: Bet, log_goal: float) -> int | None:
    """By which every second study has found it; ``None`` where that is not within the rounds of the ``bet``."""
    middle = float(np.median(rounds_of_studies(min(effect, _CERTAIN), bet, log_goal)))
    return math.ceil(middle) if math.isfinite(middle) else None


@lru_cache(maxsize=64)
def mostly_found(bet: Bet, log_goal: float) -> float:
    """The least effect, in standard deviations, that four of five studies find; infinite where none is."""
    low, high = 0.0, _CERTAIN

    def found(effect: float) -> bool:
        return bool(np.isfinite(rounds_of_studies(effect, bet, log_goal)).mean() >= 0.8)

    for effect in (2.5 / math.sqrt(bet.last), 4.0 / math.sqrt(bet.last)):  # near where it lies
        if low < effect < high:
            low, high = (low, effect) if found(effect) else (effect, high)
    if high == _CERTAIN and not found(high):
        return math.inf
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
