"""What can be seen on a machine: how large a difference, in how many rounds, of trials of what length.

From trials of one and the same load, one after the other. Two in a row make a round of A against A; the standard
deviation of their log ratios is the noise that a study of such trials would have. What trials of twice the length would
have comes from the means of two trials in a row, so disturbances that last longer than a trial count in full.

All forecasts suppose that the noise stays as it was. They are for planning; no verdict depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storlab.analysis.stats.anytime import Floats, spread
from storlab.analysis.stats.checks import warn
from storlab.analysis.stats.forecast import rounds_to_tell, tellable
from storlab.findings.rounds import Drift, Outliers

FEWEST_PAIRS = 5
"""A standard deviation of fewer is no more than a guess."""

LENGTHS = (1, 2, 4, 8)
ROUNDS = (6, 10, 20, 30, 50, 100, 200)
EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20, 0.50)


@dataclass(frozen=True)
class Noise:
    """Of trials that are ``length`` times as long as those measured: ``sd`` of log ratios, from ``pairs`` of them."""

    length: int
    pairs: int
    sd: float


def noise_of(values: Sequence[float]) -> list[Noise]:
    """From what the trials gave, in order (positive): one for each length of which there are enough pairs.

    Raises ``ValueError`` where there are not enough trials of any length, or one gave nothing.
    """
    given: Floats = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise ValueError("a trial gave nothing that has a ratio")
    found = []
    for length in LENGTHS:
        ratios = _log_ratios(given, length)
        if len(ratios) >= FEWEST_PAIRS:
            found.append(Noise(length, len(ratios), spread(ratios)[1]))
    if not found:
        raise ValueError(f"{len(given)} trials are not enough: {2 * FEWEST_PAIRS} are the fewest")
    return found


def warnings_of(values: Sequence[float]) -> list[Outliers | Drift]:
    given = np.log(np.asarray(values, dtype=np.float64))
    return warn(given, np.arange(1, len(given) + 1), "speed", "trial")


def visible(sd: float, rounds: int, alpha: float) -> float | None:
    """The least difference (0.05 for 5 %) that about every second study of so many rounds would find.

    ``None`` where no difference can be found in so few.
    """
    effect = tellable(rounds, alpha)
    return math.expm1(min(effect * sd, 700.0)) if math.isfinite(effect) else None


def rounds_to_see(effect: float, sd: float, alpha: float) -> int | None:
    """Rounds that a difference of ``effect`` is expected to take; ``None`` beyond what anybody waits for."""
    return rounds_to_tell(math.log1p(effect) / sd if sd > 0 else math.inf, alpha)


def _log_ratios(values: Floats, length: int) -> Floats:
    whole = len(values) // (2 * length)
    means = values[: whole * 2 * length].reshape(whole, 2, length).mean(axis=2)
    return np.asarray(np.log(means[:, 0] / means[:, 1]))
