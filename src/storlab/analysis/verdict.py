"""From log ratios to a verdict, by rules that are stated in advance.

All evidence is that of signs and ranks (``signed_rank``), which supposes no shape of noise if it is asked whether two
differ at all; there a part of the stake aims at the study's last round where it has one (``horizon``). If it is asked
by how much, signs alone (``signs``) must say the same: around any value but 1 ranks suppose symmetric noise.

1. No verdict before the least number of rounds.
2. Equivalent: there is evidence that the typical ratio lies above the lower end of the margin, and as much that it lies
   below the upper one, each of as many times 1/α as there are comparisons, by ranks and by signs. This goes before 3: a
   difference within the margin does not matter, though it be certain. It is withheld where the mean of the log ratios
   may lie beyond the margin (90 %), or where rounds that are far off all lie on one side; what it says of such rounds
   is counted (``far_rounds``).
3. Better or worse: the evidence for one side of 1 reaches what closed testing asks of this comparison
   (``closed_testing``), the interval reaches beyond the margin, the mean of the log ratios is on the same side, and the
   metric has a direction. Evidence and interval say the same: it ends where the evidence reaches that much.
4. Everything else is undecided.

Rounds in which the side that would win has failed count against it in the evidence, and for "equivalent" those of
either side: who fails in bad trials can't win by the good ones.

Of what is undecided, and may yet be decided, ``undecided_kind`` says what it lacks. That is no verdict: nobody vouches
for it.

What the evidence has once shown of 3 stays shown where it falls afterwards, as long as typical ratio and mean are on
that side: the chance below is that of ever reaching it.

The chance that a study ever calls any two levels better or worse that do not differ, whenever it is looked at, is at
most its α. The same holds of "equivalent", for the ratio that half of all rounds exceed: nothing bounds what no round
has shown yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from storlab.analysis.stats import horizon, signed_rank, signs
from storlab.analysis.stats.anytime import FORESEEABLE, ROUNDING, Floats, mean_interval, spread
from storlab.analysis.stats.checks import far_rounds
from storlab.analysis.stats.horizon import History
from storlab.analysis.stats.signed_rank import fewest_rounds, log_evidence, rounds_for_evidence
from storlab.analysis.summary import Undecided, Verdict
from storlab.findings import AnyFinding, Compared
from storlab.findings.answers import (
    Differs,
    FailedMayMatter,
    FarRounds,
    IncludesOne,
    MeanBeyondMargin,
    MeanDisagrees,
    NoInterval,
    WithinMargin,
)
from storlab.findings.rounds import TooFewRounds

ALPHA_OF_MEAN = 0.10
"""Of the interval of the mean that must lie within the margin, too."""

_BESIDE = 1e-9
"""A log ratio that differs from 0 only where it matters whether an end belongs to the interval."""


@dataclass(frozen=True)
class Rules:
    """What was stated in advance: ``alpha`` of the study, margin, direction, least rounds, number of comparisons.

    ``shrunk``: by how much the ½ that counts are given makes log ratios smaller, infinite where a value is 0. What is
    said to be nearer to 1 than a limit, or equivalent, has to be nearer by so much.
    ``sides``: 2 where several limits are asked of one comparison, so that true statements on both sides of the truth
    may each be missed: all of them then follow from one interval with two ends.
    """

    alpha: float
    margin: float
    better: str
    min_rounds: int
    family: int = 1
    shrunk: float = 0.0
    sides: int = 1

    @property
    def may_be_equivalent(self) -> bool:
        return self.near > 0

    @property
    def near(self) -> float:
        """The log ratio up to which two are equivalent; not above 0 where none are."""
        return math.log1p(self.margin) - self.shrunk

    @property
    def one_sided(self) -> float:
        return math.log(self.family * self.sides / self.alpha)


@dataclass(frozen=True)
class Span:
    """What ``n`` log ratios say: their typical value with the ends of its interval, which may be infinite.

    ``mean`` and ``sd`` (n − 1; NaN of one) are those of all of them. ``threshold``: the evidence against what lies
    outside of the interval.
    """

    n: int
    typical: float
    low: float
    high: float
    mean: float
    sd: float
    threshold: float

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def excludes_equality(self) -> bool:
        return not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reason. ``settled``: more rounds are not needed."""

    span: Span
    verdict: Verdict
    reason: AnyFinding
    settled: bool
    rounds_to_decide: int | None
    undecided: Undecided | None = None
    far: FarRounds | None = None


