"""The answers to all comparisons of a study together: what each needs depends on what is known of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storlab.analysis.compare import Question, compare, failed_of, unanswerable
from storlab.analysis.gates import Gate, apply
from storlab.analysis.questions import Planned
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import log_difference
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import Rules

Asked = Sequence[tuple[Planned, Pairs | None]]
"""Comparisons with the pairs that they are judged by; ``None`` where they can't be, or not yet."""


def answers(asked: Asked, confidence: float, min_rounds: int, gates: Sequence[Gate] = ()) -> list[Comparison]:
    """One for each, with what it says to each of the ``gates``. ``confidence``: of all together."""
    alpha = 1 - confidence
    family = family_of(asked)
    found = []
    for (item, pairs), needed in zip(asked, needed_by(asked, alpha), strict=True):
        q = item.question
        answer = _answer(item, pairs, alpha, min_rounds, family, needed)
        rules = Rules(alpha, q.margin, q.better, min_rounds, family)
        found.append(replace(answer, gates=tuple(apply(gate, answer, pairs or Pairs(), rules) for gate in gates)))
    return found


def family_of(asked: Asked) -> int:
    """How many comparisons there are to be wrong about."""
    return max(1, sum(item.counted for item, _ in asked))


def needed_by(asked: Asked, alpha: float) -> list[float]:
    """The evidence that a difference needs in each; those that don't count have no part in it."""
    counted = [index for index, (item, _) in enumerate(asked) if item.counted]
    needed = [family_of(asked) / alpha] * len(asked)
    if counted:
        for index, threshold in zip(counted, thresholds([_hypothesis(*asked[i]) for i in counted], alpha), strict=True):
            needed[index] = float(threshold)
    return needed


def _hypothesis(item: Planned, pairs: Pairs | None) -> Hypothesis:
    q = item.question
    family = (q.factor, tuple(q.within.items()), q.pooled, q.source, q.metric)
    known = pairs is not None and not pairs.problem and len(pairs.log_ratios) > 0
    if pairs is None or not known:
        return Hypothesis(family, q.a, q.b)
    evidence = log_difference(pairs.log_ratios, failed_of(pairs).of_sides(q.better))
    return Hypothesis(family, q.a, q.b, evidence)


def _answer(
    item: Planned, pairs: Pairs | None, alpha: float, min_rounds: int, family: int, needed: float
) -> Comparison:
    question: Question = item.question
    if pairs is not None:
        return compare(question, pairs, alpha, min_rounds, family, needed)
    confidence = 1 - 1 / needed
    if item.problem:
        return unanswerable(question, item.problem, confidence, warnings=item.warnings)
    reason = item.waiting[0].upper() + item.waiting[1:]
    return unanswerable(question, reason, confidence, warnings=item.warnings, settled=False)
