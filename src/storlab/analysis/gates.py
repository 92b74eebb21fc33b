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
from typing import Literal

from storlab.analysis.compare import combinations_differ, failed_of, machines_differ
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import typical
from storlab.analysis.summary import Comparison, GateResult, Outcome
from storlab.analysis.verdict import Failed, Rules, beyond, safe_exp, span_of_limits
from storlab.analysis.wording import plural, times, times_alone
from storlab.errors import UserError

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


def _applied(gate: Gate, comparison: Comparison, pairs: Pairs | None, rules: Rules) -> GateResult:
    """What ``gate`` says.

    Where the study asks for steady state and there is none yet, nothing of what was asked for was measured: missing.
    """
    unsteady = comparison.undecided is not None and comparison.undecided.kind == "not steady"
    if comparison.verdict == "missing" or unsteady:
        said = f"{comparison.a} against {comparison.b} is missing: {comparison.reason}"
        return GateResult(str(gate), "missing", said, comparison.settled)
    if gate.word == "missing":
        return GateResult(str(gate), "passed", "Both sides are there.")
    if gate.word == "undecided":
        decided = comparison.verdict != "undecided" or _differ_without_direction(comparison)
        said = f"{comparison.a} against {comparison.b} is {'decided' if decided else 'undecided'}"
        outcome: Outcome = "passed" if decided else "hit"
        return GateResult(str(gate), outcome, f"{said}: {comparison.reason}", comparison.settled)
    if gate.word != "differs" and comparison.better == "neither":
        sentence = (
            f"Neither direction of {comparison.metric} is better, so nothing can be {gate.word}: ask for differs."
        )
        return GateResult(str(gate), "undecided", sentence)
    if pairs is None:
        return GateResult(str(gate), *_of_described(gate, comparison, rules.shrunk))
    return GateResult(str(gate), *_of_pairs(gate, comparison, pairs, rules))


def _of_pairs(gate: Gate, c: Comparison, pairs: Pairs, rules: Rules) -> tuple[Outcome, str, bool]:
    """Outcome, sentence, and whether more rounds could not change it."""
    n, failed = len(pairs.rounds), failed_of(pairs)
    if n < rules.min_rounds:
        return "undecided", f"{_whether(gate, c)}: {n} of at least {plural(rules.min_rounds, 'round')}.", False
    edge, signs = math.log1p(_limit(gate, c)), _signs(gate.word, c.better)
    seen = _span_of_limits(pairs, rules)
    if _is_hit(gate, c, pairs, rules, failed):
        if gate.beyond is not None and (differ := _differ(pairs, edge, signs, rules, inside=True)):
            return "undecided", f"{_whether(gate, c)}: {differ}", True
        return "hit", f"{_verdict(gate, c)}: {_span(c) if gate.beyond is None else seen}, paired by round.", True
    opposite = {"worse": "better", "better": "worse"}.get(gate.word)
    inside = all(beyond(pairs.log_ratios, sign * edge, -sign, rules, failed) for sign in signs)
    if inside or c.verdict == opposite:
        if differ := _differ(pairs, edge, signs, rules, inside=False):
            return "undecided", f"{_whether(gate, c)}: {differ}", True
        return "passed", f"{_claim(gate, c, negated=True)}: {seen if inside else _span(c)}, paired by round.", True
    return "undecided", f"{_whether(gate, c)}: {seen} after {plural(n, 'round')}.", False


def _differ(pairs: Pairs, edge: float, signs: Sequence[int], rules: Rules, *, inside: bool) -> str:
    """Which combinations, or else machines, surely lie inside of the edge, or beyond it, unlike all; "" for none."""

    def contradicts(part: Floats) -> bool:
        if inside:
            return all(beyond(part, sign * edge, -sign, rules) for sign in signs)
        return any(beyond(part, sign * edge, sign, rules) for sign in signs)

    def against(parts: Mapping[str, Floats]) -> dict[str, float]:
        return {name: typical(part) for name, part in parts.items() if contradicts(part)}

    return combinations_differ(against(pairs.parts)) or machines_differ(against(pairs.machines))


