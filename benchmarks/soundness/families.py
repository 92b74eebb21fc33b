"""Studies of many comparisons: whether any of their verdicts is false, and how soon the true ones come.

A study is made of families of three comparisons: three levels of one factor in one combination. In some of them nothing
differs; in the others the third level does from the first two, which are alike. All levels of a family share their
rounds, and so the comparisons depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness import noise
from benchmarks.soundness.engine import log_evidence
from benchmarks.soundness.noise import Floats
from benchmarks.soundness.trials import ALPHA, LEAST, Share, share
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds

ROUNDS = 60
PAIRS = ((0, 1), (0, 2), (1, 2))
KINDS = ("log-normal", "heavy tails", "AR(1)", "recorded: fio")
COUNTS = (3, 9, 30)
DIFFERING = (0.0, 1 / 3, 2 / 3, 1.0)
"""Shares of families in which a level differs; with closed testing, what is true makes others easier to claim."""
EFFECTS = (0.01, 0.05, 0.20)
"""The first is a seventh of a standard deviation of a log ratio: hard to tell from one in the other direction."""

_MOST = 40.0  # log of evidence beyond which nothing changes
_NEARLY = 1e-9


@dataclass(frozen=True)
class Setting:
    """So many comparisons on one kind of machine. In ``families`` of the ``comparisons`` ÷ 3 a level differs."""

    kind: str
    comparisons: int
    families: int
    effect: float

    def __str__(self) -> str:
        return f"{self.kind}, {self.comparisons} comparisons, {self.families} families, effect {self.effect}"


def settings() -> Iterator[Setting]:
    """All of them, each once."""
    for kind in KINDS:
        for comparisons in COUNTS:
            for count in dict.fromkeys(_differing(comparisons // 3, part) for part in DIFFERING):
                for effect in EFFECTS if count else (0.0,):
                    yield Setting(kind, comparisons, count, effect)


def _differing(groups: int, part: float) -> int:
    return max(1, math.floor(groups * part + 0.5)) if part else 0


@dataclass(frozen=True)
class Family:
    """``wrong``: studies that ever claim a difference where there is none, or in the wrong direction; ``turned``: the
    latter alone.

    ``first``: mean round of the first true claim, ``all_true``: of the last; studies without count as ``ROUNDS``.
    ``*_bonferroni``: the same if each comparison had to bring as much evidence as where nothing is known of others.
    """

    setting: Setting
    wrong: Share
    turned: Share
    first: float
    all_true: float
    first_bonferroni: float
    all_true_bonferroni: float


def family(setting: Setting, studies: int, rng: np.random.Generator) -> Family:
    """One setting, with a look after every round up to ``ROUNDS``."""
    groups = setting.comparisons // 3
    effects = np.where(np.arange(groups) < setting.families, math.log1p(setting.effect), 0.0)
    truth = np.array([-np.sign(effect) if 2 in pair else 0.0 for effect in effects for pair in PAIRS])
    ratios = _ratios(setting.kind, np.tile(effects, studies), rng)
    above, below = (each.reshape(studies, len(truth), ROUNDS) for each in log_evidence(ratios))
    agrees = np.sign(np.cumsum(ratios, axis=1)).reshape(above.shape) == np.where(above > below, 1.0, -1.0)
    rounds, wrong, turned = np.full((studies, 4), float(ROUNDS)), 0, 0
    for study in range(studies):
        told = Told(truth, above[study], below[study], agrees[study])
        closed, made_up, reversed_ = told.by_closed_testing()
        wrong += made_up or reversed_
        turned += reversed_
        if setting.families:
            plain = told.by_bonferroni()
            rounds[study] = closed.min(), closed.max(), plain.min(), plain.max()
    return Family(
        setting, share(wrong, studies), share(turned, studies), *(float(mean) for mean in rounds.mean(axis=0))
    )


def _ratios(kind: str, effects: Floats, rng: np.random.Generator) -> Floats:
    """Log ratios of the three pairs of three levels, of which the last is higher by its effect; one after the other.

    ``effects``: of each family; the result has the shape ``(3 * families, rounds)``.
    """
    slots = noise.slots(kind, len(effects), 3 * ROUNDS, rng).reshape(len(effects), ROUNDS, 3)
    levels = rng.permuted(slots, axis=2)
    levels[:, :, 2] += effects[:, None]
    return np.stack([levels[:, :, a] - levels[:, :, b] for a, b in PAIRS], axis=1).reshape(-1, ROUNDS)


class Told:
    """What one study may claim: evidence of shape ``(comparisons, rounds)`` beside the truth (−1, 0 or 1 of each)."""

    def __init__(self, truth: Floats, above: Floats, below: Floats, agrees: NDArray[np.bool_]) -> None:
        self.truth = truth
        self.most = np.exp(np.minimum(np.maximum(above, below), _MOST)) / 2
        self.both = np.logaddexp(above, below) - math.log(2)
        self.right = np.where(above > below, 1.0, -1.0) == truth[:, None]
        self.may = agrees & (self.most >= self._least())
        self.may[:, : LEAST - 1] = False

    def _least(self) -> Floats:
        """What a claim needs at least, were nothing else of its family open: a short cut that misses nothing."""
        known = np.exp(np.minimum(self.both, _MOST)).reshape(-1, len(PAIRS), ROUNDS).min(axis=1)
        missing = np.maximum(0.0, 1 / ALPHA - known)
        return np.repeat((1 - _NEARLY) * (1 / ALPHA + missing.sum(axis=0) - missing), len(PAIRS), axis=0)

    def by_bonferroni(self) -> Floats:
        """The round of each true claim."""
        claimed = self.may & self.right & (self.most >= len(self.truth) / ALPHA)
        at = np.where(claimed.any(axis=1), claimed.argmax(axis=1) + 1.0, ROUNDS)
        return np.asarray(at[self.truth != 0])

    def by_closed_testing(self) -> tuple[Floats, bool, bool]:
        """The round of each true claim; whether there ever is one without a difference, or in the wrong direction."""
        at, known = np.full(len(self.truth), float(ROUNDS)), np.zeros(len(self.truth), dtype=np.bool_)
        nothing, made_up, reversed_ = self.truth == 0, False, False
        for n in np.nonzero(self.may.any(axis=0))[0].tolist():
            right = self.right[:, n]
            # What a claim needs is looked up only where one could be new.
            new = self.may[:, n] & np.where(right, ~known, np.where(nothing, not made_up, not reversed_))
            if not new.any():
                continue
            new &= self.most[:, n] >= thresholds(self._hypotheses(n), ALPHA)
            made_up = made_up or bool((new & nothing).any())
            reversed_ = reversed_ or bool((new & ~right & ~nothing).any())
            at[new & right], known[new & right] = n + 1, True
        return at[~nothing], made_up, reversed_

    def _hypotheses(self, n: int) -> list[Hypothesis]:
        pairs = (map(str, PAIRS[i % 3]) for i in range(len(self.truth)))
        return [Hypothesis(i // 3, a, b, float(self.both[i, n])) for i, (a, b) in enumerate(pairs)]
