"""Levels of one run's own factor: what its report says of them, so that no other command says anything else.

The evidence that a comparison needs depends on all others of its study. So they are judged together with all that the
study asks, and a pair that it doesn't ask for is added to these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from storlab.analysis.compare import Question
from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.gates import Gate
from storlab.analysis.runs.merged_runs import Merged, RunData, named_margin
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, Summary


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
