"""Runs compared with each other: each run as a level, or the levels of a factor that the runs have.

Trials of one run of Storlab's are interleaved: they are paired by round, and get verdicts. So are trials of different
runs that alternate in time (``interleaving``). Everything else is described (``unpaired``) and never judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from storlab.analysis.compare import compare, unanswerable
from storlab.analysis.gate import Gate, GateResult, apply
from storlab.analysis.interleaving import Span, pairs_in_time
from storlab.analysis.merged_runs import Merged, RunData, Sample, merge
from storlab.analysis.pairing import Pairs, Side, pair
from storlab.analysis.questions import Planned
from storlab.analysis.summary import Comparison
from storlab.analysis.unpaired import describe
from storlab.analysis.verdict import Rules
from storlab.analysis.wording import percent, plural

Basis = Literal["interleaved", "not interleaved", "none"]

CAUTION = (
    "Not everything here was interleaved. Runs that follow each other differ also by the hour, by the state of the "
    "machine and by versions: such differences are described and never judged, and nothing shows their cause."
)

METHOD = (
    "Trials that were interleaved are paired by round: anytime-valid intervals and verdicts, as in a report. Others: "
    "Welch's t interval of the difference of mean logarithms (Welch 1947), for a number of rounds that was fixed in "
    "advance; it holds the spread of rounds within a run, not what differs between runs. {corrected}"
)


@dataclass(frozen=True)
class RunComparison:
    """One comparison with what it rests on. A described one is undecided, whatever its interval."""

    comparison: Comparison
    basis: Basis
    rounds: tuple[int, int]  # of a and b; equal where paired
    gates: tuple[GateResult, ...] = ()


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

    @property
    def failed(self) -> bool:
        """Whether any gate was hit."""
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
    corrected = f"The confidence of {percent(merged.confidence)} holds for all together"
    if family > 1:
        corrected += f": each of {plural(family, 'comparison')} is held to {percent(1 - alpha)}"
    apart = any(c.basis == "not interleaved" for c in found)
    return RunsCompared(
        factor=merged.factor,
        levels=merged.levels,
        runs=tuple(run.name for run in runs),
        primary=merged.primary,
        confidence=merged.confidence,
        family=family,
        comparisons=found,
        cautions=(*([CAUTION] if apart else []), *cautions),
        method=METHOD.format(corrected=f"{corrected}."),
    )


def _answer(item: Planned, merged: Merged, alpha: float, gates: Sequence[Gate]) -> RunComparison:
    question = item.question
    rules = Rules(alpha, question.margin, question.better, merged.min_rounds)
    if item.problem or item.waiting:
        reason = item.problem or f"{item.waiting[0].upper()}{item.waiting[1:]}"
        answer = unanswerable(question, reason, alpha, warnings=item.warnings)
        return _judged(answer, "none", (0, 0), None, rules, gates)
    key = (question.source, question.metric)
    a, b = (merged.samples(cell, key) for cell in item.cells[0])
    pairs, why = _pairs(question.a, question.b, a, b)
    if pairs is None:
        answer = describe(question, _side(question.a, a), _side(question.b, b), alpha, why)
        basis: Basis = "none" if answer.ratio is None else "not interleaved"
        return _judged(answer, basis, (len(a), len(b)), None, rules, gates)
    answer = compare(question, pairs, alpha, merged.min_rounds)
    count = len(pairs.rounds)
    return _judged(answer, "none" if answer.ratio is None else "interleaved", (count, count), pairs, rules, gates)


def _judged(
    answer: Comparison,
    basis: Basis,
    rounds: tuple[int, int],
    pairs: Pairs | None,
    rules: Rules,
    gates: Sequence[Gate],
) -> RunComparison:
    log_ratios = None if pairs is None else pairs.log_ratios
    return RunComparison(answer, basis, rounds, tuple(apply(gate, answer, log_ratios, rules) for gate in gates))


def _pairs(name_a: str, name_b: str, a: Sequence[Sample], b: Sequence[Sample]) -> tuple[Pairs | None, str]:
    """The pairs of two sides; else ``None``, and why there are none, as a clause."""
    together = {s.run for s in a if s.interleaved} & {s.run for s in b if s.interleaved}
    if together:
        inner = pair(
            *(_side(name, [s for s in side if s.run in together]) for name, side in ((name_a, a), (name_b, b)))
        )
        left = sum(s.run not in together for s in (*a, *b))
        said = f"Left out: {plural(left, 'trial')} of runs that have only one of the two."
        return (replace(inner, warnings=(*inner.warnings, said)) if left else inner), ""
    if not a or not b:
        return None, "one side has no trial"
    found = pairs_in_time([_span(s) for s in a], [_span(s) for s in b])
    if isinstance(found, str):
        return None, found
    sides = (
        Side(name, np.arange(1, len(found) + 1), np.array([side[couple[which]].value for couple in found]))
        for which, (name, side) in enumerate(((name_a, a), (name_b, b)))
    )
    said = "Paired by time, as trials of the runs alternate; that their order was drawn at random is not known."
    paired = pair(*sides)
    return replace(paired, warnings=(*paired.warnings, said)), ""


def _side(name: str, samples: Sequence[Sample]) -> Side:
    ordered = sorted(samples, key=lambda s: s.round)
    return Side(name, np.array([s.round for s in ordered], dtype=np.int64), np.array([s.value for s in ordered]))


def _span(sample: Sample) -> Span:
    return Span(sample.start, sample.end, sample.machine)
