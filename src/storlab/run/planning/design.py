"""A study or a recorded run in the words of the analysis: its design, the rule by which it stops, and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from storlab.analysis.design import ClaimSpec, CompareSpec, Design, ObjectiveSpec, Rest
from storlab.analysis.stats.horizon import Bet
from storlab.analysis.stopping import CURVE_PRECISION, Rule, Until
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary
from storlab.analysis.unequal import KERNEL, Seen
from storlab.base.errors import RecordsError
from storlab.findings import AnyFinding, Reported
from storlab.findings.answers import ClaimUnanswered
from storlab.layers.block.queue_files import QUEUE
from storlab.records.manifest import Horizon
from storlab.records.manifest import Rest as RecordedRest
from storlab.records.tables import Tables
from storlab.run.limits import NO_LIMITS, Limits, precision_of

if TYPE_CHECKING:
    from storlab.study.cells import Cell
    from storlab.study.questions import Claim, Compare
    from storlab.study.schema import NodeGroup
    from storlab.study.study import Study


def design_of(
    study: Study,
    stopped: AnyFinding | None = None,
    warnings: tuple[AnyFinding, ...] = (),
    limits: Limits = NO_LIMITS,
    rests: Iterable[RecordedRest] = (),
    emulated: bool = False,
    horizon: Horizon | None = None,
) -> Design:
    """Factors, cells and planned comparisons. ``stopped``: why the run ended. ``emulated``: whether
    any node is. ``horizon``: as recorded.
    """
    factors = {factor.name: tuple(level.label for level in factor.levels) for factor in study.factors}
    comparisons = tuple(spec for specs in comparisons_of(study) for spec in specs)
    return Design(
        title=study.model.title,
        primary=study.model.primary,
        factors=factors,
        cells=tuple((cell.number, dict(cell.levels)) for cell in study.cells),
        comparisons=comparisons,
        confidence=study.model.confidence if horizon is None else horizon.confidence,
        stopped=stopped,
        warnings=(*map(Reported, study.notes), *warnings),
        gates=limits.gates,
        optional=limits.optional,
        rests=tuple(Rest(rest.cell, rest.after, rest.why) for rest in rests),
        partial=frozenset(cell.number for cell in study.cells if _leaves_out_a_warm_up(cell)),
        claims=tuple(_claimed(claim, factors, study.model.primary) for claim in claims_of(study)),
        emulated=emulated,
        sweeps=study.sweeps,
        loading=study.loading,
        steady=study.model.repeat.until == "steady",
        silent=_silent(study, comparisons),
        machines={cell.number: hosts_of_all(cell.nodes) for cell in study.cells},
        excluded=bool(study.model.exclude),
        objectives=tuple(
            ObjectiveSpec(asked.metric, asked.factor or study.sweeps[0], asked.limit, asked.above is None)
            for asked in study.model.slo
            if asked.factor or study.sweeps
        ),
        bet=None if horizon is None else bet_of(horizon),
    )


def claims_of(study: Study) -> tuple[Claim, ...]:
    """With objectives that no sweep is there for."""
    asked = (each for each in study.model.slo if not each.factor and not study.sweeps)
    return (*study.model.claim, *(each.as_claim for each in asked))


def bet_of(horizon: Horizon) -> Bet:
    """Raises ``RecordsError`` where no run recorded it so."""
    try:
        return Bet(horizon.preset, tuple((aim.after, aim.last) for aim in horizon.aims))
    except ValueError as error:
        raise RecordsError(f"the run's manifest is damaged: horizon: {error}") from None


def hosts_of_all(groups: Mapping[str, NodeGroup]) -> tuple[str, ...]:
    """The hosts of a cell's groups, in their order: what is served by one and loaded by another is two things."""
    from storlab.study.machines import hosts_of  # a study is loaded by now

    return tuple(host for group in groups.values() for host in hosts_of(group))


def _silent(study: Study, comparisons: Sequence[CompareSpec]) -> frozenset[tuple[int, str]]:
    if len(study.factors) < 2:  # there are no combinations
        return frozenset()
    from storlab.run.planning.yields import silent  # loads all loads and probes

    names = [study.model.primary, *(name for spec in comparisons for name in spec.metrics or ())]
    claimed = [claim.metric for claim in claims_of(study) if claim.metric is not None]
    return frozenset(silent(study.cells, dict.fromkeys([*names, *claimed])))


def comparisons_of(study: Study) -> list[tuple[CompareSpec, ...]]:
    factors = {factor.name: tuple(level.label for level in factor.levels) for factor in study.factors}
    return [_compared(study, asked, factors) for asked in study.model.compare]


