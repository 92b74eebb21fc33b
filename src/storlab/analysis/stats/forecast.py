"""How many rounds an effect is expected to take, in normal noise: for plans and estimates of time, not for verdicts.

The logarithm of the capital of each bet of ``signed_rank`` is a walk whose steps have a mean and a variance that follow
from where a round's rank lies among all others. When such a walk first reaches a bound is known (inverse Gaussian:
Folks and Chhikara 1978, "The inverse Gaussian distribution and its statistical application"). The forecast is the round
by which every second study has what is needed, by the bet that is soonest.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from storlab.analysis.stats.anytime import FORESEEABLE, Floats
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
