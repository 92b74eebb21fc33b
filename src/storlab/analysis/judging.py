"""The answers to all comparisons of a study together: what each needs depends on what is known of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from storlab.analysis.compare import Question, compare, failed_of, unanswerable
from storlab.analysis.gates import Gate, apply
from storlab.analysis.questions import Planned
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import log_difference
from storlab.analysis.summary import Comparison, Undecided
from storlab.analysis.verdict import Rules
from storlab.findings import AnyFinding

Asked = Sequence[tuple[Planned, Pairs | None]]
"""Comparisons with the pairs that they are judged by; ``None`` where they can't be, or not yet."""


@dataclass(frozen=True)
class Case:
    """One comparison with all that it is judged by. ``rests_after``: the round as of which that is."""

    item: Planned
    pairs: Pairs | None
    needed: float
    family: int
    rests_after: int | None = None


def answers(
    cases: Sequence[Case],
    confidence: float,
    min_rounds: int,
    gates: Sequence[Gate] = (),
    unsteady: AnyFinding | None = None,
) -> list[Comparison]:
    """One for each, with what it says to each of the ``gates``. ``confidence``: of all together.

    ``unsteady``: why none may be decided, where the study asks for steady state.
    """
    alpha = 1 - confidence
    found = []
    for case in cases:
        q = case.item.question
        answer = _answer(case.item, case.pairs, alpha, min_rounds, case.family, case.needed)
        if not answer.described:
            answer = withheld(answer, unsteady, min_rounds)
        pairs = case.pairs or Pairs()
        rules = Rules(alpha, q.margin, q.better, min_rounds, case.family, pairs.shrunk)
        asked = () if case.item.described or case.item.optional else gates
        of_gates = apply(asked, answer, pairs, rules)
        optional = case.item.optional
        found.append(replace(answer, gates=of_gates, rests_after=case.rests_after, optional=optional))
    return found


def withheld(answer: Comparison, unsteady: AnyFinding | None, min_rounds: int) -> Comparison:
    """Undecided, where ``unsteady`` says that it was measured before the steady state that was asked for."""
    if unsteady is None or answer.ratio is None:
        return answer
    lacks = Undecided("not steady", 0, min_rounds)
    return replace(answer, verdict="undecided", reason=unsteady, undecided=lacks, settled=False, rounds_to_decide=None)


def cases(asked: Asked, alpha: float, earlier: Mapping[int, Asked], rests_after: Mapping[int, int]) -> list[Case]:
    """One for each of ``asked``. What rests is judged as it was then, by what was known then of the others.

    ``earlier``: the comparisons as of each round after which cells rest. ``rests_after``: that round of each such cell.
    """
    resting: dict[tuple[object, ...], Case] = {}
    for number, then in sorted(earlier.items()):
        for case in _cases(then, alpha, resting):
            rests = rests_of(case.item, rests_after)
            if case.pairs is not None and rests is not None and rests <= number:
                resting.setdefault(case.item.question.key, replace(case, rests_after=number))
    return _cases(asked, alpha, resting)


def _cases(asked: Asked, alpha: float, resting: Mapping[tuple[object, ...], Case]) -> list[Case]:
    """``resting``: those that stay as they are; the evidence that they had counts for the others."""
    kept = [resting.get(item.question.key) for item, _ in asked]
    whole = [now if case is None else (case.item, case.pairs) for now, case in zip(asked, kept, strict=True)]
    family = family_of(whole)
    return [
        case or Case(item, pairs, needed, family)
        for case, (item, pairs), needed in zip(kept, whole, needed_by(whole, alpha), strict=True)
    ]


def rests_of(item: Planned, rests_after: Mapping[int, int]) -> int | None:
    """The last round in which all cells of a comparison were due; ``None`` where they still are."""
    return min((rests_after[cell] for both in item.cells for cell in both if cell in rests_after), default=None)


def family_of(asked: Asked) -> int:
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
    # Pairs that were pooled over other combinations are under other conditions: a = b and b = c do not make a = c.
    family = (q.factor, tuple(q.within.items()), q.pooled and item.names, q.source, q.metric)
    known = pairs is not None and not pairs.problem and len(pairs.log_ratios) > 0
    if pairs is None or not known:
        return Hypothesis(family, q.a, q.b)
    evidence = log_difference(pairs.log_ratios, failed_of(pairs).of_sides(q.better))
    return Hypothesis(family, q.a, q.b, evidence)


def _answer(
    item: Planned, pairs: Pairs | None, alpha: float, min_rounds: int, family: int, needed: float
) -> Comparison:
    question: Question = item.question
    if pairs is not None and item.described:
        found = compare(question, pairs, alpha, min_rounds)
        return found if found.ratio is None else _described(found, item.described)
    if pairs is not None:
        return compare(question, pairs, alpha, min_rounds, family, needed)
    confidence = 1 - 1 / needed
    if item.problem:
        return unanswerable(question, item.problem, confidence, warnings=item.warnings)
    assert item.waiting is not None
    return unanswerable(question, item.waiting, confidence, warnings=item.warnings, settled=False)


def _described(found: Comparison, why: AnyFinding) -> Comparison:
    return replace(
        found, verdict="undecided", reason=why, described=why, settled=True, undecided=None, rounds_to_decide=None
    )
