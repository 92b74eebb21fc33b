"""Up to which step of a sweep a metric stays within a limit: "up to which rate is p99 below 5 ms?"

At each step the rounds are evidence that the metric's typical value lies on the good side of the limit, or on the bad
one: by ranks of the logarithm of value ÷ limit (``stats.signed_rank``), and by signs alone (``stats.signs``), valid
after any number of rounds. A round whose trial failed counts as the worst against the good side.

*Holds up to*: steps are tested in ascending order, each with half of α, up to the first without enough evidence. *Fails
from*: the same from the last step downwards, with the other half. Testing in an order that is fixed beforehand needs no
correction for the number of steps: a false statement takes an error at the first step, in that order, of which it is
false (Maurer, Hothorn and Lehmacher 1995; Westfall and Krishen 2001, "Optimally weighted, fixed sequence and gatekeeper
multiple testing procedures"). So what is said of the steps at both ends holds with a confidence of 1 − α, whatever
shape the curve has. Where the metric rises with the load, the step at which it crosses the limit lies between them.

That supposes what claims about a value suppose, too: that one round does not tell of the next. Where the rounds do not
pass a check of that (``stats.checks``), what is said is of these rounds, and has no confidence. The crossing itself, of
which no more is said than "about", is where the monotone curve that fits the typical values best (isotonic regression:
Barlow, Bartholomew, Bremner and Brunk 1972) meets the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.checks import independence_lacks
from storlab.analysis.stats.signed_rank import typical
from storlab.analysis.verdict import lies_beyond
from storlab.findings.answers import NotIndependent

_LEAST = 1e-9  # of the limit: a value of 0 has no logarithm, and is as good as one so small


@dataclass(frozen=True)
class Observed:
    """One step: the factor's ``number``; ``values`` (shape ``(n,)``, finite) in order of rounds; rounds that failed."""

    number: float
    values: Floats
    failed: int = 0


@dataclass(frozen=True)
class Bracket:
    """``holds``: how many of the first steps hold. ``fails``: how many of the last do not. ``lacks``: why neither has a
    confidence.
    """

    holds: int
    fails: int
    crossing: float | None
    lacks: NotIndependent | None


def bracket(steps: Sequence[Observed], limit: float, below: bool, alpha: float) -> Bracket:
    """``steps`` in ascending order; ``limit`` > 0; ``alpha``: that either end is false."""
    side = 1 if below else -1  # on which the metric is worse than the limit
    offs = [side * np.log(np.maximum(step.values, _LEAST * limit) / limit) for step in steps]
    needed = math.log(2 / alpha)
    good = [lies_beyond(off, 0.0, -1, needed, step.failed) for off, step in zip(offs, steps, strict=True)]
    bad = [lies_beyond(off, 0.0, 1, needed) for off in offs]
    holds = next((index for index, found in enumerate(good) if not found), len(steps))
    fails = next((index for index, found in enumerate(reversed(bad)) if not found), len(steps))
    lacks = independence_lacks([off for off in offs if len(off)])
    return Bracket(holds, min(fails, len(steps) - holds), _crossing(steps, offs), lacks)


def _crossing(steps: Sequence[Observed], offs: Sequence[Floats]) -> float | None:
    """Where the monotone fit of the typical logarithms passes 0; between two steps on a straight line."""
    from scipy.optimize import isotonic_regression

    known = [(step.number, typical(off)) for step, off in zip(steps, offs, strict=True) if len(off)]
    if len(known) < 2:
        return None
    numbers, heights = np.array(known).T
    fitted = isotonic_regression(heights, increasing=True).x
    above = int(np.searchsorted(fitted, 0.0))  # the first step that does not lie below the limit
    if above in (0, len(fitted)):
        return None
    low, high = fitted[above - 1], fitted[above]
    share = 1.0 if high == low else -low / (high - low)
    return float(numbers[above - 1] + share * (numbers[above] - numbers[above - 1]))
