"""The two public 12-hour MySQL runs: what can be said of one run per side, and what they say of themselves.

What a run says of itself is what Storlab's users see: ``storlab.timeseries``, its sentences included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.soundness.engine import first_verdicts
from benchmarks.soundness.noise import Floats, pieces, recorded
from benchmarks.soundness.trials import ANY, ROUNDS, Share, share
from storlab.analysis.verdict import judge
from storlab.report.language.say import say
from storlab.timeseries.findings import Examined, SeriesFindings, findings, remarks

INTERVAL = 2  # s
MINUTE = 60 // INTERVAL
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
    return Prefix(hours, float(off.mean() / on.mean()), low, high, found.verdict, say(found.reason))


@dataclass(frozen=True)
class Told:
    """What Storlab finds in one run, and what it says of it."""

    found: SeriesFindings
    sentences: list[str]

    @property
    def slope(self) -> tuple[float, float, float]:
        """Of the whole run, with its 95 % interval, as shares of the mean."""
        of = self.found
        if of.drift is None or of.drift_low is None or of.drift_high is None:
            raise ValueError("the run is too short for a slope")
        hours = of.duration / 3600
        slope, low, high = (hours * each / of.mean for each in (of.drift, of.drift_low, of.drift_high))
        return slope, low, high


def told(side: str) -> Told:
    """Of one run."""
    values = recorded(f"mysql-{side}")
    found = findings(np.arange(1.0, len(values) + 1) * INTERVAL, values)
    if found is None:
        raise ValueError(f"mysql-{side} has too few samples")
    return Told(found, [say(remark) for remark in remarks([Examined(side, "tps", found)])])


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