def _is_hit(gate: Gate, c: Comparison, pairs: Pairs, rules: Rules, failed: Failed) -> bool:
    if gate.beyond is None:
        differs = c.verdict in ("better", "worse") or _differ_without_direction(c)
        return differs if gate.word == "differs" else c.verdict == gate.word
    signs = _signs(gate.word, c.better)
    each = replace(rules, sides=max(rules.sides, len(signs)))
    return any(beyond(pairs.log_ratios, sign * math.log1p(gate.beyond), sign, each, failed) for sign in signs)


def _differ_without_direction(c: Comparison) -> bool:
    """Of a metric without a better direction it is an answer that they differ, though no verdict."""
    excludes_1 = (c.low is not None and c.low > 1) or (c.high is not None and c.high < 1)
    return c.better == "neither" and c.verdict == "undecided" and c.settled and excludes_1


def _of_described(gate: Gate, c: Comparison, shrunk: float) -> tuple[Outcome, str]:
    """By the interval alone, which is all that there is. ``shrunk``: as of ``Rules``."""
    if c.low is None or c.high is None:
        return "undecided", f"{_whether(gate, c)}: there are too few rounds for an interval."
    limit, signs = 1 + _limit(gate, c), _signs(gate.word, c.better)
    least = 1 + (gate.beyond or 0.0)  # without a limit, any difference that is not within the margin
    inside = all(_inside(c.high if sign > 0 else 1 / max(c.low, 1e-300), limit, shrunk) for sign in signs)
    beyond_it = any(c.low > least if sign > 0 else c.high < 1 / least for sign in signs)
    why = "runs not interleaved, so time, the machine's state or a version may be the cause"
    if beyond_it and not inside:
        side = "" if gate.word == "differs" else f", for the {gate.word}"
        more = _more(gate, c) if gate.beyond is not None else ""
        return "hit", f"{c.a} differs from {c.b}{more}{side}: {_span(c)} with this interval, {why}."
    if inside:
        return "passed", f"{_claim(gate, c, negated=True)}: {_span(c)} with this interval (runs not interleaved)."
    return "undecided", f"{_whether(gate, c)}: {_span(c)}, runs not interleaved."


def _inside(end: float, limit: float, shrunk: float) -> bool:
    """Whether a ratio of at most ``end``, of counts that had ½ added, is at most ``limit`` without it, too."""
    return end < 1 or end * math.exp(shrunk) <= limit


def _limit(gate: Gate, c: Comparison) -> float:
    return c.margin if gate.beyond is None else gate.beyond


def _signs(word: Word, better: str) -> Sequence[int]:
    """Directions of the log ratio that the word is about."""
    if word == "differs":
        return (1, -1)
    return (1,) if (better == "higher") == (word == "better") else (-1,)


def _span(c: Comparison) -> str:
    assert c.ratio is not None
    return times_alone(c.ratio) if c.low is None or c.high is None else times(c.low, c.ratio, c.high)


def _span_of_limits(pairs: Pairs, rules: Rules) -> str:
    """The interval whose ends are where limits are hit or passed."""
    seen = span_of_limits(pairs.log_ratios, rules.one_sided)
    ratio = safe_exp(seen.typical)
    return times(safe_exp(seen.low), ratio, safe_exp(seen.high)) if seen.bounded else times_alone(ratio)


def _claim(gate: Gate, c: Comparison, *, negated: bool = False) -> str:
    if gate.word == "differs":
        verb = "does not differ from" if negated else "differs from"
    else:
        verb = f"is {'not ' if negated else ''}{gate.word} than"
    return f"{c.a} {verb} {c.b}{_more(gate, c)}"


def _verdict(gate: Gate, c: Comparison) -> str:
    """Of a gate without a limit, that they differ is all that is sure."""
    return _claim(gate, c) if gate.beyond is not None else _claim(gate, c).removesuffix(_more(gate, c))


def _whether(gate: Gate, c: Comparison) -> str:
    return f"It is undecided whether {_claim(gate, c)}"


def _more(gate: Gate, c: Comparison) -> str:
    limit = _limit(gate, c)
    return f" by more than {limit * 100:.10g} %" if limit else ""
