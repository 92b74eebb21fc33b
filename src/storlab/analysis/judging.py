"""The answers to all comparisons of a study together, and gates on them.

What each comparison needs depends on what is known of the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from storlab.analysis.compare import Question, compare, failed_of, history_of, unanswerable
from storlab.analysis.questions import Planned
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds, tuned_thresholds
from storlab.analysis.stats.horizon import Bet, History, Tuned
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import log_difference, typical
from storlab.analysis.summary import Comparison, GateResult, Outcome, Undecided
from storlab.analysis.verdict import Failed, Rules, beyond, safe_exp, span_of_limits
from storlab.base.errors import UserError
from storlab.findings import AnyFinding, GateOnVerdict
from storlab.findings.answers import Gated, GateWithoutDirection
from storlab.findings.rounds import PartsDiffer

# Conditions on comparisons, for CI: ``worse>3%`` fails what is surely worse by more, and passes what surely is not.
#
# What can't be told yet is neither, and what has no measurement is missing, so that a gate never passes for want of
# evidence. Each side is a claim of its own, with the evidence that one claim among all comparisons needs
# (``verdict.beyond``): of "not worse by more than 3 %" that is a test of non-inferiority, which asks much less of a
# study than that it finds a difference. Of one limit at most one of the two can be false. Of several, one on each
# side of the truth can be, so each needs twice as much evidence.

Word = Literal["worse", "better", "differs", "undecided", "missing"]
WORDS: tuple[Word, ...] = ("worse", "better", "differs", "undecided", "missing")
_WITHOUT_LIMIT = ("undecided", "missing")

_FORM = re.compile(r"\s*([a-z]+)\s*(?:>\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*)?", re.ASCII)


@dataclass(frozen=True)
class Gate:
    """``beyond``: the share that the difference must exceed; ``None`` where none was given: then the margin."""

    word: Word
    beyond: float | None = None

    def __str__(self) -> str:
        return self.word if self.beyond is None else f"{self.word}>{self.beyond * 100:.10g}%"


def parse_gate(text: str) -> Gate:
    """A gate as the user wrote it: a word, and of most a limit if they like. Raises ``UserError``.

    ``worse>3%``: worse by a factor beyond 1.03, as margins are counted. ``undecided``: without a verdict. ``missing``:
    something could not be compared.
    """
    found = _FORM.fullmatch(text)
    word = next((word for word in WORDS if found and found[1] == word), None)
    if found is None or word is None or (word in _WITHOUT_LIMIT and found[2] is not None):
        raise UserError(
            f"cannot read --fail-on {text!r}: write worse, better or differs, with a limit if you like "
            "('worse>3%'), or undecided or missing"
        )
    return Gate(word, None if found[2] is None else float(found[2]) / 100)


def apply(gates: Sequence[Gate], comparison: Comparison, pairs: Pairs | None, rules: Rules) -> tuple[GateResult, ...]:
    """What each of the ``gates`` says of one comparison with these ``pairs``; ``None`` where its rounds are none."""
    limits = {
        (sign, _limit(gate, comparison))
        for gate in gates
        if gate.word not in _WITHOUT_LIMIT
        for sign in _signs(gate.word, comparison.better)
    }
    alone = len(limits) <= 1 or len({gate for gate in gates if gate.word not in _WITHOUT_LIMIT}) == 1
    rules = replace(rules, sides=1 if alone else 2)
    return tuple(_applied(gate, comparison, pairs, rules) for gate in gates)


def _applied(gate: Gate, c: Comparison, pairs: Pairs | None, rules: Rules) -> GateResult:
    """What ``gate`` says.

    Where the study asks for steady state and there is none yet, nothing of what was asked for was measured: missing.
    """
    name, unsteady = str(gate), c.undecided is not None and c.undecided.kind == "not steady"
    if c.verdict == "missing" or unsteady:
        return GateResult(name, "missing", GateOnVerdict(c.a, c.b, "missing", c.reason), c.settled)
    if gate.word == "missing":
        return GateResult(name, "passed", GateOnVerdict(c.a, c.b, "there"))
    if gate.word == "undecided":
        decided = c.verdict != "undecided" or _differ_without_direction(c)
        why = GateOnVerdict(c.a, c.b, "decided" if decided else "undecided", c.reason)
        return GateResult(name, "passed" if decided else "hit", why, c.settled)
    if gate.word != "differs" and c.better == "neither":
        return GateResult(name, "undecided", GateWithoutDirection(c.metric, gate.word))
    return _of_described(gate, c, rules.shrunk) if pairs is None else _of_pairs(gate, c, pairs, rules)


def _of_pairs(gate: Gate, c: Comparison, pairs: Pairs, rules: Rules) -> GateResult:
    n, failed = len(pairs.rounds), failed_of(pairs)
    edge, signs = math.log1p(_limit(gate, c)), _signs(gate.word, c.better)

    def result(outcome: Outcome, *, settled: bool = True, **known: Any) -> GateResult:
        why = Gated(c.a, c.b, gate.word, _limit(gate, c), gate.beyond is not None, outcome, n, True, **known)
        return GateResult(str(gate), outcome, why, settled)

    if n < rules.min_rounds:
        return result("undecided", settled=False, need=rules.min_rounds)
    own = {"ratio": c.ratio, "low": c.low, "high": c.high}
    seen = _span_of_limits(pairs, rules)
    if _is_hit(gate, c, pairs, rules, failed):
        if gate.beyond is not None and (differ := _differ(pairs, edge, signs, rules, inside=True)):
            return result("undecided", differ=differ)
        return result("hit", **(own if gate.beyond is None else seen))
    opposite = {"worse": "better", "better": "worse"}.get(gate.word)
    inside = all(beyond(pairs.log_ratios, sign * edge, -sign, rules, failed) for sign in signs)
    if inside or c.verdict == opposite:
        if differ := _differ(pairs, edge, signs, rules, inside=False):
            return result("undecided", differ=differ)
        return result("passed", **(seen if inside else own))
    return result("undecided", settled=False, **seen)


def _differ(pairs: Pairs, edge: float, signs: Sequence[int], rules: Rules, *, inside: bool) -> PartsDiffer | None:

    def contradicts(part: Floats) -> bool:
        if inside:
            return all(beyond(part, sign * edge, -sign, rules) for sign in signs)
        return any(beyond(part, sign * edge, sign, rules) for sign in signs)

    kinds: tuple[tuple[Literal["combinations", "machines"], Mapping[str, Floats]], ...] = (
        ("combinations", pairs.parts),
        ("machines", pairs.machines),
    )
    for kind, parts in kinds:
        ratios = tuple((name, safe_exp(typical(part))) for name, part in parts.items() if contradicts(part))
        if ratios:
            return PartsDiffer(kind, ratios)
    return None


def _is_hit(gate: Gate, c: Comparison, pairs: Pairs, rules: Rules, failed: Failed) -> bool:
    if gate.beyond is None:
        differs = c.verdict in ("better", "worse") or _differ_without_direction(c)
        return differs if gate.word == "differs" else c.verdict == gate.word
    signs = _signs(gate.word, c.better)
    each = replace(rules, sides=max(rules.sides, len(signs)))
    return any(beyond(pairs.log_ratios, sign * math.log1p(gate.beyond), sign, each, failed) for sign in signs)


def _differ_without_direction(c: Comparison) -> bool:
    excludes_1 = (c.low is not None and c.low > 1) or (c.high is not None and c.high < 1)
    return c.better == "neither" and c.verdict == "undecided" and c.settled and excludes_1


def _of_described(gate: Gate, c: Comparison, shrunk: float) -> GateResult:
    """By the interval alone, which is all that there is. ``shrunk``: as of ``Rules``."""
    limit, signs = 1 + _limit(gate, c), _signs(gate.word, c.better)
    outcome: Outcome = "undecided"
    if c.low is not None and c.high is not None:
        least = 1 + (gate.beyond or 0.0)  # without a limit, any difference that is not within the margin
        low, high = c.low, c.high
        inside = all(_inside(high if sign > 0 else 1 / max(low, 1e-300), limit, shrunk) for sign in signs)
        beyond_it = any(low > least if sign > 0 else high < 1 / least for sign in signs)
        outcome = "passed" if inside else "hit" if beyond_it else "undecided"
    span = (c.ratio, c.low, c.high) if c.low is not None and c.high is not None else (None, None, None)
    why = Gated(c.a, c.b, gate.word, _limit(gate, c), gate.beyond is not None, outcome, c.rounds, False, *span)
    return GateResult(str(gate), outcome, why)


def _inside(end: float, limit: float, shrunk: float) -> bool:
    """Whether a ratio of at most ``end``, of counts that had ½ added, is at most ``limit`` without it, too."""
    return end < 1 or end * math.exp(shrunk) <= limit


def _limit(gate: Gate, c: Comparison) -> float:
    return c.margin if gate.beyond is None else gate.beyond


def _signs(word: Word, better: str) -> Sequence[int]:
    if word == "differs":
        return (1, -1)
    return (1,) if (better == "higher") == (word == "better") else (-1,)


def _span_of_limits(pairs: Pairs, rules: Rules) -> dict[str, float]:
    seen = span_of_limits(pairs.log_ratios, rules.one_sided)
    ends = {"low": safe_exp(seen.low), "high": safe_exp(seen.high)} if seen.bounded else {}
    return {"ratio": safe_exp(seen.typical), **ends}


_LARGEST, _NONE = 700.0, -600.0  # logs of evidence: more changes nothing; of what is needed: none

Asked = Sequence[tuple[Planned, Pairs | None]]
"""Comparisons with the pairs that they are judged by; ``None`` where they can't be, or not yet."""


