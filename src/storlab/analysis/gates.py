"""Conditions on comparisons, for CI: ``worse>3%`` fails what is surely worse by more, and passes what surely is not.

What can't be told yet is neither, and what has no measurement is missing, so that a gate never passes for want of
evidence. Each side is a claim of its own,
with the evidence that one claim among all comparisons needs (``verdict.beyond``): of "not worse by more than 3 %" that
is a test of non-inferiority, which asks much less of a study than that it finds a difference. Of one limit at most one
of the two can be false. Of several, one on each side of the truth can be, so each needs twice as much evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from storlab.analysis.compare import failed_of
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import typical
from storlab.analysis.summary import Comparison, GateResult, Outcome
from storlab.analysis.verdict import Failed, Rules, beyond, safe_exp, span_of_limits
from storlab.base.errors import UserError
from storlab.findings import GateOnVerdict
from storlab.findings.answers import Gated, GateWithoutDirection
from storlab.findings.rounds import PartsDiffer

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
