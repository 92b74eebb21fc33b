"""The two public 12-hour MySQL runs: what can be said of one run per side, and what they say of themselves.

Change points: binary segmentation of the means of each minute by least squares (Scott and Knott 1974; Fearnhead and
Rigaill 2019 on its limits), pieces of at least ``LEAST`` minutes, as long as a cut explains more than a step of
``NOTABLE`` would in that many minutes. Drift: Spearman's ρ of the means of each half hour with their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats

from benchmarks.soundness.engine import first_verdicts
from benchmarks.soundness.noise import Floats, pieces, recorded
from benchmarks.soundness.trials import ANY, ROUNDS, Share, share
from storlab.analysis.verdict import judge

INTERVAL = 2  # s
MINUTE = 60 // INTERVAL
LEAST = 15  # minutes
NOTABLE = 0.01
"""Of the mean: smaller steps are not listed."""

SIDES = ("off", "on")
LENGTHS = (5, 15, 30)  # intervals, so 10, 30 and 60 s, that make a piece


@dataclass(frozen=True)
class Prefix:
    """off ÷ on after so many hours: the interval of a textbook over intervals of 2 s, and Storlab's verdict."""

    hours: float
    ratio: float
    low: float
    high: float
    verdict: str
    reason: str


def prefixes() -> list[Prefix]:
    """After every half hour."""
    off, on = (recorded(f"mysql-{side}") for side in SIDES)
    step = 1800 // INTERVAL
    return [_prefix(off[:n], on[:n]) for n in range(step, len(off) + 1, step)]


def _prefix(off: Floats, on: Floats) -> Prefix:
    found = judge(np.array([math.log(off.mean() / on.mean())]), "off", "on", ANY)
    interval = stats.ttest_ind(off, on, equal_var=False).confidence_interval(0.95)
    low, high = (1 + float(end) / float(on.mean()) for end in (interval.low, interval.high))
    hours = len(off) * INTERVAL / 3600
    return Prefix(hours, float(off.mean() / on.mean()), low, high, found.verdict, found.reason)


@dataclass(frozen=True)
class Step:
    """A change of level: ``at`` hours, means before and after up to the next one."""

    at: float
    before: float
    after: float


def steps(side: str) -> list[Step]:
    """The change points of a run, in order."""
    minutes = pieces(recorded(f"mysql-{side}"), MINUTE)
    cuts = [0, *sorted(_cut(minutes, 0, len(minutes))), len(minutes)]
    means = [float(minutes[a:b].mean()) for a, b in pairwise(cuts)]
    return [Step(at / 60, b, a) for at, (b, a) in zip(cuts[1:-1], pairwise(means), strict=True)]


def _cut(values: Floats, start: int, end: int) -> list[int]:
    n = end - start
    if n < 2 * LEAST:
        return []
    part = values[start:end] - values[start:end].mean()
    k = np.arange(LEAST, n - LEAST + 1)
    before = np.cumsum(part)[k - 1]
    gain = before**2 * n / (k * (n - k))  # sums of squares that the cut explains
    best = int(gain.argmax())
    if gain[best] < LEAST / 2 * (NOTABLE * float(values.mean())) ** 2:
        return []
    at = start + int(k[best])
    return [*_cut(values, start, at), at, *_cut(values, at, end)]


def drift(side: str) -> tuple[float, float]:
    """Spearman's ρ over half hours, and the last hour ÷ the first."""
    values = recorded(f"mysql-{side}")
    halves = pieces(values, 1800 // INTERVAL)
    hour = 3600 // INTERVAL
    rho = stats.spearmanr(np.arange(len(halves)), halves).statistic
    return float(rho), float(values[-hour:].mean() / values[:hour].mean())


def relabelled(side: str, studies: int, rng: np.random.Generator) -> Share:
    """One run cut into pieces, two in a row a round, who is A drawn by lot; from anywhere, pieces of 10, 30 or 60 s."""
    values = recorded(f"mysql-{side}")
    ratios = np.empty((studies, ROUNDS))
    for row in range(studies):
        cut = np.log(pieces(values, int(rng.choice(LENGTHS)), int(rng.integers(MINUTE))))
        start = int(rng.integers(max(1, len(cut) - 2 * ROUNDS + 1)))
        both = cut[start : start + 2 * ROUNDS].reshape(-1, 2)
        ratios[row] = (both[:, 0] - both[:, 1]) * rng.choice([-1.0, 1.0], size=len(both))
    return share(int((first_verdicts(ratios, ANY).at > 0).sum()), studies)