@dataclass(frozen=True)
class Case:
    """One comparison with all that it is judged by. ``rests_after``: the round as of which that is.

    ``tuned``: if the evidence aims at a number of rounds, what is needed of it; ``needed`` is the most of it.
    ``proved``: as of ``History``.
    """

    item: Planned
    pairs: Pairs | None
    needed: float
    family: int
    tuned: Tuned = ()
    proved: int = 0
    rests_after: int | None = None


def answers(
    cases: Sequence[Case],
    confidence: float,
    min_rounds: int,
    gates: Sequence[Gate] = (),
    unsteady: AnyFinding | None = None,
    bet: Bet | None = None,
) -> list[Comparison]:
    """One for each, with what it says to each of the ``gates``. ``confidence``: of all together.

    ``unsteady``: why none may be decided, where the study asks for steady state. ``bet``: as of ``cases``.
    """
    alpha = 1 - confidence
    found = []
    for case in cases:
        q = case.item.question
        answer = _answer(case, alpha, min_rounds, bet)
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


def cases(
    asked: Asked,
    alpha: float,
    earlier: Mapping[int, Asked],
    rests_after: Mapping[int, int],
    bet: Bet | None = None,
) -> list[Case]:
    """One for each of ``asked``. What rests is judged as it was then, by what was known then of the others.

    ``earlier``: the comparisons as of each round after which cells rest. ``rests_after``: that round of each such cell.
    ``bet``: if the study knew beforehand how many rounds it would run.
    """
    resting: dict[tuple[object, ...], Case] = {}
    for number, then in sorted(earlier.items()):
        for case in _cases(then, alpha, resting, bet):
            rests = rests_of(case.item, rests_after)
            if case.pairs is not None and rests is not None and rests <= number:
                resting.setdefault(case.item.question.key, replace(case, rests_after=number))
    return _cases(asked, alpha, resting, bet)