def _compared(study: Study, asked: Compare, factors: Mapping[str, tuple[str, ...]]) -> tuple[CompareSpec, ...]:
    factor = study.compared_factor(asked)
    if factor is None:
        return ()
    whole = CompareSpec(
        factor=factor,
        pairs=pairs_left(asked.pairs, factors[factor]),
        within=asked.within,
        pooled=asked.pooled,
        metrics=asked.metrics,
        margin=asked.margin,
        native=asked.native,
        only=dict(asked.at or {}),
    )
    swept = any(name in study.sweeps for name in factors if name != factor)
    if not swept or not asked.pooled or "within" in asked.model_fields_set:
        return (whole,)
    # A sweep's levels are points of a curve, and not as many questions: what is compared is compared over all of them.
    fixed = {
        name: (whole.only[name],) if name in whole.only else levels
        for name, levels in factors.items()
        if name in whole.only or (name != factor and name not in study.sweeps)
    }
    combinations = [dict(zip(fixed, levels, strict=True)) for levels in product(*fixed.values())]
    within = tuple(replace(whole, within=False, only=only) for only in combinations)
    return (*within, replace(whole, within=False)) if len(within) > 1 else within


def _claimed(claim: Claim, factors: Mapping[str, tuple[str, ...]], primary: str) -> ClaimSpec:
    asked = dict.fromkeys(each for _, side in claim.sides for each in side.items())
    missing = [f"{name}={level}" for name, level in asked if level not in factors[name]]
    about = ClaimSpec(
        claim.title(primary),
        claim.metric,
        left=claim.left or claim.at or {},
        right=claim.right or {},
        margin=claim.margin,
        source=claim.source,
        native=claim.native,
        absent=ClaimUnanswered("absent", tuple(missing)) if missing else None,
    )
    if claim.expect is None:
        return replace(about, word="between", between=claim.range)
    from storlab.study.questions import read_expected  # a study is loaded by now

    word, limit = read_expected(claim.expect)
    return replace(about, word=word, limit=limit)


def _leaves_out_a_warm_up(cell: Cell) -> bool:
    """Whether a load does not count what it did before it was measured, which probes have seen as well."""
    sliced = cell.trial.slices is not None  # its amounts are those of the whole load
    return not sliced and not all(load.workload.measures_all(cell.trial.warm_up) for load in cell.loads)


def pairs_left(pairs: tuple[tuple[str, str], ...] | None, levels: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
    """Those of which both levels are in the study, as it is planned."""
    return None if pairs is None else tuple(pair for pair in pairs if set(pair) <= set(levels))


def summary_of(design: Design, tables: Tables, *, ended: bool) -> Summary:
    """What the tables say about the study's question so far. ``ended``: with what is only said of a run that has."""
    seen = seen_of(tables) if ended else Seen()
    # Under a verdict, a difference in these is named; those of other facts follow from what is declared.
    settings = seen.same(lambda thing, setting: thing == KERNEL or setting.rpartition(".")[2] in QUEUE)
    design = replace(design, declared=tables.declared(), settings=settings)
    observed = {"probes": tables.probe_facts(), "loads": tables.load_facts()}
    design = replace(design, facts=design.facts | {name: facts for name, facts in observed.items() if facts})
    names = ("trials", "metrics", "histograms", "requests")
    trials, metrics, histograms, requests = (tables.frame(name) for name in names)
    summary = summarise(trials, metrics, design, histograms=histograms, requests=requests, ended=ended)
    return replace(summary, unequal=seen.unequal()) if ended else summary


def seen_of(tables: Tables) -> Seen:
    """Under what a run's trials were measured; of one that was imported, nothing is known."""
    if not tables.cells:
        return Seen()
    from storlab.run.planning.conditions import seen_in  # loads what reads studies, which a kept summary does without

    return seen_in(tables.records, tables.cells)


def rule_of(study: Study, rounds: tuple[int, int], limits: Limits = NO_LIMITS) -> Rule:
    """When to stop; ``rounds``: at least, at most. With gates, once they are answered, unless another rule is given.

    A study with nothing but sweeps has no comparison to decide: it stops once the points of its curves are known.
    """
    if limits.gates and limits.until is None:
        return Rule("gates", *rounds)
    until = study.model.repeat.until if limits.until is None else limits.until
    if until == "max":
        return Rule("rounds", *rounds)
    if until == "steady":
        return Rule("steady", *rounds)
    described = bool(study.sweeps) or until != "decided"
    about: Until = "points" if described and not compares(study) else "precision"
    if until == "decided":
        return Rule(about, *rounds, precision=CURVE_PRECISION) if about == "points" else Rule("decided", *rounds)
    return Rule(about, *rounds, precision=precision_of(until) if isinstance(until, str) else until)


def compares(study: Study) -> bool:
    design = design_of(study)
    return any(design.pairs(spec) for spec in design.planned())
