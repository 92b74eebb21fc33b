"""What is simulated: shares of false verdicts, coverage under stopping, rounds to a verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

from benchmarks.soundness import noise, peers
from benchmarks.soundness.engine import Verdicts, first_verdicts, lies_beyond, missed
from benchmarks.soundness.noise import Floats
from storlab.analysis.verdict import Rules

ALPHA, LEAST = 0.05, 5
ROUNDS = 200
POWER = 0.9
"""Of the fixed design: it finds nine of ten differences of the size that it was planned for."""

ANY = Rules(ALPHA, 0.0, "higher", LEAST)
"""With a margin of 0 nothing is ever equivalent: every verdict on A against A is false."""
DEFAULT = Rules(ALPHA, 0.05, "higher", LEAST)


@dataclass(frozen=True)
class Share:
    """So many of ``of``, with the 95 % interval of Clopper and Pearson (1934)."""

    count: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """count ÷ of."""
        return self.count / self.of


def share(count: int, of: int) -> Share:
    """The share with its interval."""
    interval = stats.binomtest(count, of).proportion_ci(0.95)
    return Share(count, of, float(interval.low), float(interval.high))


@dataclass(frozen=True)
class FalseVerdicts:
    """One kind of machine, A against A: who ever finds a difference."""

    kind: str
    storlab: Share
    peeked_t: Share
    three_runs: Share
    benchstat: Share
    benchstat_in_a_row: Share
    benchstat_peeked: Share
    lkp: Share
    rustc_perf: Share


def false_verdicts(kind: str, studies: int, rng: np.random.Generator) -> FalseVerdicts:
    """A against A on ``kind``, all methods on the same numbers."""
    machines = noise.slots(kind, studies, 2 * ROUNDS, rng)
    a, b = noise.interleave(machines, rng)
    counts = {
        "storlab": first_verdicts(a - b, ANY).at > 0,
        "peeked_t": peers.peeked_t(a, b),
        "three_runs": peers.three_runs(a, b),
        "benchstat": peers.benchstat(a, b),
        "benchstat_in_a_row": peers.benchstat_in_a_row(machines),
        "benchstat_peeked": peers.peeked_benchstat(a, b),
        "lkp": peers.lkp(machines),
        "rustc_perf": peers.rustc_perf(machines),
    }
    return FalseVerdicts(kind, **{name: share(int(found.sum()), studies) for name, found in counts.items()})


def false_equivalence(kind: str, studies: int, rng: np.random.Generator) -> Share:
    """Levels that differ by exactly the margin, which Storlab calls equivalent all the same."""
    found = first_verdicts(_ratios(kind, studies, ROUNDS, rng, math.log1p(DEFAULT.margin)), DEFAULT)
    return share(int(found.equivalent.sum()), studies)


@dataclass(frozen=True)
class Coverage:
    """How often an interval contains the truth when the study stops at its first verdict, or after 200 rounds.

    ``full``: the 95 % interval. ``shown``: the one beside the verdict, which for "equivalent" is that of 90 %.
    """

    full: Share
    shown: Share


def coverage(kind: str, effect: float, studies: int, rng: np.random.Generator) -> Coverage:
    """On ``kind``, where the true ratio is 1 + ``effect``."""
    truth = math.log1p(effect)
    ratios = _ratios(kind, studies, ROUNDS, rng, truth)
    found = first_verdicts(ratios, DEFAULT)
    last = np.arange(studies), _stops(found) - 1
    full = missed(ratios, truth, ALPHA)[last]
    narrow = np.logical_or(*(lies_beyond(ratios, truth, side, DEFAULT.one_sided) for side in (1, -1)))
    shown = np.where(found.equivalent, narrow[last], full)
    return Coverage(*(share(int((~misses).sum()), studies) for misses in (full, shown)))


def _stops(found: Verdicts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.where(found.at > 0, found.at, ROUNDS)


@dataclass(frozen=True)
class Rounds:
    """Rounds to a verdict where a study was planned for ``effect``, beside designs of a fixed number of rounds.

    ``t``, ``ranks``: rounds of a paired t test, and of Wilcoxon's signed-rank test, at 5 % that find ``POWER`` of
    such effects. ``mean``, ``most``: of Storlab's rounds when that is the truth, ``most`` for nine of ten studies;
    ``mean_twice`` when the truth is twice that. ``by_half_more``: share with a verdict by 1.5 times ``t``.
    """

    effect: float
    t: int
    ranks: int
    mean: float
    most: float
    mean_twice: float
    by_half_more: float

    def as_dict(self) -> dict[str, float]:
        """With the ratios."""
        ratios = {"ratio": self.mean / self.t, "ratio_twice": self.mean_twice / self.t}
        robust = {"ratio_to_ranks": self.mean / self.ranks, "ratio_twice_to_ranks": self.mean_twice / self.ranks}
        return asdict(self) | ratios | robust


def rounds_to_verdict(effect: float, studies: int, rng: np.random.Generator) -> Rounds:
    """In log-normal noise of 5 % a trial, margin 0. Studies that never decide count with the most rounds there are."""
    t = rounds_of_t(effect)
    most = max(60, 4 * t)
    planned, twice = (_rounds(by, studies, most, rng) for by in (effect, 2 * effect))
    by_half_more = float((planned <= math.ceil(1.5 * t)).mean())
    ranks = rounds_of_ranks(effect, t, rng)
    return Rounds(effect, t, ranks, planned.mean(), float(np.quantile(planned, 0.9)), twice.mean(), by_half_more)


def _rounds(effect: float, studies: int, most: int, rng: np.random.Generator) -> Floats:
    found = first_verdicts(_ratios("log-normal", studies, most, rng, math.log1p(effect)), ANY)
    return np.where(found.at > 0, found.at, most).astype(np.float64)


def size(effect: float) -> float:
    """In standard deviations of a log ratio."""
    return math.log1p(effect) / (math.sqrt(2) * noise.SPREAD)


def rounds_of_t(effect: float) -> int:
    """The least number of rounds in which a paired t test at 5 % finds ``POWER`` of such effects."""
    n = 2
    while True:
        critical = stats.t.ppf(1 - ALPHA / 2, n - 1)
        shift = size(effect) * math.sqrt(n)
        if stats.nct.sf(critical, n - 1, shift) >= POWER:
            return n
        n += 1


def rounds_of_ranks(effect: float, t: int, rng: np.random.Generator) -> int:
    """The same of Wilcoxon's signed-rank test, by simulation from the t test's number on; beyond 50, by efficiency."""
    if t > 50:
        return math.ceil(t * math.pi / 3)  # 3/π is its asymptotic relative efficiency in normal noise
    n = max(t, 6)  # of fewer, no outcome is significant
    while True:
        values = rng.normal(size(effect), 1.0, size=(4000, n))
        if (stats.wilcoxon(values, axis=1).pvalue <= ALPHA).mean() >= POWER:
            return n
        n += 1


def _ratios(kind: str, studies: int, rounds: int, rng: np.random.Generator, truth: float) -> Floats:
    a, b = noise.interleave(noise.slots(kind, studies, 2 * rounds, rng), rng)
    return a - b + truth
