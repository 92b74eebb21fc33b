"""From log ratios to a verdict, by rules that are stated in advance.

1. No verdict before the least number of rounds.
2. A ratio is *ruled out* when the anytime-valid t interval excludes it and the signed-rank evidence reaches 1/α that
   rounds lie where the interval does. The interval is for roughly normal noise, the evidence holds for any. Where there
   are outlier rounds, both must say the same without any single one of them, too: no outlier can make a verdict.
   Rounds in which the side that would win has failed count against it in the evidence, and for "equivalent" those of
   either side: who fails in bad trials can't win by the good ones.
3. Equivalent: the interval lies within the margin, and both ends of the margin are ruled out. This goes before 4:
   a difference within the margin does not matter, though it be certain.
4. Better or worse: 1 is ruled out, the interval reaches beyond the margin, and the metric has a direction.
5. Everything else is undecided.

α is the study's, divided by the number of planned comparisons (Bonferroni): the chance that a study ever calls any two
levels better or worse that do not differ, whenever it is looked at, is at most its α. Of equivalence that holds for
noise that is roughly symmetric: nothing bounds a mean that rests on what no round has shown yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.anytime import FORESEEABLE, Floats, Interval, mean_interval, rounds_for_half_width
from storlab.analysis.checks import outliers
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
class Failed:
    """In how many rounds only the trial of ``a`` failed, and only that of ``b``."""

    a: int = 0
    b: int = 0

    def against(self, side: int, better: str) -> int:
        """Rounds lost by who would win, were the mean log ratio above (``side`` 1) or below (−1) 0.

        Of a metric without a better direction both sides' count.
        """
        if better == "neither":
            return self.a + self.b
        return self.a if (side > 0) == (better == "higher") else self.b


NONE_FAILED = Failed()


@dataclass(frozen=True)
class _Evidence:
    """Log ratios with what follows from them. ``without``: the same without each outlier round; ``lost``: rounds."""

    values: Floats
    interval: Interval
    alpha: float
    without: tuple[Floats, ...]
    lost: int

    def side(self, centre: float) -> int:
        return 1 if self.interval.mean > centre else -1

    def excludes(self, centre: float) -> bool:
        return _excludes(self.interval, centre)

    def rules_out(self, centre: float) -> bool:
        return self.excludes(centre) and self.by_ranks(centre) and self.steady(centre)

    def steady(self, centre: float) -> bool:
        """Whether ``centre`` is ruled out without any single outlier round, too, on the same side."""
        for rest in self.without:
            interval = mean_interval(rest, self.alpha)
            same = (interval.mean > centre) == (self.interval.mean > centre)
            if not (same and _excludes(interval, centre) and self._by_ranks(rest, centre)):
                return False
        return True

    def by_ranks(self, centre: float) -> bool:
        return self._by_ranks(self.values, centre)

    def _by_ranks(self, values: Floats, centre: float) -> bool:
        return log_evidence(values, centre, self.side(centre), self.lost) >= -math.log(self.alpha)


def _excludes(interval: Interval, centre: float) -> bool:
    return not interval.low <= centre <= interval.high


def _weigh(log_ratios: Floats, alpha: float, lost: int) -> _Evidence:
    lone = np.nonzero(outliers(log_ratios))[0]
    without = tuple(np.delete(log_ratios, index) for index in lone)
    return _Evidence(log_ratios, mean_interval(log_ratios, alpha), alpha, without, lost)


def judge(log_ratios: Floats, a: str, b: str, rules: Rules, failed: Failed = NONE_FAILED) -> Judgement:
    """The verdict on ``a`` ÷ ``b``; ``log_ratios`` (shape ``(n,)``, n ≥ 1, finite) in order of the rounds."""
    n = len(log_ratios)
    side = 1 if log_ratios.mean() > 0 else -1
    evidence = _weigh(log_ratios, rules.alpha, failed.against(side, rules.better))
    alike = replace(evidence, lost=failed.a + failed.b)
    interval = evidence.interval
    remaining = _remaining(evidence, alike, rules)
    if n < rules.min_rounds:
        reason = f"{plural(n, 'round')} done on both sides: a verdict needs at least {rules.min_rounds}."
        return Judgement(interval, "undecided", reason, False, remaining)
    if not interval.bounded:
        reason = f"{plural(n, 'round')} allow no interval yet at a confidence of {percent(1 - rules.alpha)}."
        return Judgement(interval, "undecided", reason, False, remaining)
    edge = math.log1p(rules.margin)
    seen = _what_was_seen(log_ratios, a, b, interval)
    within = rules.margin > 0 and -edge <= interval.low and interval.high <= edge
    if within and alike.rules_out(edge) and alike.rules_out(-edge):
        also = ", and the difference, though real, is within it" if evidence.excludes(0.0) else ""
        reason = f"{seen}; the interval lies within the margin of ±{percent(rules.margin)}{also}."
        return Judgement(interval, "equivalent", reason, True, None)
    if not within and evidence.rules_out(0.0):
        return _difference(evidence, rules, seen)
    reason = f"{seen}; {_why_undecided(evidence, alike, rules, within)}."
    return Judgement(interval, "undecided", reason, False, remaining)


def beyond(log_ratios: Floats, edge: float, sign: int, rules: Rules, failed: Failed = NONE_FAILED) -> bool:
    """Whether the mean log ratio surely lies beyond ``edge``, above for ``sign`` 1 and below for −1, by rules 1 and 2.

    For conditions other than a verdict; it makes none. Everything nearer than the edge is farther from the data, so
    it is ruled out with it.
    """
    if len(log_ratios) < rules.min_rounds:
        return False
    evidence = _weigh(log_ratios, rules.alpha, failed.against(sign, rules.better))
    if not evidence.interval.bounded:
        return False
    return sign * (evidence.interval.mean - edge) > 0 and evidence.rules_out(edge)


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


def _why_undecided(evidence: _Evidence, alike: _Evidence, rules: Rules, within: bool) -> str:
    """The end of the sentence, without a full stop."""
    if not (evidence.excludes(0.0) or within):
        beyond = f" and reaches beyond the margin of ±{percent(rules.margin)}" if rules.margin > 0 else ""
        return f"the interval includes 1{beyond}"
    asked, centres = evidence, [0.0]
    but = "the interval excludes 1, but"
    if within:
        edge = math.log1p(rules.margin)
        but = f"the interval lies within the margin of ±{percent(rules.margin)}, but"
        asked, centres = alike, [edge, -edge]
    fewest = fewest_rounds(rules.alpha)
    if evidence.interval.n < fewest:
        return f"{but} to tell it from chance in noise of any shape takes at least {fewest} rounds"
    whole = replace(asked, lost=0)
    if not all(whole.by_ranks(centre) for centre in centres):
        return f"{but} the signs and ranks of the rounds don't yet tell it from chance"
    if not all(whole.steady(centre) for centre in centres):
        return f"{but} a verdict would rest on an outlier round"
    return f"{but} {plural(asked.lost, 'round')} that failed on one side might have told otherwise"


def _remaining(evidence: _Evidence, alike: _Evidence, rules: Rules) -> int | None:
    """How many more rounds are expected to decide, if they go on as they did; ``None`` where unknown."""
    interval, n = evidence.interval, evidence.interval.n
    if n < 2:
        return None
    edge = math.log1p(rules.margin)
    total = _total(evidence, abs(interval.mean), (0.0,))
    if rules.margin > 0:
        total = min(total, _total(alike, edge - abs(interval.mean), (edge, -edge)))
    if total > FORESEEABLE:
        return None
    return max(int(total), rules.min_rounds, fewest_rounds(rules.alpha), n + 1) - n


def _total(evidence: _Evidence, distance: float, centres: tuple[float, ...]) -> float:
    """Rounds until ``centres``, the nearer of which is ``distance`` from the mean, are ruled out."""
    by_interval = rounds_for_half_width(distance, evidence.interval.sd, evidence.alpha)
    if by_interval is None:
        return math.inf
    values, alpha, lost = evidence.values, evidence.alpha, evidence.lost
    by_ranks = (rounds_for_evidence(values, alpha, centre, evidence.side(centre), lost) for centre in centres)
    return max(by_interval, *by_ranks)


def safe_exp(x: float) -> float:
    """exp, which ends at 1e304 instead of overflowing; room is left to round it to a few digits."""
    return math.exp(min(x, 700.0))
