"""Several runs as one set of cells, with a plan of what is compared with what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import polars as pl

from storlab.analysis.design import CompareSpec, Design, Levels
from storlab.analysis.estimates import collect
from storlab.analysis.questions import Catalogue, Planned, Trait, matching, plan
from storlab.analysis.runs.sides import Place, Sample, one_sided, without
from storlab.analysis.stats.pairing import Order
from storlab.analysis.stopping import SteadyState, steady_state
from storlab.base.errors import UserError
from storlab.base.text import grouped
from storlab.findings.answers import NotSteady
from storlab.findings.runs import SidesDiffer, WhiskersDiffer
from storlab.metrics import Declarations, Key, named

_PLACE = ("cell", "round", "source", "metric")

RUN = "run"
"""The factor whose levels are the runs, where no other is asked for."""


@dataclass(frozen=True, eq=False)
class RunData:
    """One run. ``trials`` as in ``docs/reference/records.md``, and ``machine``: a name for one boot of one machine.
    What ``host`` says is the same for the same machine in all runs.

    ``metrics`` as there. ``design.compared`` says whether its trials were interleaved.
    """

    name: str
    design: Design
    trials: pl.DataFrame
    metrics: pl.DataFrame


@dataclass(frozen=True, eq=False)
class Merged:
    """``planned``: every comparison, with the cells of ``table``, whose rows are trials that are done."""

    factor: str
    levels: tuple[str, ...]
    primary: str
    confidence: float
    min_rounds: int
    planned: tuple[Planned, ...]
    table: Mapping[int, tuple[Sample, ...]]  # by cell; values NaN
    values: Mapping[tuple[int, int, int, str, str], float]  # by cell, run, round, source and metric
    notes: tuple[SidesDiffer | WhiskersDiffer, ...] = ()  # what else differs between the sides
    orders: Mapping[int, Order] = field(default_factory=dict)  # by run, where not known as random
    failed: Mapping[int, tuple[Place, ...]] = field(default_factory=dict)  # by cell
    declared: Declarations = field(default_factory=Declarations)
    rests_after: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  # by cell and run: its last round there
    unsteady: Mapping[str, NotSteady] = field(
        default_factory=dict
    )  # by run: why it has no steady state, which it asks for

    def samples(self, cell: int, key: Key) -> list[Sample]:
        return [
            replace(s, value=self.values.get((cell, s.run, s.round, *key), float("nan")))
            for s in self.table.get(cell, ())
        ]


def merge(
    runs: Sequence[RunData], by: str | None, metrics: tuple[str, ...], optional: Mapping[str, Sequence[str]]
) -> Merged:
    """``runs`` as one, each from its steady state on if it stopped there. ``optional``: as in a design.

    Raises ``UserError`` where they don't fit together.
    """
    states = {run.name: _steady_state(run) for run in runs}
    starts = [(run, states[run.name].since) for run in runs]
    runs = [run if n == 1 else replace(run, trials=run.trials.filter(pl.col("round") >= n)) for run, n in starts]
    factor = by or RUN
    notes: tuple[SidesDiffer | WhiskersDiffer, ...]
    others, notes = _apart(runs, _other_factors(runs, by), by)
    primary = _primary(runs, metrics)
    places = dict.fromkeys(_place(run, levels, others, by) for run in runs for _, levels in run.design.cells)
    cells = {place: number for number, place in enumerate(places, start=1)}
    numbers = [{cell: cells[_place(run, of, others, by)] for cell, of in run.design.cells} for run in runs]
    offsets = _offsets(runs, by)
    levels = tuple(dict.fromkeys(chosen[0] for chosen in cells))
    if len(levels) < 2:
        raise UserError(f"there is nothing to compare: every run has only the level {levels[0]!r} of {factor}")
    names = (factor, *others)
    margin = named_margin(runs, by)
    design = Design(
        title="",
        primary=primary,
        factors={name: tuple(dict.fromkeys(cell[at] for cell in cells)) for at, name in enumerate(names)},
        cells=tuple((number, dict(zip(names, cell, strict=True))) for cell, number in cells.items()),
        comparisons=(
            CompareSpec(factor, tuple((level, levels[0]) for level in levels[1:]), True, True, metrics or None, margin),
        ),
        confidence=max(run.design.confidence for run in runs),
        min_rounds=max(run.design.min_rounds for run in runs),
        optional=optional,
        silent=_silent(runs, numbers),
    )
    catalogue, table, values, failed = _collect(runs, numbers, offsets, metrics or (primary,))
    _refuse_unknown(metrics, catalogue)
    lone = one_sided(design, factor, levels, metrics or (primary,))
    planned = (*(without(item, lone) for item in plan(design, catalogue)), *lone)
    if not planned:
        raise UserError("there is nothing to compare: the runs have no cell in common")
    orders = {
        at: [[number[cell] for cell in ran] for ran in run.design.order]
        for at, (run, number) in enumerate(zip(runs, numbers, strict=True))
        if run.design.order
    }
    rules = design.confidence, design.min_rounds
    each = (item for run in runs for item in run.design.declared.items())
    declared = Declarations.union((source, tuple(specs)) for source, specs in each)
    rests_after: dict[int, dict[int, int]] = {}
    for at, (run, number, offset) in enumerate(zip(runs, numbers, offsets, strict=True)):
        for cell, last in run.design.rests_after.items():
            rests_after.setdefault(number[cell], {})[at] = offset + last
    unsteady = {name: state.lacking for name, state in states.items() if state.lacking is not None}
    found = Merged(factor, levels, primary, *rules, planned, table, values, (*notes, *_whiskers_note(runs)))
    found = replace(found, orders=orders, failed=failed, declared=declared)
    return replace(found, rests_after=rests_after, unsteady=unsteady)


def _steady_state(run: RunData) -> SteadyState:
    if not run.design.steady:
        return SteadyState()
    return steady_state(collect(run.metrics, _done(run), [cell for cell, _ in run.design.cells]), run.design)


def _whiskers_note(runs: Sequence[RunData]) -> list[WhiskersDiffer]:
    specs = ((run.name, spec) for run in runs for specs in run.design.declared.values() for spec in specs)
    whiskers = {name: spec.whiskers for name, spec in specs if spec.whiskers}
    return [WhiskersDiffer(tuple(whiskers.items()))] if len(set(whiskers.values())) > 1 else []


def _other_factors(runs: Sequence[RunData], by: str | None) -> tuple[str, ...]:
    first = runs[0]
    for run in runs:
        names = ", ".join(run.design.factors) or "none"
        if by is not None and by not in run.design.factors:
            raise UserError(f"{run.name} has no factor {by!r}; it has: {names}")
        if by is None and RUN in run.design.factors:
            raise UserError(f"{run.name} has a factor named {RUN!r} itself: say with --by which factor to compare")
        if set(run.design.factors) != set(first.design.factors):
            raise UserError(
                f"{first.name} and {run.name} have different factors ({', '.join(first.design.factors) or 'none'}; "
                f"{names}): only runs with the same factors can be compared"
            )
    return tuple(name for name in first.design.factors if name != by)


def _apart(
    runs: Sequence[RunData], others: tuple[str, ...], by: str | None
) -> tuple[tuple[str, ...], tuple[SidesDiffer, ...]]:
    """``others`` without factors that only tell the sides apart, as the name of each file does; and a note on those.

    Of imported runs only: a study says itself what is compared with what.
    """
    kept, notes = [], []
    for name in others:
        cells = ((run.name if by is None else of[by], of[name]) for run in runs for _, of in run.design.cells)
        found = {side: set(levels) for side, levels in grouped(cells).items()}
        different = len(set.union(*found.values())) == len(found) > 1
        imported = not any(run.design.compared for run in runs)
        if different and imported and all(len(levels) == 1 for levels in found.values()):
            notes.append(SidesDiffer(name, tuple((side, next(iter(levels))) for side, levels in found.items())))
        else:
            kept.append(name)
    return tuple(kept), tuple(notes)


def _primary(runs: Sequence[RunData], metrics: tuple[str, ...]) -> str:
    primary = runs[0].design.primary
    for run in runs[1:]:
        if run.design.primary != primary and not metrics:
            raise UserError(
                f"{runs[0].name} and {run.name} have different primary metrics ({primary}; {run.design.primary}): "
                "say with --metric what to compare"
            )
    return metrics[0] if metrics else primary


def named_margin(runs: Sequence[RunData], by: str | None) -> float | None:
    """The least that any run's study names for the factor ``by``, or, where none compares its levels, for any.

    ``None`` where none names one.
    """
    specs = [spec for run in runs for spec in run.design.planned()]
    named = [spec.margin for spec in specs if spec.factor == by] or [spec.margin for spec in specs]
    return min((margin for margin in named if margin is not None), default=None)


def _place(run: RunData, levels: Levels, others: Sequence[str], by: str | None) -> tuple[str, ...]:
    """Where a cell of ``run`` belongs: its level of what is compared, then those of the other factors."""
    return (run.name if by is None else levels[by], *(levels[name] for name in others))


def _collect(
    runs: Sequence[RunData], numbers: Sequence[Mapping[int, int]], offsets: Sequence[int], metrics: Sequence[str]
) -> tuple[
    Catalogue, dict[int, tuple[Sample, ...]], dict[tuple[int, int, int, str, str], float], dict[int, tuple[Place, ...]]
]:
    found: dict[int, dict[Key, Trait]] = {}
    said_by: dict[Key, tuple[str, Trait]] = {}
    table: dict[int, list[Sample]] = {}
    values: dict[tuple[int, int, int, str, str], float] = {}
    unsupported: dict[int, str] = {}
    why: dict[int, str] = {}
    failed: dict[int, tuple[Place, ...]] = {}
    for at, (run, number, offset) in enumerate(zip(runs, numbers, offsets, strict=True)):
        done = _done(run)
        for row in done.iter_rows(named=True):
            start = row["started"]
            begin = None if start is None else start.timestamp()
            end = None if begin is None or row["duration"] is None else begin + row["duration"]
            where = row["machine"] or "", run.design.compared, row.get("host") or ""
            sample = Sample(at, offset + row["round"], float("nan"), begin, end, *where)
            table.setdefault(number[row["cell"]], []).append(sample)
            found.setdefault(number[row["cell"]], {})
        rows = run.metrics.filter(pl.col("node").is_null(), pl.col("job").is_null())
        rows = rows.join(done.select("trial"), on="trial", how="semi", maintain_order="left")
        traits = rows.select("cell", "source", "metric", "unit", "better").unique(maintain_order=True)
        for cell, source, metric, unit, better in traits.iter_rows():
            key, trait = (source, metric), Trait.of(run.design.declared[source].find(metric), unit, better)
            _same(said_by, key, trait, run.name)
            found[number[cell]][key] = trait
        named_there = {key for cell in number.values() for name in metrics for key in named(name, found.get(cell, ()))}
        keys = _with_statistics(named_there, rows, run.design.declared)
        asked = rows.join(keys, on=["source", "metric"], how="semi", maintain_order="left")
        for cell, round_, source, metric, value in asked.select(*_PLACE, "value").iter_rows():
            number_of_round = offset + round_
            values[number[cell], at, number_of_round, source, metric] = float("nan") if value is None else value
        for cell, reason in _reasons(run, "unsupported").items():
            unsupported.setdefault(number[cell], reason)
        for cell, round_ in run.trials.filter(pl.col("status") == "failed").select("cell", "round").iter_rows():
            failed[number[cell]] = (*failed.get(number[cell], ()), (at, offset + round_))
        for cell, reason in _reasons(run, "failed").items():
            why.setdefault(number[cell], reason)
    absent, broken = ({cell: said for cell, said in of.items() if cell not in found} for of in (unsupported, why))
    return Catalogue(found, absent, broken), {cell: tuple(samples) for cell, samples in table.items()}, values, failed


def _with_statistics(wanted: Set[Key], metrics: pl.DataFrame, declared: Declarations) -> pl.DataFrame:
    """Source and metric of what is wanted, and of what ``metrics`` have that is a statistic of it."""
    keys = metrics.select("source", "metric").unique().rows()
    found = [key for key in keys if key in wanted or (key[0], declared[key[0]].find(key[1]).of) in wanted]
    return pl.DataFrame(found, schema={"source": pl.String, "metric": pl.String}, orient="row")


def _silent(runs: Sequence[RunData], numbers: Sequence[Mapping[int, int]]) -> frozenset[tuple[int, str]]:
    own = [grouped(run.design.silent) for run in runs]
    having = grouped(
        (here, set(names.get(cell, ())))
        for number, names in zip(numbers, own, strict=True)
        for cell, here in number.items()
    )
    return frozenset((cell, name) for cell, each in having.items() for name in set.intersection(*each))


def _offsets(runs: Sequence[RunData], by: str | None) -> list[int]:
    """What to add to the rounds of each run, so that all are numbered in the order of time; runs without times by name.

    Evidence depends on that order, and must not depend on the order in which somebody names the runs.
    """
    if by is None:
        return [0] * len(runs)
    begun = [min((start.timestamp() for start in run.trials["started"].drop_nulls()), default=math.inf) for run in runs]
    last = [max(run.trials["round"], default=0) for run in runs]
    ordered = sorted(range(len(runs)), key=lambda at: (begun[at], runs[at].name))
    return [sum(last[before] for before in ordered[: ordered.index(at)]) for at in range(len(runs))]


def _refuse_unknown(metrics: Sequence[str], catalogue: Catalogue) -> None:
    """A metric that no trial has is misspelt: gates would pass for want of it."""
    for wanted in metrics:
        if not any(matching(wanted, found) for found in catalogue.metrics.values()):
            from storlab.study.messages import nearest  # loads what only a mistake needs

            known = dict.fromkeys(name for found in catalogue.metrics.values() for _, name in found)
            hint = nearest(wanted, known) or f"; there are: {', '.join(known)}"
            raise UserError(f"--metric {wanted!r}: no trial has it{hint}")


def _done(run: RunData) -> pl.DataFrame:
    done = run.trials.filter(pl.col("status") == "done").sort("trial")
    return done.unique(["cell", "round"], keep="last", maintain_order=True).sort("round")


def _reasons(run: RunData, status: str) -> dict[int, str]:
    rows = run.trials.filter(pl.col("status") == status).select("cell", "reason")
    return {cell: reason or "no reason was recorded" for cell, reason in rows.iter_rows()}


def _same(said_by: dict[Key, tuple[str, Trait]], key: Key, trait: Trait, run: str) -> None:
    before, known = said_by.setdefault(key, (run, trait))
    if (known.unit, known.better) == (trait.unit, trait.better):
        return
    name = f"{key[1]} of {key[0]}"
    if known.unit != trait.unit:
        raise UserError(
            f"{before} and {run} have {name} in different units ({known.unit}; {trait.unit}): they cannot be compared"
        )
    raise UserError(f"{before} and {run} disagree on which direction of {name} is better: they cannot be compared")