def _cases(asked: Asked, alpha: float, resting: Mapping[tuple[object, ...], Case], bet: Bet | None) -> list[Case]:
    """``resting``: those that stay as they are; the evidence that they had counts for the others."""
    kept = [resting.get(item.question.key) for item, _ in asked]
    whole = [now if case is None else (case.item, case.pairs) for now, case in zip(asked, kept, strict=True)]
    family = family_of(whole)
    tuned: list[tuple[Tuned, int]] = [((), 0)] * len(whole) if bet is None else tuned_by(whole, alpha, bet)
    needed = (
        needed_by(whole, alpha) if bet is None else [max(math.exp(log) / 2 for _, log in each) for each, _ in tuned]
    )
    return [
        case or Case(item, pairs, needed[at], family, *tuned[at])
        for at, (case, (item, pairs)) in enumerate(zip(kept, whole, strict=True))
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


def tuned_by(asked: Asked, alpha: float, bet: Bet) -> list[tuple[Tuned, int]]:
    """The same where evidence aims at a number of rounds, and which side of 1 it has proved: as of ``History``.

    What is needed is that of now; where that isn't reached, of the last round in which it was.
    """
    counted = [index for index, (item, _) in enumerate(asked) if item.counted]
    log_goal = math.log(2 / alpha)
    whole = log_goal + math.log(family_of(asked))
    tuned: list[tuple[Tuned, int]] = [(((whole, whole),), 0)] * len(asked)
    histories = [_history(*asked[index], bet) for index in counted]
    rounds = max([1, *(history.last for history, _ in histories if history)])
    paths = dict[int, list[Floats]]()  # by size: of each comparison the log evidence for either side, after each round

    def evidence(size: int) -> Floats:
        paths[size] = [_of_both_sides(*each, log_goal + math.log(size), rounds) for each in histories]
        return np.array([np.exp(np.minimum(each, _LARGEST)).mean(axis=0) for each in paths[size]])

    known = [_hypothesis(asked[index][0], None) for index in counted]
    for at, (index, each) in enumerate(zip(counted, tuned_thresholds(known, evidence, alpha), strict=True)):
        logs = [(size, np.log(np.maximum(2 * needed, 1e-300))) for size, needed in each]
        reached = np.all([paths[size][at] >= log for size, log in logs], axis=0)  # (sides, rounds)
        above, below = reached.any(axis=1)
        last = rounds - 1
        if above != below and not reached[:, last].any():
            last = int(np.nonzero(reached.any(axis=0))[0][-1])
        now = tuple((log_goal + math.log(size), float(log[last])) for size, log in logs if log[last] > _NONE)
        tuned[index] = now, int(above) - int(below)  # of both sides, neither is proved
    return tuned


def _history(item: Planned, pairs: Pairs | None, bet: Bet) -> tuple[History | None, Floats]:
    if pairs is None or pairs.problem or not len(pairs.log_ratios):
        return None, np.empty(0)
    return history_of(pairs, bet, item.question.better), pairs.log_ratios


def _of_both_sides(history: History | None, values: Floats, log_goal: float, rounds: int) -> Floats:
    """log K for "above" and for "below" after each of so many ``rounds``; as it was in the last that there is."""
    found = np.zeros((2, rounds))
    for side, row in zip((1, -1), found, strict=True):
        if history is not None:
            path = history.path(values, log_goal, 0.0, side)
            row[: len(path)], row[len(path) :] = path, path[-1]
    return found


def _hypothesis(item: Planned, pairs: Pairs | None) -> Hypothesis:
    q = item.question
    # Pairs that were pooled over other combinations are under other conditions: a = b and b = c do not make a = c.
    family = (q.factor, tuple(q.within.items()), q.pooled and item.names, q.source, q.metric)
    known = pairs is not None and not pairs.problem and len(pairs.log_ratios) > 0
    if pairs is None or not known:
        return Hypothesis(family, q.a, q.b)
    evidence = log_difference(pairs.log_ratios, failed_of(pairs).of_sides(q.better))
    return Hypothesis(family, q.a, q.b, evidence)


def _answer(case: Case, alpha: float, min_rounds: int, bet: Bet | None) -> Comparison:
    item, pairs, needed = case.item, case.pairs, case.needed
    question: Question = item.question
    if pairs is not None and item.described:
        found = compare(question, pairs, alpha, min_rounds)
        return found if found.ratio is None else _described(found, item.described)
    if pairs is not None:
        history = history_of(pairs, bet, question.better, case.tuned, case.proved)
        return compare(question, pairs, alpha, min_rounds, case.family, needed, history)
    confidence = 1 - 1 / needed
    if item.problem:
        return unanswerable(question, item.problem, confidence, warnings=item.warnings)
    assert item.waiting is not None
    return unanswerable(question, item.waiting, confidence, warnings=item.warnings, settled=False)


def _described(found: Comparison, why: AnyFinding) -> Comparison:
    return replace(
        found, verdict="undecided", reason=why, described=why, settled=True, undecided=None, rounds_to_decide=None
    )
