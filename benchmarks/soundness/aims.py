"""What evidence that aims at a last round is worth: how often it is wrong, and how often it finds a difference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness import noise
from benchmarks.soundness.engine import log_evidence
from benchmarks.soundness.horizon import reaches
from benchmarks.soundness.noise import SPREAD, Floats
from benchmarks.soundness.trials import ALPHA, LEAST, Share, share
from storlab.analysis.stats.horizon import Bet

ENDS = (10, 30, 60)
EXTENDED = ((0, 30), (30, 60))
"""A study of 30 rounds that is then given 30 more."""
EFFECTS = (0.03, 0.05, 0.10)

_GOAL = math.log(2 / ALPHA)


@dataclass(frozen=True)
class Aimed:
    """Studies of A against A that ever find a difference: of so many rounds (``ENDS``), and extended."""

    kind: str
    wrong: tuple[Share, ...]
    extended: Share


@dataclass(frozen=True)
class Power:
    """Studies that ever find this ``effect``: bets that aim at no round, and those that do; by ``ENDS``."""

    effect: float
    before: tuple[Share, ...]
    aimed: tuple[Share, ...]


def aimed(kind: str, studies: int, rng: np.random.Generator) -> Aimed:
    """With a look after every round."""
    a, b = noise.interleave(noise.slots(kind, studies, 2 * ENDS[-1], rng), rng)
    values = a - b
    wrong = tuple(_share(_decided(values[:, :end], Bet("B", ((0, end),)))) for end in ENDS)
    return Aimed(kind, wrong, _share(_decided(values, Bet("B", EXTENDED))))


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
