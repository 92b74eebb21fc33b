"""Runs compared with each other: each run as a level, or the levels of a factor that the runs have.

Trials of one run of Storlab's are interleaved: they are paired by round, and get verdicts. So are trials of different
runs that alternate in time (``interleaving``). Everything else is described (``compare.describe``) and never judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from storlab.analysis.compare import compare, describe, failed_of, unanswerable
from storlab.analysis.interleaving import same_order
from storlab.analysis.merged_runs import Merged, RunData, merge
from storlab.analysis.pairing import Pairs, no_ratio
from storlab.analysis.questions import Planned
from storlab.analysis.sides import Sides, pooled, sides
from storlab.analysis.summary import Comparison
from storlab.analysis.varying import Varying, varying
from storlab.analysis.verdict import Rules, beyond
from storlab.analysis.wording import percent, plural, times
from storlab.errors import UserError

Word = Literal["worse", "better", "differs", "missing"]
WORDS: tuple[Word, ...] = ("worse", "better", "differs", "missing")
Outcome = Literal["hit", "passed", "unknown"]

_FORM = re.compile(r"\s*([a-z]+)\s*(?:>\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%\s*)?", re.ASCII)


@dataclass(frozen=True)
class Gate:
    """``beyond``: the share that the difference must exceed; ``None`` where none was given."""

    word: Word
    beyond: float | None = None

    def __str__(self) -> str:
        return self.word if self.beyond is None else f"{self.word}>{self.beyond * 100:.10g}%"


@dataclass(frozen=True)
class GateResult:
    """What came of one gate at one comparison: ``sentence`` says it for a reader who sees nothing else."""

    gate: str
    outcome: Outcome
    sentence: str


def parse_gate(text: str) -> Gate:
    """A gate as the user wrote it: a word, and where it is not ``missing``, a limit if they like. Raises ``UserError``.

    ``worse>3%``: sure to be worse by more than 3 %, i.e. by a factor beyond 1.03, as margins are counted. ``missing``:
    something could not be compared.
    """
    found = _FORM.fullmatch(text)
    word = next((word for word in WORDS if found and found[1] == word), None)
    if found is None or word is None or (word == "missing" and found[2] is not None):
        raise UserError(
            f"--fail-on {text!r} can't be read: write worse, better or differs, with a limit if you like "
            "('worse>3%'), or missing"
        )
    return Gate(word, None if found[2] is None else float(found[2]) / 100)


def apply(gate: Gate, comparison: Comparison, pairs: Pairs | None, rules: Rules) -> GateResult:
    """What ``gate`` says of one comparison with these ``pairs``; ``None`` where its rounds are none."""
    if gate.word == "missing":
        if comparison.ratio is None:
            return GateResult(str(gate), "hit", f"{comparison.a} and {comparison.b} can't be compared.")
        return GateResult(str(gate), "passed", "Both sides are there.")
    if comparison.ratio is None:
        return GateResult(str(gate), "unknown", f"Nothing can be said of {gate}: {comparison.reason}")
    if comparison.low is None or comparison.high is None:
        return GateResult(str(gate), "unknown", f"Too few rounds to tell whether {gate}: there is no interval.")
    if gate.word != "differs" and comparison.better == "neither":
        sentence = f"Neither direction of {comparison.metric} is better: nothing can be {gate.word}."
        return GateResult(str(gate), "unknown", sentence)
    if pairs is None:
        return _of_described(gate, comparison)
    if len(pairs.rounds) < rules.min_rounds:
        return GateResult(str(gate), "unknown", f"{len(pairs.rounds)} of at least {rules.min_rounds} rounds.")
    edge = math.log1p(gate.beyond or 0.0)
    if gate.beyond is None and gate.word != "differs":
        hit = comparison.verdict == gate.word
    else:
        signs, failed = _signs(gate.word, comparison.better), failed_of(pairs)
        hit = any(beyond(pairs.log_ratios, sign * edge, sign, rules, failed) for sign in signs)
    span = times(comparison.low, comparison.ratio, comparison.high)
    if hit:
        return GateResult(str(gate), "hit", f"{_claim(gate, comparison)}: {span}, paired by round.")
    return GateResult(str(gate), "passed", f"Not shown: {_claim(gate, comparison)}.")


def _of_described(gate: Gate, c: Comparison) -> GateResult:
    assert c.low is not None and c.ratio is not None and c.high is not None
    limit = 1 + (gate.beyond or 0.0)
    above, below = c.low > limit, c.high < 1 / limit
    signs = _signs(gate.word, c.better)
    more = "" if gate.beyond is None else f" by more than {_percent(gate.beyond)}"
    side = "" if gate.word == "differs" else f", for the {gate.word}"
    claim = f"{c.a} differs from {c.b}{more}{side}"
    if (above and 1 in signs) or (below and -1 in signs):
        sentence = (
            f"{claim}: {times(c.low, c.ratio, c.high)} with this interval, runs not interleaved, so time, the "
            "machine's state or a version may be the cause."
        )
        return GateResult(str(gate), "hit", sentence)
    return GateResult(str(gate), "passed", f"Not shown: {claim} (runs not interleaved).")


def _signs(word: Word, better: str) -> tuple[int, ...]:
    """Directions of the log ratio that the word is about."""
    if word == "differs":
        return (1, -1)
    return (1,) if (better == "higher") == (word == "better") else (-1,)


def _claim(gate: Gate, c: Comparison) -> str:
    more = "" if gate.beyond is None else f" by more than {_percent(gate.beyond)}"
    return f"{c.a} differs from {c.b}{more}" if gate.word == "differs" else f"{c.a} is {gate.word} than {c.b}{more}"


def _percent(share: float) -> str:
    return f"{share * 100:.10g} %"


Basis = Literal["interleaved", "not interleaved", "none"]

CAUTION = (
    "Not everything here was interleaved. Runs that follow each other differ also by the hour, by the state of the "
    "machine and by versions: such differences are described and never judged, and nothing shows their cause."
)

PAIRED = "Trials that were interleaved are paired by round: anytime-valid intervals and verdicts, as in a report."
UNPAIRED = (
    "Trials that were not interleaved: Welch's t interval of the difference of mean logarithms (Welch 1947), for a "
    "number of rounds that was fixed in advance; it holds the spread of rounds within a run, not what differs between "
    "runs."
)
SINGLE = "One round of a side has no spread, and so no interval."
POOLED = (
    "Pooled: of each round the mean of the logarithms of all combinations, so that rounds stay what is counted, and "
    "combinations weigh the same."
)
VARYING = (
    "Variability is that of samples within trials, which depend on each other: it is described, by population "
    "variances, and never judged."
)


@dataclass(frozen=True)
class RunComparison:
    """One comparison with what it rests on. A described one is undecided, whatever its interval."""

    comparison: Comparison
    basis: Basis
    rounds: tuple[int, int]  # of a and b; equal where paired
    gates: tuple[GateResult, ...] = ()
    apart: str = ""  # why rounds are no pairs, as a clause; empty where they are


@dataclass(frozen=True)
class RunsCompared:
    """All that ``storlab compare`` says. The first level is what the others are compared with."""

    factor: str
    levels: tuple[str, ...]
    runs: tuple[str, ...]
    primary: str
    confidence: float  # family-wise
    family: int
    comparisons: tuple[RunComparison, ...]
    cautions: tuple[str, ...]
    method: str
    variability: tuple[Varying, ...] = ()

    @property
    def failed(self) -> bool:
        return any(result.outcome == "hit" for c in self.comparisons for result in c.gates)


def compare_runs(
    runs: Sequence[RunData],
    *,
    by: str | None = None,
    metrics: Sequence[str] = (),
    gates: Sequence[Gate] = (),
    cautions: Sequence[str] = (),
) -> RunsCompared:
    """The first run, or the first level of the factor ``by``, with each other one, in every combination of the rest.

    ``metrics``: names as in a study's ``primary``, which is the default. Raises ``UserError`` where runs don't fit
    together: different factors, primary metrics or units, or nothing that differs.
    """
    merged = merge(runs, by, tuple(metrics))
    family = max(1, sum(item.counted for item in merged.planned))
    alpha = (1 - merged.confidence) / family
    found = tuple(_answer(item, merged, alpha, gates) for item in merged.planned)
    apart = any(c.basis == "not interleaved" for c in found)
    described = varying(merged)
    return RunsCompared(
        factor=merged.factor,
        levels=merged.levels,
        runs=tuple(run.name for run in runs),
        primary=merged.primary,
        confidence=merged.confidence,
        family=family,
        comparisons=found,
        cautions=(*([CAUTION] if apart else []), *merged.notes, *cautions),
        method=_method(found, merged.confidence, family, alpha, varies=bool(described)),
        variability=described,
    )


def _method(found: Sequence[RunComparison], confidence: float, family: int, alpha: float, *, varies: bool) -> str:
    corrected = f"The confidence of {percent(confidence)} holds for all together"
    if family > 1:
        corrected += f": each of {plural(family, 'comparison')} is held to {percent(1 - alpha)}"
    apart = [c for c in found if c.basis == "not interleaved"]
    told = {
        PAIRED: any(c.basis == "interleaved" for c in found),
        UNPAIRED: any(c.comparison.low is not None for c in apart),
        SINGLE: any(c.comparison.low is None for c in apart),
        POOLED: any(c.comparison.pooled for c in found),
        f"{corrected}.": any(c.comparison.low is not None for c in found),
        VARYING: varies,
    }
    return " ".join(text for text, done in told.items() if done)


def _answer(item: Planned, merged: Merged, alpha: float, gates: Sequence[Gate]) -> RunComparison:
    question = item.question
    rules = Rules(alpha, question.margin, question.better, merged.min_rounds)
    if item.problem or item.waiting:
        reason = item.problem or f"{item.waiting[0].upper()}{item.waiting[1:]}"
        answer = unanswerable(question, reason, alpha, warnings=item.warnings)
        return _judged(answer, "none", (0, 0), None, rules, gates)
    found = _sides(item, merged)
    warnings = (*item.warnings, *found.warnings)
    if found.pairs is None:
        if found.problem:
            answer = unanswerable(question, no_ratio(found.problem, question.metric), alpha, warnings=warnings)
        else:
            answer = describe(question, found.a, found.b, alpha, found.apart)
            answer = replace(answer, warnings=(*warnings, *answer.warnings))
        basis: Basis = "none" if answer.ratio is None else "not interleaved"
        rounds = len(found.a.rounds), len(found.b.rounds)
        return replace(_judged(answer, basis, rounds, None, rules, gates), apart=found.apart)
    pairs = replace(found.pairs, warnings=(*warnings, *found.pairs.warnings))
    answer = compare(question, pairs, alpha, merged.min_rounds)
    count = len(pairs.rounds)
    return _judged(answer, "none" if answer.ratio is None else "interleaved", (count, count), pairs, rules, gates)


def _sides(item: Planned, merged: Merged) -> Sides:
    q = item.question
    parts = []
    for cells in item.cells:
        a, b = (merged.samples(cell, (q.source, q.metric)) for cell in cells)
        orders = {run: same_order(order, cells, (q.a, q.b)) for run, order in merged.orders.items()}
        failed = merged.failed.get(cells[0], ()), merged.failed.get(cells[1], ())
        parts.append(sides((q.a, q.b), a, b, {run: why for run, why in orders.items() if why}, failed))
    return pooled(parts, item.names) if q.pooled else parts[0]


def _judged(
    answer: Comparison, basis: Basis, rounds: tuple[int, int], pairs: Pairs | None, rules: Rules, gates: Sequence[Gate]
) -> RunComparison:
    return RunComparison(answer, basis, rounds, tuple(apply(gate, answer, pairs, rules) for gate in gates))
