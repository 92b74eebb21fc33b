"""Runs compared with each other: each run as a level, or the levels of a factor that the runs have.

Trials of one run of Storlab's are interleaved: they are paired by round, and get verdicts. So are trials of different
runs that alternate in time (``interleaving``). Everything else is described (``compare.describe``) and never judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import polars as pl

from storlab.analysis.compare import Question, compare, describe, unanswerable
from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.judging import Gate, apply, needed_by, withheld
from storlab.analysis.questions import Planned
from storlab.analysis.runs.merged_runs import RUN, Merged, RunData, merge, named_margin
from storlab.analysis.runs.sides import Sides, pooled, sides
from storlab.analysis.stats.pairing import Pairs, same_order
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, GateResult, Summary
from storlab.analysis.variability import Varying, varying
from storlab.analysis.verdict import Rules
from storlab.base.errors import UserError
from storlab.findings import AnyFinding, GateUnpaired, NoRatio
from storlab.findings.answers import NotSteadyRuns
from storlab.findings.runs import MachinesApart, RunsNotInterleaved

# Runs of different machines: compared machine by machine, never together.
#
# A difference between two set-ups is not the same on every machine: it depends on the disk, its firmware and its age.
# Rounds of several machines, pooled, say that there is one on these very machines, each weighted by how many rounds
# it happened to have; who reads "a is better than b" takes it for more. If the difference varies between machines by
# 3 to 5 % around none at all, 12 to 32 % of such comparisons had a verdict with normal noise
# (``tests/analysis/test_machines.py``). So rounds of different machines judge nothing together, and those of each
# machine by themselves.
#
# Runs of one and the same set of machines go together as ever: whatever differs between these is in all of them. What
# ``storlab merge`` has put together is one run, of machines that were alike.

MACHINE = "machine"
"""What tells comparisons of one machine from those of another, beside the levels of factors."""


def by_machine(
    runs: Sequence[RunData],
    by: str | None,
    metrics: tuple[str, ...],
    optional: Mapping[str, Sequence[str]],
    keys: Collection[tuple[object, ...]],
) -> Iterator[Merged]:
    """The runs of each machine as one, with its own trials only. ``keys``: of the questions that are asked of each.

    Of a machine that has only one side nothing is compared. ``runs`` fit together, so that nothing else is refused.
    """
    key = MACHINE if MACHINE not in runs[0].design.factors else f"{MACHINE} of the run"
    for name in sorted({host for run in runs for host in run.trials["host"].drop_nulls()}):
        there = [part for run in runs if (part := _only(run, name)) is not None]
        try:
            merged = merge(there, by, metrics, optional)
        except UserError:
            continue
        asked = (each for each in merged.planned if each.question.key in keys)
        able = (each for each in asked if not each.problem and not each.waiting)
        yield replace(
            merged,
            planned=tuple(
                replace(each, question=replace(each.question, within={key: name, **each.question.within}))
                for each in able
            ),
        )


def _only(run: RunData, host: str) -> RunData | None:
    """What one machine did of a run; what is unsupported on all of them is so there."""
    trials = run.trials.filter((pl.col("host") == host) | (pl.col("status") == "unsupported"))
    if not (trials["host"] == host).any():
        return None
    metrics = run.metrics.join(trials.select("trial"), on="trial", how="semi", maintain_order="left")
    return replace(run, trials=trials, metrics=metrics)


# Levels of one run's own factor: what its report says of them, so that no other command says anything else.
#
# The evidence that a comparison needs depends on all others of its study. So they are judged together with all that
# the study asks, and a pair that it doesn't ask for is added to these.


def summary_of(
    run: RunData, merged: Merged, metrics: Sequence[str], gates: Sequence[Gate], optional: Mapping[str, Sequence[str]]
) -> Summary:
    """The summary of ``run`` with each level of the factor of ``merged`` (its only run) against the first."""
    first, *others = merged.levels
    planned = run.design.planned()
    asked = (_against(first, spec, run.design) if spec.factor == merged.factor else spec for spec in planned)
    pairs = tuple((level, first) for level in others)
    further = CompareSpec(
        merged.factor, pairs, metrics=tuple(metrics) or None, margin=named_margin([run], merged.factor)
    )
    design = replace(
        run.design,
        comparisons=(*asked, further),
        gates=tuple(map(str, gates)),
        optional={**run.design.optional, **optional},
    )
    return summarise(run.trials, run.metrics, design)


def _against(first: str, spec: CompareSpec, design: Design) -> CompareSpec:
    """What a study asks, with ``first`` as the side that others are compared with."""
    return replace(spec, pairs=tuple((b, a) if a == first else (a, b) for a, b in design.pairs(spec)))


def by_question(summary: Summary) -> dict[tuple[object, ...], Comparison]:
    names = [field.name for field in fields(Question)]
    return {Question(**{name: getattr(c, name) for name in names}).key: c for c in summary.comparisons}


Basis = Literal["interleaved", "not interleaved", "none"]


@dataclass(frozen=True)
class RunsMethod:
    """How intervals and verdicts were made: by pairs or not, of so many comparisons, at what confidence."""

    confidence: float
    family: int
    paired: bool
    unpaired: bool
    single: bool  # a side has one round, and so no interval
    pooled: bool
    intervals: bool
    variability: bool


@dataclass(frozen=True)
class RunComparison:
    """One comparison with what it rests on. A described one is undecided, whatever its interval."""

    comparison: Comparison
    basis: Basis
    rounds: tuple[int, int]  # of a and b; equal where paired
    gates: tuple[GateResult, ...] = ()
    apart: AnyFinding | None = None  # why rounds are no pairs; null if they are


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
    cautions: tuple[AnyFinding, ...]
    method: RunsMethod
    variability: tuple[Varying, ...] = ()
    allow_undecided: bool = False  # a gate that can't be told yet lets pass
    resumable: bool = True  # a run can be given more rounds that are paired

    @property
    def failed(self) -> bool:
        """Whether a gate was hit, or was not passed for want of a measurement or of evidence."""
        results = (result for c in self.comparisons for result in c.gates)
        return any(result.fails(allow_undecided=self.allow_undecided) for result in results)


def compare_runs(
    runs: Sequence[RunData],
    *,
    by: str | None = None,
    metrics: Sequence[str] = (),
    gates: Sequence[Gate] = (),
    cautions: Sequence[AnyFinding] = (),
    allow_undecided: bool = False,
    optional: Mapping[str, Sequence[str]] | None = None,
) -> RunsCompared:
    """The first run, or the first level of the factor ``by``, with each other one, in every combination of the rest.

    ``metrics``: names as in a study's ``primary``, which is the default. ``optional``: by factor, levels that may be
    absent. Raises ``UserError`` where runs don't fit
    together: different factors, primary metrics or units, or nothing that differs.
    """
    merged = merge(runs, by, tuple(metrics), optional or {})
    cases = [*_cases(merged)]
    apart = {item.question.key for item, of, _ in cases if of is not None and of.elsewhere}
    alone = [*by_machine(runs, by, tuple(metrics), optional or {}, apart)] if apart else []
    cases += [case for one in alone for case in _cases(one)]
    # Of what is refused nothing is said, so nothing can be wrong: it is asked of each machine instead.
    counted = [(replace(item, counted=False) if of is not None and of.refused else item) for item, of, _ in cases]
    family = max(1, sum(item.counted for item in counted))
    alpha = 1 - merged.confidence
    asked = [(item, None if of is None else of.pairs) for item, (_, of, _) in zip(counted, cases, strict=True)]
    rules = Rules(alpha, 0.0, "neither", merged.min_rounds, family)
    found = tuple(
        _answer(
            item,
            of,
            replace(rules, margin=item.question.margin, better=item.question.better),
            needed,
            gates,
            unsteady,
        )
        for (item, of, unsteady), needed in zip(cases, needed_by(asked, alpha), strict=True)
    )
    if len(runs) == 1 and runs[0].design.compared:
        report = summary_of(runs[0], merged, metrics, gates, optional or {})
        said, family = by_question(report), report.family
        found = tuple(
            _as_reported(c, gates) if (c := said.get(item.question.key)) is not None and c.ratio is not None else each
            for each, item in zip(found, counted, strict=True)
        )
    described = tuple(each for one in (merged, *alone) for each in varying(one))
    return RunsCompared(
        factor=merged.factor,
        levels=merged.levels,
        runs=tuple(run.name for run in runs),
        primary=merged.primary,
        confidence=merged.confidence,
        family=family,
        comparisons=found,
        cautions=(
            *(NotSteadyRuns(((name, why),), alone=True) for name, why in merged.unsteady.items()),
            *([RunsNotInterleaved()] if any(c.basis == "not interleaved" for c in found) else []),
            *([MachinesApart()] if apart else []),
            *merged.notes,
            *cautions,
        ),
        method=_method(found, merged.confidence, family, varies=bool(described)),
        variability=described,
        allow_undecided=allow_undecided,
        resumable=any(run.design.compared and not run.design.order for run in runs),
    )


def _as_reported(c: Comparison, gates: Sequence[Gate]) -> RunComparison:
    told = c.gates
    if c.described is not None:
        told = tuple(GateResult(str(gate), "undecided", c.described, settled=True) for gate in gates)
    basis: Basis = "none" if c.ratio is None else "interleaved"
    return RunComparison(replace(c, gates=()), basis, (c.rounds, c.rounds), told)


def _cases(merged: Merged) -> Iterator[tuple[Planned, Sides | None, NotSteadyRuns | None]]:
    for item in merged.planned:
        answerable = not item.problem and not item.waiting
        yield item, _sides(item, merged) if answerable else None, _unsteady(item, merged)


def _method(found: Sequence[RunComparison], confidence: float, family: int, *, varies: bool) -> RunsMethod:
    apart = [c for c in found if c.basis == "not interleaved"]
    return RunsMethod(
        confidence,
        family,
        paired=any(c.basis == "interleaved" for c in found),
        unpaired=any(c.comparison.low is not None for c in apart),
        single=any(c.comparison.low is None for c in apart),
        pooled=any(c.comparison.pooled for c in found),
        intervals=any(c.comparison.low is not None for c in found),
        variability=varies,
    )


def _unsteady(item: Planned, merged: Merged) -> NotSteadyRuns | None:
    sides = (item.question.a, item.question.b)
    runs = [(name, why) for name, why in merged.unsteady.items() if merged.factor != RUN or name in sides]
    return NotSteadyRuns(tuple(runs)) if runs else None


def _answer(
    item: Planned,
    found: Sides | None,
    rules: Rules,
    needed: float,
    gates: Sequence[Gate],
    unsteady: NotSteadyRuns | None,
) -> RunComparison:
    question = item.question
    if found is None:
        reason = item.problem or item.waiting
        assert reason is not None
        answer = unanswerable(question, reason, 1 - 1 / needed, warnings=item.warnings)
        answer = replace(answer, optional=item.optional)
        return _judged(answer, "none", (0, 0), None, rules, () if item.optional else gates)
    warnings = (*item.warnings, *found.warnings)
    if found.pairs is None:
        assert found.apart is not None
        alpha = rules.alpha / rules.family
        if found.refused:
            answer = unanswerable(question, found.apart, 1 - alpha, warnings=warnings)
        elif found.problem:
            answer = unanswerable(question, NoRatio(found.problem, question.metric), 1 - alpha, warnings=warnings)
        else:
            answer = describe(question, found.a, found.b, alpha, found.apart)
            answer = replace(answer, warnings=(*warnings, *answer.warnings))
            answer = withheld(answer, unsteady, rules.min_rounds)
        basis: Basis = "none" if answer.ratio is None else "not interleaved"
        rounds, rules = (len(found.a.rounds), len(found.b.rounds)), replace(rules, shrunk=found.shrunk)
        judged = replace(_judged(answer, basis, rounds, None, rules, gates), apart=found.apart)
        return _ungated(judged) if found.elsewhere and not found.refused else judged
    pairs = replace(found.pairs, warnings=(*warnings, *found.pairs.warnings))
    answer = compare(question, pairs, rules.alpha, rules.min_rounds, rules.family, needed)
    answer = withheld(answer, unsteady, rules.min_rounds)
    count, rules = len(pairs.rounds), replace(rules, shrunk=pairs.shrunk)
    return _judged(answer, "none" if answer.ratio is None else "interleaved", (count, count), pairs, rules, gates)


def _sides(item: Planned, merged: Merged) -> Sides:
    q = item.question
    parts = []
    for cells in item.cells:
        a, b = (merged.samples(cell, (q.source, q.metric)) for cell in cells)
        orders = {run: same_order(order, cells, (q.a, q.b)) for run, order in merged.orders.items()}
        failed = merged.failed.get(cells[0], ()), merged.failed.get(cells[1], ())
        rests = merged.rests_after.get(cells[0], {}), merged.rests_after.get(cells[1], {})
        fixed = {run: why for run, why in orders.items() if why is not None}
        parts.append(sides((q.a, q.b), a, b, fixed, failed, rests, counts=item.counts))
    found = pooled(parts, item.names) if q.pooled else parts[0]
    return replace(found, shrunk=max(side.shrunk for part in parts for side in (part.a, part.b)))


def _ungated(c: RunComparison) -> RunComparison:
    """No gate takes a difference between machines for one between what ran on them."""
    assert c.apart is not None
    why = GateUnpaired(c.comparison.a, c.comparison.b, c.apart)
    told = tuple(
        replace(each, outcome="undecided", why=why, settled=True) if each.outcome in ("hit", "passed") else each
        for each in c.gates
    )
    return replace(c, gates=told)


def _judged(
    answer: Comparison, basis: Basis, rounds: tuple[int, int], pairs: Pairs | None, rules: Rules, gates: Sequence[Gate]
) -> RunComparison:
    return RunComparison(answer, basis, rounds, apply(gates, answer, pairs, rules))
