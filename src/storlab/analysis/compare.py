"""Two levels of one factor over rounds: a ratio, an interval, a verdict and its reason; or described, where rounds are
no pairs. The rules are in ``verdict``, the pairing in ``pairing``, the numbers in ``signed_rank``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.design import MIN_ROUNDS
from storlab.analysis.stats.anytime import Floats, check_alpha, spread
from storlab.analysis.stats.checks import warn
from storlab.analysis.stats.pairing import Pairs, Side, no_ratio, without_logarithm
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import Failed, Judgement, Rules, judge, safe_exp, span
from storlab.analysis.wording import percent, plural, times, times_alone
from storlab.metrics import RATE_MARGIN

_NAMED = 4
_COUNTS = "The ratio is of counts with ½ added to each, so that 0 has one, too."
_ZEROS = f"{_COUNTS} In some rounds a count is 0: such counts may differ, and are never equivalent."


@dataclass(frozen=True)
class Question:
    """One comparison that a study asks for. ``within``: levels of the other factors; if pooled, only those that are
    fixed."""

    factor: str
    a: str
    b: str
    within: dict[str, str]
    pooled: bool
    source: str
    metric: str
    unit: str
    better: str
    margin: float = RATE_MARGIN

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from all others of a study."""
        return (self.factor, self.a, self.b, tuple(self.within.items()), self.pooled, self.source, self.metric)

    @property
    def mirrored(self) -> tuple[object, ...]:
        """The key of the same comparison asked the other way round."""
        return replace(self, a=self.b, b=self.a).key


def compare(
    question: Question,
    pairs: Pairs,
    alpha: float,
    min_rounds: int = MIN_ROUNDS,
    family: int = 1,
    threshold: float | None = None,
) -> Comparison:
    """The answer to ``question`` from ``pairs``, as one of ``family`` comparisons of a study that is held to ``alpha``.

    ``threshold``: the evidence that a difference needs, by ``closed_testing``; by default as if no other comparison
    had any evidence. Raises ``ValueError`` unless 0 < alpha < 1.
    """
    check_alpha(alpha)
    needed = family / alpha if threshold is None else threshold
    confidence = 1 - 1 / needed
    if pairs.problem:
        reason = no_ratio(pairs.problem, question.metric)
        return unanswerable(question, reason, confidence, rounds=len(pairs.rounds), warnings=pairs.warnings)
    n = len(pairs.log_ratios)
    if n == 0:
        reason = f"No round was done for both {question.a} and {question.b}."
        return unanswerable(question, reason, confidence, warnings=pairs.warnings, settled=False)
    rules = Rules(alpha, question.margin, question.better, min_rounds, family, pairs.shrunk)
    found = judge(pairs.log_ratios, question.a, question.b, rules, failed_of(pairs), needed)
    low, high = found.span.low, found.span.high
    warnings = [*pairs.warnings]
    if pairs.counts:
        warnings.append(_ZEROS if pairs.zeros else _COUNTS)
    least = max(min_rounds, found.undecided.fewest) if found.undecided is not None else min_rounds
    if n < least:
        warnings.append(f"Only {n} of at least {least} rounds.")
    if n > 1 and found.span.sd == 0:
        warnings.append("The ratio is the same in every round: the interval is a point, right for counts only.")
    warnings += warn(pairs.log_ratios, pairs.rounds, "The ratio")
    if contrary := combinations_differ(_contrary(pairs.parts, found, rules, needed)):
        warnings.append(contrary)
        if found.verdict == "equivalent":
            reason = f"On average the ratio is within the margin of ±{percent(rules.margin)}, but not everywhere."
            found = replace(found, verdict="undecided", reason=f"{reason} {contrary}")
    if contrary := machines_differ(_contrary(pairs.machines, found, rules, needed)):
        warnings.append(contrary)
        reason = f"All machines together give the verdict {found.verdict}, and one by one they contradict it."
        found = replace(found, verdict="undecided", reason=f"{reason} {contrary}")
    return Comparison(
        **vars(question),
        rounds=n,
        ratio=safe_exp(found.span.typical),
        low=safe_exp(low) if found.span.bounded else None,
        high=safe_exp(high) if found.span.bounded else None,
        confidence=1 - 1 / found.span.threshold,
        verdict=found.verdict,
        reason=found.reason,
        rounds_to_decide=found.rounds_to_decide,
        warnings=tuple(warnings),
        settled=found.settled,
        undecided=found.undecided,
        far=found.far,
    )