@dataclass(frozen=True)
class Failed:
    """In how many rounds only the trial of ``a`` failed, and only that of ``b``."""

    a: int = 0
    b: int = 0

    def against(self, side: int, better: str) -> int:
        """Rounds lost by who would win, were the log ratio above (``side`` 1) or below (−1) 0.

        Of a metric without a better direction both sides' count.
        """
        if better == "neither":
            return self.a + self.b
        return self.a if (side > 0) == (better == "higher") else self.b

    def of_sides(self, better: str) -> tuple[int, int]:
        return self.against(1, better), self.against(-1, better)


NONE_FAILED = Failed()


def evidence_of(
    log_ratios: Floats, side: int, log_needed: float, failed: int = 0, history: History | None = None
) -> float:
    """The log of the evidence that a ratio lies above 1, or below it for a ``side`` of −1.

    ``failed``: rounds that count against that; those of a ``history`` are in it.
    """
    if history is None:
        return log_evidence(log_ratios, 0.0, side, failed)
    return history.log_evidence(log_ratios, log_needed, 0.0, side)


def proved_side(log_ratios: Floats, history: History | None) -> int:
    """The side of 1 that was proved in some round, if what is known now does not point the other way; else 0."""
    if history is None or not history.proved:
        return 0
    least = min(history.proved * each for each in (signed_rank.typical(log_ratios), float(log_ratios.mean())))
    return history.proved if least > 0 else 0


def least_rounds(log_needed: float, history: History | None) -> int:
    """In which there can be so much evidence for one side of 1."""
    if history is None:
        return fewest_rounds(2 * math.exp(-log_needed))
    return horizon.fewest_rounds(history.bet, log_needed, history.tuned)


def span(log_ratios: Floats, threshold: float, history: History | None = None) -> Span:
    """``log_ratios`` (shape ``(n,)``, n ≥ 1, finite), with what evidence of ``threshold`` (not its log) rules out."""
    mean, sd = spread(log_ratios)
    typical = signed_rank.typical(log_ratios)
    needed = math.log(2 * threshold)
    low, high = (signed_rank if history is None else history).interval(log_ratios, needed)
    if high - low <= ROUNDING * max(1.0, abs(typical)):
        low = high = typical
    side = 0
    if low < _BESIDE and high > -_BESIDE:  # else 0 is ruled out
        # Where rounds are equal, an end may lie on 0 itself, though 0 is ruled out: then it is none of the interval.
        at_end = {1: low > -_BESIDE, -1: high < _BESIDE}
        out = (s for s in at_end if at_end[s] and evidence_of(log_ratios, s, needed, history=history) >= needed)
        # Everything on the other side of 1 may have been ruled out before, and stays so.
        side = next(out, 0) or proved_side(log_ratios, history)
    if side:
        low, high = (max(low, _BESIDE), high) if side > 0 else (low, min(high, -_BESIDE))
    return Span(len(log_ratios), typical, low, high, mean, sd, threshold)


def span_of_limits(log_ratios: Floats, log_needed: float) -> Span:
    """All that not both, ranks and signs, rule out, each end with evidence of ``log_needed``; else as ``span``."""
    found = span(log_ratios, math.exp(log_needed) / 2)
    low, high = signs.interval(log_ratios, log_needed)
    low, high = min(found.low, low), max(found.high, high)
    if high - low <= ROUNDING * max(1.0, abs(found.typical)):
        low = high = found.typical
    return replace(found, low=low, high=high)


def fewest_for_limits(log_needed: float) -> int:
    return max(fewest_rounds(2 * math.exp(-log_needed)), signs.fewest_rounds(log_needed))


