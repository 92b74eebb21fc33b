"""What is said of limits and margins, where one side alone is not symmetric, stalls, or several limits are asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness.engine import lies_beyond, log_evidence
from benchmarks.soundness.noise import SPREAD, Floats
from benchmarks.soundness.trials import ALPHA, LEAST, Share, share
from storlab.analysis.stats import horizon, horizons, signs
from storlab.analysis.stats.anytime import ROUNDING
from storlab.analysis.stats.horizon import Bet
from storlab.analysis.verdict import Rules, judge

MARGIN = 0.10
LOOKS = (30, 100)
STALLS = (0.0, 0.05, 0.08, 0.2)
STALL = math.log(0.22)
"""What a round that stalls gives, as a log ratio: a fifth of the rate."""
EQUAL = (10, 30, 60)
MARGINS = (0.05, 0.10)

_EDGE = math.log1p(MARGIN)
_RULES = Rules(ALPHA, MARGIN, "higher", LEAST)
_NEEDED = math.log(1 / ALPHA)


@dataclass(frozen=True)
class AtTheMargin:
    """Studies whose median round lies exactly at the margin, called equivalent by so many rounds all the same.

    ``ranks``: by ranks alone; ``both``: by ranks and signs, as Storlab does; each by ``LOOKS``.
    """

    shape: str
    ranks: tuple[Share, ...]
    both: tuple[Share, ...]


@dataclass(frozen=True)
class Stalling:
    """Studies of which a ``share`` of the rounds of one side stalls, and the others do not differ; by 100 rounds.

    ``ranks``: shown as equivalent by ranks alone, without a word; ``equivalent``: by Storlab; ``rare``: by Storlab,
    which adds that fewer than a tenth of all rounds are far off.
    """

    share: float
    ranks: Share
    equivalent: Share
    rare: Share


@dataclass(frozen=True)
class Gates:
    """Studies with gates just below and just above the truth, of which any is ever answered falsely; by ``LOOKS``."""

    once: tuple[Share, ...]  # with the evidence that one limit takes
    twice: tuple[Share, ...]  # with twice as much, as Storlab does


@dataclass(frozen=True)
class Alike:
    """Studies of two levels that do not differ, called equivalent within ``margin`` by so many rounds (``EQUAL``).

    ``aimed``: if half of the stake aimed at the last of them. ``mean``, ``mean_aimed``: rounds that it takes, where 30
    are planned; studies without count as all. ``wrong``: by ``EQUAL``, with such an aim, at the worse end of a margin.
    """

    margin: float
    shares: tuple[Share, ...]
    aimed: tuple[Share, ...]
    mean: float
    mean_aimed: float
    wrong: tuple[Share, ...]


SHAPES = ("normal", "one side skewed", "the other side skewed", "one side bimodal, 70 to 30")


def _noise(shape: str, size: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Log ratios of median 0."""
    if shape == "normal":
        return np.asarray(math.sqrt(2) * SPREAD * rng.normal(size=size))
    if shape == SHAPES[3]:
        far = rng.random(size) < 0.3
        values = 2 * SPREAD * far + 0.2 * SPREAD * rng.normal(size=size)
        return np.asarray(values - _BIMODAL_MEDIAN)
    skewed = SPREAD * (np.exp(rng.normal(size=size)) - 1)
    return np.asarray(skewed if shape == SHAPES[1] else -skewed)


_BIMODAL_MEDIAN = 0.2 * SPREAD * 0.5659488219328631
"""Φ⁻¹(0.5 / 0.7) of the lower mode: the upper one is ten of its standard deviations away."""


def at_the_margin(shape: str, studies: int, rng: np.random.Generator) -> AtTheMargin:
    """Looked at after every round; of both ends of the margin, the worse."""
    noise = _noise(shape, (studies, LOOKS[-1]), rng)
    ends = []
    for values in (_EDGE + noise, -_EDGE + noise):
        ranks = np.minimum(log_evidence(values, -_EDGE)[0], log_evidence(values, _EDGE)[1]) >= _NEEDED
        ends.append((ranks, _both(values)))
    by_ranks, by_both = (max((_by(found) for found in of), key=lambda s: s[-1].value) for of in zip(*ends, strict=True))
    return AtTheMargin(shape, by_ranks, by_both)


def _both(values: Floats, margin: float = MARGIN) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    edge = math.log1p(margin)
    return np.asarray(np.logical_and(*(lies_beyond(values, -s * edge, s, _NEEDED) for s in (1, -1))))


def _by(found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], looks: tuple[int, ...] = LOOKS) -> tuple[Share, ...]:
    return tuple(share(int(found[:, LEAST - 1 : n].any(axis=1).sum()), len(found)) for n in looks)


