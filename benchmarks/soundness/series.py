"""How often a trial is said to change its level, or to drift, though it has no trend: series of which that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import signal

from benchmarks.soundness.noise import Floats
from benchmarks.soundness.trials import Share, share
from storlab.timeseries.findings import findings

LENGTHS = (60, 300, 1500)
MEAN, SIGMA = 1000.0, 100.0
"""What moves the mean by less than 1 % is never said: with a large σ that hides nothing."""
_APART = 4.0  # σ between two levels
_FORGOTTEN = 500  # samples after which no AR(1) noise here remembers how it began
_WALK = 0.05  # σ of a step of a random walk, so that it stays far from 0

Make = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class FalseAlarms:
    """Of series of one kind and length: shares in which a change, a drift, or a drift in steps is told."""

    kind: str
    samples: int
    changes: Share
    drift: Share
    in_steps: Share


def false_alarms(kind: str, samples: int, series: int, rng: np.random.Generator) -> FalseAlarms:
    """In so many ``series``."""
    t = np.arange(1.0, samples + 1)
    found = [findings(t, MEAN + SIGMA * KINDS[kind](rng, samples)) for _ in range(series)]
    known = [each for each in found if each is not None]
    counts = (
        sum(bool(each.changes) for each in known),
        sum(each.drift_share != 0 for each in known),
        sum(each.drift_steps != 0 for each in known),
    )
    changes, drift, in_steps = (share(count, series) for count in counts)
    return FalseAlarms(kind, samples, changes, drift, in_steps)


def _ar1(phi: float) -> Make:
    def make(rng: np.random.Generator, n: int) -> Floats:
        shocks = rng.standard_normal(n + _FORGOTTEN) * np.sqrt(1 - phi**2)
        return np.asarray(signal.lfilter([1.0], [1.0, -phi], shocks)[_FORGOTTEN:])

    return make


def _two_levels(switches: float) -> Make:
    def make(rng: np.random.Generator, n: int) -> Floats:
        level = np.cumsum(rng.random(n) < switches / n) + rng.integers(2)
        return np.asarray(_APART * (level % 2) + rng.standard_normal(n))

    return make


KINDS: dict[str, Make] = {
    "independent": lambda rng, n: rng.standard_normal(n),
    "heavy tails": lambda rng, n: rng.standard_t(3, n),
    "AR(1), φ = 0.6": _ar1(0.6),
    "AR(1), φ = 0.9": _ar1(0.9),
    "AR(1), φ = 0.95": _ar1(0.95),
    "two levels, 60 switches": _two_levels(60),
    "two levels, 20 switches": _two_levels(20),
    "two levels, 5 switches": _two_levels(5),
    "two levels, 2 switches": _two_levels(2),
    "random walk": lambda rng, n: _WALK * np.cumsum(rng.standard_normal(n)),
}
LEVELS_CHANGE = "two levels"
"""How the kinds begin in which a change of the level is no false alarm."""
NO_TREND = tuple(kind for kind in KINDS if kind.startswith(("independent", "heavy", "AR(1)")))
