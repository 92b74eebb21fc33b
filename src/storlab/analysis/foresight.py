"""In how many rounds a study can decide, before anything has run: at the earliest, and in a typical noise.

The earliest follows from what evidence a verdict needs (``judging``), and from what a round adds to it at most
(``signed_rank``). How many rounds a difference takes is a forecast (``forecast``); no verdict depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storlab.analysis.judging import family_of, needed_by
from storlab.analysis.questions import Planned
from storlab.analysis.stats.anytime import Floats, spread
from storlab.analysis.stats.checks import warn
from storlab.analysis.stats.forecast import mostly_found, rounds_to_find, rounds_to_tell, tellable
from storlab.analysis.stats.horizon import Bet, History
from storlab.analysis.stats.signed_rank import fewest_rounds
from storlab.analysis.verdict import least_rounds
from storlab.findings.rounds import Drift, Outliers

# What can be seen on a machine: how large a difference, in how many rounds, of trials of what length.
#
# From trials of one and the same load, one after the other. Two in a row make a round of A against A; the standard
# deviation of their log ratios is the noise that a study of such trials would have. What trials of twice the length
# would have comes from the means of two trials in a row, so disturbances that last longer than a trial count in full.
#
# All forecasts suppose that the noise stays as it was. They are for planning; no verdict depends on them.

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


ASSUMED = 0.10
"""Standard deviation of a log ratio where nothing is known: of trials of some seconds on a machine that is not idle."""

USUAL = 0.10
"""A difference that is always forecast, whatever the margins of the study are."""


_COUNTED = ("1", "B")
"""Units of counts, which vary so little that a forecast from the noise of speeds would be wrong."""


@dataclass(frozen=True)
class TypicalNoise:
    """``sd`` of the log ratio of two trials of a round; ``source``: how that is known, as the end of a sentence."""

    sd: float
    source: str


@dataclass(frozen=True)
class Foresight:
    """``fewest``: rounds to a verdict where all comparisons are clear. ``alone``: where one is, among others that show
    nothing.

    ``most``: rounds that the study allows. ``rounds``: differences (0.1 for 10 %), with the number of rounds in which
    about every second study sees them, ``None`` where nobody waits for it; also among others that show nothing.
    ``finds``: the least difference that four of five studies find in ``most`` rounds; ``None`` where none is, or nobody
    knows how many there will be.
    """

    comparisons: int
    most: int
    fewest: int
    alone: int
    noise: TypicalNoise
    rounds: tuple[tuple[float, int | None], ...]
    finds: float | None = None


def foresee(
    planned: Sequence[Planned],
    confidence: float,
    min_rounds: int,
    most: int,
    noise: TypicalNoise,
    bet: Bet | None = None,
) -> Foresight | None:
    """``None`` where nothing is compared. ``bet``: what is recorded before the first round."""
    counted = [(item, None) for item in planned if item.counted]
    if not counted:
        return None
    alpha = 1 - confidence
    needed = min(needed_by(counted, alpha))
    margins = {item.question.margin for item, _ in counted}
    # "Equivalent" has one side at a time: half of the evidence.
    alike = [fewest_rounds(2 * alpha / family_of(counted))] if any(margins) else []
    goals = (math.log(2 / alpha), math.log(2 * needed))
    history = None if bet is None else History(bet, ())
    fewest, alone = (max(min_rounds, min([least_rounds(goal, history), *alike])) for goal in goals)
    timed = {item.question.margin for item, _ in counted if item.question.unit not in _COUNTED}
    differences = sorted({*filter(None, timed), USUAL})
    rounds = tuple((by, _rounds_to_see(by, noise.sd, needed, bet)) for by in differences)
    effect = math.inf if bet is None else mostly_found(bet, goals[1])
    finds = math.expm1(min(effect * noise.sd, 700.0)) if math.isfinite(effect) else None
    return Foresight(len(counted), most, fewest, alone, noise, rounds, finds)


def _rounds_to_see(effect: float, sd: float, needed: float, bet: Bet | None) -> int | None:
    later = rounds_to_see(effect, sd, 1 / needed)
    if bet is None:
        return later
    soon = rounds_to_find(math.log1p(effect) / sd if sd > 0 else math.inf, bet, math.log(2 * needed))
    return soon if soon is not None or later is None else max(later, bet.last + 1)
