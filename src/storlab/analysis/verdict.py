"""From log ratios to a verdict, by rules that are stated in advance and never depend on how the data look.

1. No verdict before the least number of rounds. 2. A ratio is *ruled out* when the anytime-valid t interval
excludes it, and would without any single round, and the
   signed-rank evidence against it reaches 1/α. The first is sharp where noise is roughly normal, the last
   holds for any noise; a lone outlier satisfies neither.
3. Equivalent: everything beyond the margin is ruled out, on both sides. This goes before 4: a difference
within the
   margin does not matter, though it be certain.
4. Better or worse: 1 is ruled out, and the metric has a direction.
5. Everything else is undecided.

α is the study's, divided by the number of planned comparisons (Bonferroni): the chance that a study ever
gives any wrong verdict, whenever it is looked at, is at most its α.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from storlab.analysis.anytime import (
    FORESEEABLE,
    Floats,
    Interval,
    leave_one_out_hull,
    mean_interval,
    rounds_for_half_width,
)
from storlab.analysis.signed_rank import fewest_rounds, log_evidence, rounds_for_evidence
from storlab.analysis.summary import Verdict
from storlab.analysis.wording import percent, plural, times


@dataclass(frozen=True)
class Rules:
    """What was stated in advance: ``alpha`` of this comparison, ``margin``, direction, least rounds."""

    alpha: float
    margin: float
    better: str
    min_rounds: int


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reason. ``settled``: more rounds are not needed."""

    interval: Interval
    verdict: Verdict
    reason: str
    settled: bool
    rounds_to_decide: int | None


@dataclass(frozen=True)
class _Evidence:
    """Log ratios with what follows from them."""

    values: Floats
    interval: Interval
    hull: tuple[float, float]
    alpha: float

    def excludes(self, centre: float) -> bool:
        """By the interval alone."""
        return not self.interval.low <= centre <= self.interval.high

    def rules_out(self, centre: float) -> bool:
        """By all of rule 2."""
        low, high = self.hull
        return not low <= centre <= high and log_evidence(self.values, centre) >= -math.log(self.alpha)


def judge(log_ratios: Floats, a: str, b: str, rules: Rules) -> Judgement:
    """The verdict on ``a`` ÷ ``b``; ``log_ratios`` (shape ``(n,)``, n ≥ 1, finite) in order of the rounds."""
    n = len(log_ratios)
    interval = mean_interval(log_ratios, rules.alpha)
    evidence = _Evidence(log_ratios, interval, leave_one_out_hull(log_ratios, rules.alpha), rules.alpha)
    if n < rules.min_rounds:
        reason = f"{plural(n, 'round')} done on both sides: a verdict needs at least {rules.min_rounds}."
        return Judgement(interval, "undecided", reason, False, _remaining(evidence, rules))
    if not interval.bounded:
        reason = f"{plural(n, 'round')} allow no interval yet at a confidence of {percent(1 - rules.alpha)}."
        return Judgement(interval, "undecided", reason, False, _remaining(evidence, rules))
    edge = math.log1p(rules.margin)
    seen = _what_was_seen(log_ratios, a, b, interval)
    within = rules.margin > 0 and -edge <= interval.low and interval.high <= edge
    if within and evidence.rules_out(edge) and evidence.rules_out(-edge):
        also = ", and the difference, though real, is within it" if evidence.excludes(0.0) else ""
        reason = f"{seen}; the interval lies within the margin of ±{percent(rules.margin)}{also}."
        return Judgement(interval, "equivalent", reason, True, None)
    if evidence.rules_out(0.0):
        return _difference(evidence, rules, seen)
    reason = f"{seen}; {_why_undecided(evidence, rules, within)}."
    return Judgement(interval, "undecided", reason, False, _remaining(evidence, rules))


def _difference(evidence: _Evidence, rules: Rules, seen: str) -> Judgement:
    """Rule 4."""
    if rules.better == "neither":
        reason = f"{seen}; the interval excludes 1, they differ, but neither direction of this metric is better."
        return Judgement(evidence.interval, "undecided", reason, True, None)
    better = (evidence.interval.mean > 0) == (rules.better == "higher")
    reason = f"{seen}; the interval excludes 1, and {rules.better} is better."
    return Judgement(evidence.interval, "better" if better else "worse", reason, True, None)


def _what_was_seen(log_ratios: Floats, a: str, b: str, interval: Interval) -> str:
    """``xfs is higher than ext4 in 12 of 12 rounds: 1.42× (1.31× to 1.54×)``."""
    n = len(log_ratios)
    higher, lower = int((log_ratios > 0).sum()), int((log_ratios < 0).sum())
    if higher == lower == 0:
        counted = f"{a} equals {b} in each of {n} rounds"
    elif higher >= lower:
        counted = f"{a} is higher than {b} in {higher} of {n} rounds"
    else:
        counted = f"{a} is lower than {b} in {lower} of {n} rounds"
    return f"{counted}: {times(*(safe_exp(x) for x in (interval.low, interval.mean, interval.high)))}"


def _why_undecided(evidence: _Evidence, rules: Rules, within: bool) -> str:
    """The end of the sentence, without a full stop."""
    fewest = fewest_rounds(rules.alpha)
    if evidence.excludes(0.0) or within:
        if evidence.excludes(0.0):
            but = "the interval excludes 1, but"
            low, high = evidence.hull
            held = not low <= 0 <= high
        else:
            but = f"the interval lies within the margin of ±{percent(rules.margin)}, but"
            held = max(abs(end) for end in evidence.hull) <= math.log1p(rules.margin)
        if not held:
            return f"{but} not without its most telling round"
        if evidence.interval.n < fewest:
            return f"{but} to tell it from chance in noise of any shape takes at least {fewest} rounds"
        return f"{but} the signs and ranks of the rounds don't yet tell it from chance"
    beyond = f" and reaches beyond the margin of ±{percent(rules.margin)}" if rules.margin > 0 else ""
    return f"the interval includes 1{beyond}"


def _remaining(evidence: _Evidence, rules: Rules) -> int | None:
    """How many more rounds are expected to decide, if they go on as they did; ``None`` where unknown."""
    interval, n = evidence.interval, evidence.interval.n
    if n < 2:
        return None
    edge = math.log1p(rules.margin)
    totals = []
    if rules.better != "neither":
        totals.append(_total(evidence, abs(interval.mean), (0.0,)))
    if rules.margin > 0:
        totals.append(_total(evidence, edge - abs(interval.mean), (edge, -edge)))
    total = min(totals, default=math.inf)
    if total > FORESEEABLE:
        return None
    return max(int(total), rules.min_rounds, fewest_rounds(rules.alpha), n + 1) - n


def _total(evidence: _Evidence, distance: float, centres: tuple[float, ...]) -> float:
    """Rounds until ``centres``, the nearer of which is ``distance`` from the mean, are ruled out."""
    by_interval = rounds_for_half_width(distance, evidence.interval.sd, evidence.alpha)
    if by_interval is None:
        return math.inf
    by_ranks = max(rounds_for_evidence(evidence.values, evidence.alpha, centre) for centre in centres)
    return max(by_interval + 1, by_ranks)  # + 1: it must hold without any single round


def safe_exp(x: float) -> float:
    """exp, which ends at the largest float instead of overflowing."""
    return math.exp(min(x, math.log(np.finfo(np.float64).max) - 1e-9))
