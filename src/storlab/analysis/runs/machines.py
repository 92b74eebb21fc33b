"""Runs of different machines: compared machine by machine, never together.

A difference between two set-ups is not the same on every machine: it depends on the disk, its firmware and its age.
Rounds of several machines, pooled, say that there is one on these very machines, each weighted by how many rounds it
happened to have; who reads "a is better than b" takes it for more. If the difference varies between machines by 3 to
5 % around none at all, 12 to 32 % of such comparisons had a verdict with normal noise
(``tests/analysis/test_machines.py``). So rounds of different machines judge nothing together, and those of each machine
by themselves.

Runs of one and the same set of machines go together as ever: whatever differs between these is in all of them. What
``storlab merge`` has put together is one run, of machines that were alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from storlab.analysis.questions import Planned
from storlab.analysis.runs.merged_runs import Merged, RunData, merge
from storlab.errors import UserError

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
        yield replace(merged, planned=tuple(_on(each, {key: name}) for each in able))


def _only(run: RunData, host: str) -> RunData | None:
    """What one machine did of a run; what is unsupported on all of them is so there."""
    trials = run.trials.filter((pl.col("host") == host) | (pl.col("status") == "unsupported"))
    if not (trials["host"] == host).any():
        return None
    metrics = run.metrics.join(trials.select("trial"), on="trial", how="semi", maintain_order="left")
    return replace(run, trials=trials, metrics=metrics)


def _on(item: Planned, machine: Mapping[str, str]) -> Planned:
    return replace(item, question=replace(item.question, within={**machine, **item.question.within}))
