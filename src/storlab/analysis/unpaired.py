"""A difference between two sides whose rounds are not pairs: described by an interval, never judged.

Welch's interval of the difference of means of logarithms, with Satterthwaite's degrees of freedom. It is for a number
of rounds that was fixed in advance, unlike the anytime-valid intervals of pairs. And it holds only what rounds of one
side differ by among themselves: whatever else changed from one side to the other (the hour, the machine's state, a
version) is in the difference and not in the interval. So no verdict can rest on it.

Sources: Welch 1947, "The generalization of 'Student's' problem when several different population variances are
involved". Satterthwaite 1946, "An approximate distribution of estimates of variance components".
"""

from __future__ import annotations

import math

import numpy as np

from storlab.analysis.anytime import Floats, spread
from storlab.analysis.checks import warn
from storlab.analysis.compare import Question, unanswerable
from storlab.analysis.pairing import Side, no_ratio, without_logarithm
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import safe_exp
from storlab.analysis.wording import plural, times, times_alone


def describe(question: Question, a: Side, b: Side, alpha: float, why: str) -> Comparison:
    """``a`` ÷ ``b`` with Welch's interval at 1 − ``alpha``; always undecided. ``why``: why rounds are no pairs."""
    for side in (a, b):
        if len(side.values) == 0:
            return unanswerable(question, f"No trial of {side.name} is done.", alpha, settled=False)
        problem = without_logarithm(side.name, side.rounds, side.values)
        if problem:
            return unanswerable(question, no_ratio(problem, question.metric), alpha)
    logs = np.log(a.values), np.log(b.values)
    mean, half = difference(*logs, alpha)
    known = math.isfinite(half)
    ratio, low, high = (safe_exp(mean + sign * half) if known else None for sign in (0, -1, 1))
    counts = f"{len(a.values)} and {plural(len(b.values), 'round')}"
    if ratio is not None and low is not None and high is not None:
        seen = f"{question.a} ÷ {question.b} is {times(low, ratio, high)} over {counts}"
    else:
        ratio = safe_exp(mean)
        seen = f"{question.a} ÷ {question.b} is {times_alone(ratio)}, and {counts} allow no interval"
    said = [
        f"{side.name}: {warning}"
        for side, values in zip((a, b), logs, strict=True)
        for warning in warn(values, side.rounds, "the metric")
    ]
    if known and half == 0:
        said.append("Neither side varies over its rounds: the interval is a point, right for counts only.")
    return Comparison(
        **vars(question),
        rounds=min(len(a.values), len(b.values)),
        ratio=ratio,
        low=low,
        high=high,
        confidence=1 - alpha,
        verdict="undecided",
        reason=f"{seen}; not interleaved ({why}), so it is described and not judged.",
        warnings=tuple(said),
    )


def difference(a: Floats, b: Floats, alpha: float) -> tuple[float, float]:
    """Mean of ``a`` − mean of ``b``, and half of its interval: infinite where a side has fewer than 2 values."""
    from scipy.special import stdtrit  # Student's t, without the half second that scipy.stats takes to load

    (mean_a, sd_a), (mean_b, sd_b) = spread(a), spread(b)
    mean = mean_a - mean_b
    if len(a) < 2 or len(b) < 2:
        return mean, math.inf
    share_a, share_b = sd_a**2 / len(a), sd_b**2 / len(b)
    squared = share_a + share_b
    if squared == 0:
        return mean, 0.0
    freedom = squared**2 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
    return mean, float(stdtrit(freedom, 1 - alpha / 2)) * math.sqrt(squared)