def judge(
    log_ratios: Floats,
    a: str,
    b: str,
    rules: Rules,
    failed: Failed = NONE_FAILED,
    threshold: float | None = None,
    history: History | None = None,
) -> Judgement:
    """The verdict on ``a`` ÷ ``b``; ``log_ratios`` (shape ``(n,)``, n ≥ 1, finite) in order of the rounds.

    ``threshold``: the evidence that a difference needs, by ``closed_testing``; by default as if no other comparison
    had any evidence. ``history``: if a part of the stake aims at the study's last round; with the ``failed`` ones.
    """
    needed = rules.family / rules.alpha if threshold is None else threshold
    enough = len(log_ratios) >= rules.min_rounds
    if enough and (alike := _equivalent(log_ratios, a, b, rules, failed)) is not None:
        return alike
    found = span(log_ratios, needed, history)
    lacks: AnyFinding | None
    if not enough:
        lacks = None
    elif not found.bounded:
        fewest = least_rounds(math.log(2 * needed), history)
        lacks = NoInterval(fewest if found.n < fewest else 0)
    elif (lacks := _why_undecided(log_ratios, found, rules, failed, history)) is None:
        return _differ(log_ratios, a, b, found, rules, failed, history)
    remaining = _remaining(log_ratios, found, rules, failed, history)
    kind = undecided_kind(log_ratios, found, rules, failed, history)
    shown = found if found.bounded else None
    reason = (
        TooFewRounds(found.n, kind.fewest, "verdict") if lacks is None else _compared(log_ratios, a, b, lacks, shown)
    )
    return Judgement(found, "undecided", reason, False, remaining, kind)


def _differ(
    log_ratios: Floats, a: str, b: str, found: Span, rules: Rules, failed: Failed, history: History | None
) -> Judgement:
    side, needed = 1 if found.low > 0 else -1, math.log(2 * found.threshold)
    evidence = evidence_of(log_ratios, side, needed, failed.against(side, rules.better), history)
    reason = _compared(log_ratios, a, b, Differs(rules.better, evidence < needed), found)
    if rules.better == "neither":
        return Judgement(found, "undecided", reason, True, None)
    better = (side > 0) == (rules.better == "higher")
    return Judgement(found, "better" if better else "worse", reason, True, None)


def _equivalent(log_ratios: Floats, a: str, b: str, rules: Rules, failed: Failed) -> Judgement | None:
    """Rule 2, with the interval that lies within the margin exactly where this says so; ``None`` where it doesn't."""
    if not rules.may_be_equivalent:
        return None
    lost = failed.a + failed.b
    needed = rules.one_sided
    if not all(lies_beyond(log_ratios, -side * rules.near, side, needed, lost) for side in (1, -1)):
        return None
    found, far = span_of_limits(log_ratios, rules.one_sided), far_rounds(log_ratios, rules.margin)
    mean = mean_interval(log_ratios, ALPHA_OF_MEAN)
    if far.one_sided or not -rules.near <= mean.low <= mean.high <= rules.near:
        ends = map(safe_exp, (mean.low, mean.mean, mean.high))
        but = WithinMargin(rules.margin, far=far, but="far rounds") if far.one_sided else None
        reason = _compared(log_ratios, a, b, but or MeanBeyondMargin(rules.margin, *ends), found)
        kind = Undecided("no evidence", int((log_ratios > 0).sum()), rules.min_rounds)
        return Judgement(found, "undecided", reason, False, None, kind, far)
    within = WithinMargin(rules.margin, found.excludes_equality, far)
    reason = _compared(log_ratios, a, b, within, found)
    return Judgement(found, "equivalent", reason, True, None, None, far)


def lies_beyond(values: Floats, edge: float, side: int, log_needed: float, lost: int = 0) -> bool:
    """Whether ranks and signs both show that the typical one of ``values`` lies above ``edge``, or below it.

    ``lost``: rounds that count against that.
    """
    ranks = log_evidence(values, edge, side, lost)
    return min(ranks, signs.evidence_of(values, edge, side, lost)) >= log_needed


def beyond(log_ratios: Floats, edge: float, sign: int, rules: Rules, failed: Failed = NONE_FAILED) -> bool:
    """Whether the log ratio surely lies beyond ``edge``, above for ``sign`` 1 and below for −1.

    For conditions other than a verdict; it makes none. Everything nearer than the edge is farther from the data, so
    it is ruled out with it.
    """
    if sign * edge < 0:  # nearer to 1
        if rules.shrunk >= abs(edge):
            return False
        edge += sign * rules.shrunk
    if len(log_ratios) < rules.min_rounds or sign * (float(log_ratios.mean()) - edge) <= 0:
        return False
    return lies_beyond(log_ratios, edge, sign, rules.one_sided, failed.against(sign, rules.better))