def _contrary(parts: Mapping[str, Floats], found: Judgement, rules: Rules, needed: float) -> dict[str, float]:
    """Of which parts of the rounds, by name, a verdict is not true, with their log ratios: what it averages may cancel
    out. Parts are combinations that were pooled, or machines that did rounds.

    By their own intervals: beyond the margin where all together are equivalent, else on the other side of 1. Of the
    literature's qualitative interactions (Gail and Simon 1985, "Testing for qualitative interactions between treatment
    effects and patient subsets"); no verdict is made of it, one is only withheld.
    """
    if found.verdict == "undecided":
        return {}
    own = {name: span(values, needed) for name, values in parts.items()}
    edge = math.log1p(rules.margin)
    typical, alike = found.span.typical, found.verdict == "equivalent"
    return {
        name: x.typical
        for name, x in own.items()
        if (alike and (x.low > edge or x.high < -edge)) or (not alike and (x.low > 0 > typical or x.high < 0 < typical))
    }


def combinations_differ(against: Mapping[str, float]) -> str:
    """These combinations, with their log ratios, contradict what all together say, as a sentence; "" for none."""
    return _differ("Combinations", "in", against)


def machines_differ(against: Mapping[str, float]) -> str:
    """The same of machines that did rounds of a run."""
    return _differ("Machines", "on", against)


def _differ(what: str, where: str, against: Mapping[str, float]) -> str:
    if not against:
        return ""
    said = [f"{times_alone(safe_exp(typical))} {where} {name}" for name, typical in against.items()]
    more = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return f"{what} differ: the ratio is {', '.join(said[:_NAMED])}{more}."


def failed_of(pairs: Pairs) -> Failed:
    """How often only one side failed."""
    return Failed(len(pairs.failed_a), len(pairs.failed_b))


def unanswerable(
    question: Question,
    reason: str,
    confidence: float,
    *,
    rounds: int = 0,
    warnings: tuple[str, ...] = (),
    settled: bool = True,
) -> Comparison:
    """A comparison without a ratio. ``settled``: more rounds can't change that."""
    return Comparison(
        **vars(question),
        rounds=rounds,
        ratio=None,
        low=None,
        high=None,
        confidence=confidence,
        verdict="missing",
        reason=reason,
        warnings=warnings,
        settled=settled,
    )


def describe(question: Question, a: Side, b: Side, alpha: float, why: str) -> Comparison:
    """``a`` ÷ ``b``, whose rounds are not pairs (``why``): described by Welch's interval at 1 − ``alpha``, never
    judged.

    The interval is of the difference of mean logarithms, with Satterthwaite's degrees of freedom, for a number of
    rounds that was fixed in advance. It holds only what rounds of one side differ by: the hour, the machine's state or
    a version are in the difference and not in the interval, so no verdict can rest on it.

    Sources: Welch 1947, "The generalization of 'Student's' problem when several different population variances are
    involved". Satterthwaite 1946, "An approximate distribution of estimates of variance components".
    """
    for side in (a, b):
        if len(side.values) == 0:
            return unanswerable(question, f"{side.name} has no completed trial.", 1 - alpha, settled=False)
        problem = without_logarithm(side.name, side.rounds, side.logged)
        if problem:
            return unanswerable(question, no_ratio(problem, question.metric), 1 - alpha)
    logs = np.log(a.logged), np.log(b.logged)
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
    said += [_COUNTS] if a.counts else []
    if known and half == 0:
        said.append("Neither side varies over its rounds: the interval is a point, right for counts only.")
    reason = f"{seen}; not interleaved ({why}), so it is described and not judged."
    rounds = min(len(a.values), len(b.values))
    told = unanswerable(question, reason, 1 - alpha, rounds=rounds, warnings=tuple(said), settled=False)
    return replace(told, verdict="undecided", ratio=ratio, low=low, high=high)


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