def stalling(of: float, studies: int, rng: np.random.Generator) -> Stalling:
    """Looked at after every tenth round."""
    shape = (studies, LOOKS[-1])
    values = np.where(rng.random(shape) < of, STALL, 0.0) + math.sqrt(2) * SPREAD * rng.normal(size=shape)
    looks = np.arange(10, LOOKS[-1] + 1, 10)
    ranks = np.minimum(log_evidence(values, -_EDGE)[0], log_evidence(values, _EDGE)[1]) >= _NEEDED
    both = _both(values)[:, looks - 1]
    told = [[judge(row[:n], "a", "b", _RULES) for n in looks[at]] for row, at in zip(values, both, strict=True)]
    alike = [[found for found in each if found.verdict == "equivalent"] for each in told]
    rare = [any(t.far is not None and t.far.rarer_than in (0.05, 0.1) for t in each) for each in alike]
    return Stalling(
        of,
        share(int(ranks[:, looks - 1].any(axis=1).sum()), studies),
        share(sum(map(bool, alike)), studies),
        share(sum(rare), studies),
    )


def gates(studies: int, rng: np.random.Generator) -> Gates:
    """Worse by more than what is true less a hair, and than what is true and a hair."""
    values = math.sqrt(2) * SPREAD * rng.normal(size=(studies, LOOKS[-1])) - 0.05
    wrong = [np.logical_or(*(lies_beyond(values, -0.05, s, _NEEDED + more) for s in (1, -1))) for more in _MORE]
    return Gates(*(_by(found) for found in wrong))


_MORE = (0.0, math.log(2))


def alike(margin: float, studies: int, rng: np.random.Generator) -> Alike:
    """In normal noise; what is wrong, in noise of which one side is skewed."""
    values = math.sqrt(2) * SPREAD * rng.normal(size=(studies, EQUAL[-1]))
    skewed = _noise(SHAPES[1], values.shape, rng)
    edge = math.log1p(margin)
    aimed = [_aimed(values[:, :n], margin) for n in EQUAL]
    ends = ([_share(_aimed(edge * end + skewed[:, :n], margin)) for n in EQUAL] for end in (1, -1))
    wrong = max(ends, key=lambda shares: shares[-1].value)
    both = _both(values, margin)
    means = _mean(both[:, : EQUAL[1]]), _mean(aimed[1])
    return Alike(margin, _by(both, EQUAL), tuple(map(_share, aimed)), *means, tuple(wrong))


def _share(found: NDArray[np.bool_]) -> Share:
    return _by(found, found.shape[1:])[0]


def _mean(found: NDArray[np.bool_]) -> float:
    found = found & (np.arange(found.shape[1]) >= LEAST - 1)
    return float(np.where(found.any(axis=1), found.argmax(axis=1) + 1, found.shape[1]).mean())


def _aimed(values: Floats, margin: float) -> NDArray[np.bool_]:
    """As ``_both``, if half of the stake of the ranks, and of that of the signs, aimed at the last round."""
    bet = Bet("B", ((0, values.shape[1]),))
    found = []
    for side, at in ((1, 0), (-1, 1)):
        edge = -side * math.log1p(margin)
        ranks = horizons.log_evidence(values, bet, _NEEDED, edge)[at] >= _NEEDED
        found.append(ranks & (_aimed_signs(side * (values - edge), bet) >= _NEEDED))
    return np.asarray(found[0] & found[1])


def _aimed_signs(off: Floats, bet: Bet) -> Floats:
    """log of a stake on "above 0" by signs: what does not aim at the last round is as in ``signs``."""
    score, ends = np.sign(np.where(np.abs(off) <= ROUNDING, 0.0, off)), bet.last
    share = horizon._SHARES[bet.preset][0]
    first = horizon._floor(share * math.exp(-_NEEDED), ends)
    above, below = (np.cumsum(score == sign, axis=1) for sign in (1, -1))
    known = np.array([[signs.log_evidence(s, f) for f in range(ends + 1)] for s in range(ends + 1)])
    prices, found = np.full(len(off), first), np.empty(off.shape)
    for n in range(1, ends + 1):
        moving = (prices > 0) & (prices < 1)
        prices[moving] = horizons._step(prices[moving], score[moving, n - 1], ends - n, math.sqrt(ends - n))
        found[:, n - 1] = prices
    with np.errstate(divide="ignore"):
        rest = known[above, below] + math.log(1 - share if first else 1.0)
        return np.asarray(np.logaddexp(rest, _NEEDED + np.log(found)))