def undecided_kind(
    log_ratios: Floats, found: Span, rules: Rules, failed: Failed, history: History | None = None
) -> Undecided:
    """What an undecided comparison lacks, as exactly as its verdict is made.

    *Leaning*: were it the only comparison of its study, the evidence would be enough for the side of 1 on which both
    typical ratio and mean are. *Too few rounds*: else, where no log ratios of so few rounds could have been a verdict.
    *No evidence*: all else.
    """
    side = 1 if found.typical > 0 else -1
    fewest = least_rounds(math.log(2 * found.threshold), history)
    if rules.may_be_equivalent:  # each end has one side, hence half of the evidence
        fewest = min(fewest, fewest_for_limits(rules.one_sided))
    fewest = max(fewest, rules.min_rounds)
    alone = math.log(2 / rules.alpha)
    by_itself = None if history is None else replace(history, tuned=())
    evidence = evidence_of(log_ratios, side, alone, failed.against(side, rules.better), by_itself)
    agreeing = int((side * log_ratios > 0).sum())
    if found.n >= rules.min_rounds and side * found.mean > 0 and evidence >= alone:
        return Undecided("leaning", agreeing, fewest)
    return Undecided("too few rounds" if found.n < fewest else "no evidence", agreeing, fewest)


def _compared(log_ratios: Floats, a: str, b: str, so: AnyFinding, found: Span | None = None) -> Compared:
    counts = int((log_ratios > 0).sum()), int((log_ratios < 0).sum()), len(log_ratios)
    if found is None:
        return Compared(a, b, *counts, so)
    return Compared(a, b, *counts, so, *map(safe_exp, (found.typical, found.low, found.high)))


def _why_undecided(
    log_ratios: Floats, found: Span, rules: Rules, failed: Failed, history: History | None
) -> AnyFinding | None:
    """What rule 3 lacks; ``None`` if it lacks nothing."""
    edge = math.log1p(rules.margin)
    if rules.margin > 0 and -edge <= found.low and found.high <= edge:
        if max(-found.low, found.high) > rules.near:
            return WithinMargin(rules.margin, but="zeros" if math.isinf(rules.shrunk) else "small counts")
        return WithinMargin(rules.margin, but="failed rounds" if failed.a + failed.b else "evidence")
    if not found.excludes_equality:
        return IncludesOne(rules.margin)
    side = 1 if found.low > 0 else -1
    lost = failed.against(side, rules.better)
    needed = math.log(2 * found.threshold)
    if side != proved_side(log_ratios, history) and evidence_of(log_ratios, side, needed, lost, history) < needed:
        return FailedMayMatter(lost)
    if side * found.mean <= 0:
        return MeanDisagrees(safe_exp(found.mean))
    return None


def _remaining(log_ratios: Floats, found: Span, rules: Rules, failed: Failed, history: History | None) -> int | None:
    """How many more rounds are expected to decide, if they go on as they did; ``None`` where unknown."""
    n = found.n
    if n < 2:
        return None
    side = 1 if found.typical > 0 else -1
    lost = failed.against(side, rules.better)
    needed = math.log(2 * found.threshold)
    total = rounds_for_evidence(log_ratios, needed, 0.0, side, lost)
    if history is not None:
        total = min(total, history.rounds_for_evidence(log_ratios, needed, side))
    if rules.may_be_equivalent:
        lost = failed.a + failed.b
        ends = (
            of(log_ratios, rules.one_sided, -side * rules.near, side, lost)
            for of in (rounds_for_evidence, signs.rounds_for_evidence)
            for side in (1, -1)
        )
        total = min(total, max(ends))
    if total > FORESEEABLE:
        return None
    least = fewest_rounds(rules.alpha)
    return max(int(total), rules.min_rounds, least, n + 1) - n


def safe_exp(x: float) -> float:
    """exp, which ends at 1e304 and at 1e-304, as ratios with 0 do, instead of overflowing or being 0."""
    return math.exp(max(-700.0, min(x, 700.0)))


def is_endless(ratio: float) -> bool:
    """Whether a ratio is that of something and 0, beyond all that are measured."""
    return not 1e-300 <= ratio <= 1e300
