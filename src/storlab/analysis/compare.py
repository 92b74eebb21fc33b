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
from storlab.analysis.stats.horizon import Bet, History, Tuned
from storlab.analysis.stats.pairing import Pairs, Side, without_logarithm
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import Failed, Judgement, Rules, judge, safe_exp, span
from storlab.findings import About, AnyFinding, NoRatio, NotInterleaved
from storlab.findings.answers import NotEverywhere
from storlab.findings.rounds import Constant, CountsShifted, NoRound, NoTrial, PartsDiffer, TooFewRounds
from storlab.metrics import RATE_MARGIN


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
        return (self.factor, self.a, self.b, tuple(self.within.items()), self.pooled, self.source, self.metric)

    @property
    def mirrored(self) -> tuple[object, ...]:
        return replace(self, a=self.b, b=self.a).key


def compare(
    question: Question,
    pairs: Pairs,
    alpha: float,
    min_rounds: int = MIN_ROUNDS,
    family: int = 1,
    threshold: float | None = None,
    history: History | None = None,
) -> Comparison:
    """The answer to ``question`` from ``pairs``, as one of ``family`` comparisons of a study that is held to ``alpha``.

    ``threshold``: the evidence that a difference needs, by ``closed_testing``; by default as if no other comparison
    had any evidence. ``history``: if the study knew how many rounds it would run. Raises ``ValueError`` unless
    0 < alpha < 1.
    """
    check_alpha(alpha)
    needed = family / alpha if threshold is None else threshold
    confidence = 1 - 1 / needed
    if pairs.problem:
        why = NoRatio(pairs.problem, question.metric)
        return unanswerable(question, why, confidence, rounds=len(pairs.rounds), warnings=pairs.warnings)
    n = len(pairs.log_ratios)
    if n == 0:
        reason = NoRound(question.a, question.b)
        return unanswerable(question, reason, confidence, warnings=pairs.warnings, settled=False)
    rules = Rules(alpha, question.margin, question.better, min_rounds, family, pairs.shrunk)
    found = judge(pairs.log_ratios, question.a, question.b, rules, failed_of(pairs), needed, history)
    low, high = found.span.low, found.span.high
    warnings = [*pairs.warnings]
    if pairs.counts:
        warnings.append(CountsShifted(pairs.zeros))
    least = max(min_rounds, found.undecided.fewest) if found.undecided is not None else min_rounds
    if n < least:
        warnings.append(TooFewRounds(n, least))
    if n > 1 and found.span.sd == 0:
        warnings.append(Constant("ratio"))
    warnings += warn(pairs.log_ratios, pairs.rounds, "ratio")
    if contrary := _contrary(pairs.parts, found, rules, needed):
        differ = PartsDiffer("combinations", contrary)
        warnings.append(differ)
        if found.verdict == "equivalent":
            found = replace(found, verdict="undecided", reason=NotEverywhere(differ, rules.margin))
    if contrary := _contrary(pairs.machines, found, rules, needed):
        differ = PartsDiffer("machines", contrary)
        warnings.append(differ)
        found = replace(found, verdict="undecided", reason=NotEverywhere(differ, verdict=found.verdict))
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
        spread=found.span.sd if math.isfinite(found.span.sd) else None,
    )


def _contrary(
    parts: Mapping[str, Floats], found: Judgement, rules: Rules, needed: float
) -> tuple[tuple[str, float], ...]:
    """Of which parts of the rounds, by name, a verdict is not true, with their typical ratios: what it averages may
    cancel out. Parts are combinations that were pooled, or machines that did rounds.

    By their own intervals: beyond the margin where all together are equivalent, else on the other side of 1. Of the
    literature's qualitative interactions (Gail and Simon 1985, "Testing for qualitative interactions between treatment
    effects and patient subsets"); no verdict is made of it, one is only withheld.
    """
    if found.verdict == "undecided":
        return ()
    own = {name: span(values, needed) for name, values in parts.items()}
    edge = math.log1p(rules.margin)
    typical, alike = found.span.typical, found.verdict == "equivalent"
    return tuple(
        (name, safe_exp(x.typical))
        for name, x in own.items()
        if (alike and (x.low > edge or x.high < -edge)) or (not alike and (x.low > 0 > typical or x.high < 0 < typical))
    )


def failed_of(pairs: Pairs) -> Failed:
    return Failed(len(pairs.failed_a), len(pairs.failed_b))


def history_of(pairs: Pairs, bet: Bet | None, better: str, tuned: Tuned = (), proved: int = 0) -> History | None:
    """Under which ``bet`` the rounds of ``pairs`` were run, with those that count against either side of 1.

    ``tuned``, ``proved``: as of ``History``.
    """
    if bet is None:
        return None
    a, b = pairs.failed_a, pairs.failed_b
    lost = (a | b, a | b) if better == "neither" else (a, b) if better == "higher" else (b, a)
    return History(bet, tuple(pairs.rounds.tolist()), lost, tuned, proved)


def unanswerable(
    question: Question,
    reason: AnyFinding,
    confidence: float,
    *,
    rounds: int = 0,
    warnings: tuple[AnyFinding, ...] = (),
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


def describe(question: Question, a: Side, b: Side, alpha: float, why: AnyFinding) -> Comparison:
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
            return unanswerable(question, NoTrial((side.name,)), 1 - alpha, settled=False)
        problem = without_logarithm(side.name, side.rounds, side.logged)
        if problem:
            return unanswerable(question, NoRatio(problem, question.metric), 1 - alpha)
    logs = np.log(a.logged), np.log(b.logged)
    mean, half = difference(*logs, alpha)
    known = math.isfinite(half)
    ratio = safe_exp(mean)
    low, high = (safe_exp(mean + sign * half) if known else None for sign in (-1, 1))
    warnings: list[AnyFinding] = [
        About("side", (side.name,), warning)
        for side, values in zip((a, b), logs, strict=True)
        for warning in warn(values, side.rounds, "metric")
    ]
    warnings += [CountsShifted()] if a.counts else []
    warnings += [Constant("sides")] if known and half == 0 else []
    counts = len(a.values), len(b.values)
    reason = NotInterleaved(question.a, question.b, ratio, low, high, counts, why)
    told = unanswerable(question, reason, 1 - alpha, rounds=min(counts), warnings=tuple(warnings), settled=False)
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
