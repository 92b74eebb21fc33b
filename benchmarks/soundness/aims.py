"""What evidence that aims at a last round is worth: how often it is wrong, and how often it finds a difference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness import noise
from benchmarks.soundness.engine import log_evidence
from benchmarks.soundness.noise import SPREAD, Floats
from benchmarks.soundness.trials import ALPHA, LEAST, Share, share
from storlab.analysis.stats.forecast import mostly_found, rounds_to_find
from storlab.analysis.stats.horizon import Bet
from storlab.analysis.stats.horizons import reaches

ENDS = (10, 30, 60)
EXTENDED = ((0, 30), (30, 60))
"""A study of 30 rounds that is then given 30 more."""
CUT = ((0, 60), (12, 30))
"""One of 60 rounds of which, when it is resumed after 12, there is only time for 30."""
EFFECTS = (0.03, 0.05, 0.10)
PLANNED = ("log-normal", "heavy tails", "AR(1)", "recorded: fio")

_GOAL = math.log(2 / ALPHA)


@dataclass(frozen=True)
class Aimed:
    """Studies of A against A that ever find a difference: of so many rounds (``ENDS``), extended, and cut."""

    kind: str
    wrong: tuple[Share, ...]
    extended: Share
    cut: Share


@dataclass(frozen=True)
class Power:
    """Studies that ever find this ``effect``: bets that aim at no round, and those that do; by ``ENDS``."""

    effect: float
    before: tuple[Share, ...]
    aimed: tuple[Share, ...]


@dataclass(frozen=True)
class Promised:
    """Studies of so many ``rounds`` whose true difference is ``effect``, of which four of five were to find it.

    The effect is what ``plan`` names for ``kind``, at the spread that its log ratios have. ``forecast``: the round by
    which half of them were to, and ``by_then``: those that did.
    """

    kind: str
    rounds: int
    effect: float
    found: Share
    forecast: int
    by_then: Share


def promised(kind: str, rounds: int, studies: int, rng: np.random.Generator) -> Promised:
    """All that is known beforehand is the standard deviation of the log ratios."""
    bet = Bet("B", ((0, rounds),))
    a, b = noise.interleave(noise.slots(kind, studies, 2 * rounds, rng), rng)
    sd, least = float((a - b).std()), mostly_found(bet, _GOAL)
    values = a - b + sd * least
    claims = reaches(values, bet, _GOAL)[0] & (np.cumsum(values, axis=1) > 0)
    half = rounds_to_find(least, bet, _GOAL) or rounds
    return Promised(kind, rounds, math.expm1(sd * least), _share(claims), half, _share(claims[:, :half]))


def aimed(kind: str, studies: int, rng: np.random.Generator) -> Aimed:
    """With a look after every round."""
    a, b = noise.interleave(noise.slots(kind, studies, 2 * ENDS[-1], rng), rng)
    values = a - b
    wrong = tuple(_share(_decided(values[:, :end], Bet("B", ((0, end),)))) for end in ENDS)
    cut = _share(_decided(values[:, : CUT[-1][1]], Bet("B", CUT)))
    return Aimed(kind, wrong, _share(_decided(values, Bet("B", EXTENDED))), cut)


def power(effect: float, studies: int, rng: np.random.Generator) -> Power:
    """In log-normal noise of ``SPREAD`` a trial; those that find it in the wrong direction don't count."""
    values = math.sqrt(2) * SPREAD * rng.normal(size=(studies, ENDS[-1])) + math.log1p(effect)
    right = np.cumsum(values, axis=1) > 0
    before = (log_evidence(values, 0.0)[0] >= _GOAL) & right
    aimed_at = (reaches(values[:, :end], Bet("B", ((0, end),)), _GOAL)[0] & right[:, :end] for end in ENDS)
    return Power(effect, tuple(_share(before[:, :end]) for end in ENDS), tuple(map(_share, aimed_at)))


def _decided(values: Floats, bet: Bet) -> NDArray[np.bool_]:
    above, below = reaches(values, bet, _GOAL)
    means = np.cumsum(values, axis=1)
    return np.asarray((above & (means > 0)) | (below & (means < 0)))


def _share(found: NDArray[np.bool_]) -> Share:
    return share(int(found[:, LEAST - 1 :].any(axis=1).sum()), len(found))
