"""All that is said of a study's sweeps, from its cells' series: lines, knees, and objectives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.design import Design, ObjectiveSpec
from storlab.analysis.questions import Catalogue, matching
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.pairing import Rounds
from storlab.analysis.sweeps.data import Knee, Line, Objective, Step, Sweep
from storlab.analysis.sweeps.knee import ENOUGH, Located, locate, power
from storlab.analysis.sweeps.lines import load_metrics, sweep_of
from storlab.analysis.sweeps.objective import Observed, bracket
from storlab.analysis.verdict import fewest_for_limits
from storlab.findings import AnyFinding
from storlab.findings.answers import KneeFound, NoKnee, ObjectiveEnds
from storlab.findings.rounds import NoMetric, Unsupported
from storlab.levels import LEAST, amount_in
from storlab.metrics import Key

Series = Mapping[tuple[int, Key], tuple[Rounds, Floats]]
"""Rounds and values of one metric in one cell; NaN in done rounds without it."""

_NONE: tuple[Rounds, Floats] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))


@dataclass(frozen=True)
class Swept:
    """All of a summary that is about sweeps."""

    sweeps: tuple[Sweep, ...] = ()
    knees: tuple[Knee, ...] = ()
    objectives: tuple[Objective, ...] = ()


def keys(design: Design, catalogue: Catalogue) -> Iterator[tuple[int, str, str]]:
    wanted = [key for _, sources in _asked(design, catalogue) for key in sources]
    if design.sweeps:
        wanted += [
            key
            for source, *both in load_metrics(catalogue, design.declared)
            for key in ((source, each) for each in both)
        ]
    for cell, metrics in catalogue.metrics.items():
        yield from ((cell, *key) for key in dict.fromkeys(wanted) if key in metrics)


def found(
    design: Design,
    catalogue: Catalogue,
    series: Series,
    failed: Mapping[int, Rounds],
    unsteady: AnyFinding | None = None,
) -> Swept:
    """``failed``: rounds in which a cell's trial failed. ``unsteady``: why nothing is answered before steady state."""
    sweeps = tuple(sweep for name in design.sweeps if (sweep := sweep_of(design, name)) is not None)
    # A knee is where more load buys little: of block sizes, nobody asks.
    loading = [sweep for sweep in sweeps if sweep.factor in design.sweeps[: min(design.loading, 1)]]
    knees = tuple(_knees(loading, design, catalogue, series))
    objectives = tuple(_objectives(design, catalogue, series, failed))
    if unsteady is not None:
        knees = tuple(
            replace(k, level=None, low=None, high=None, rate=None, time=None, confidence=None, reason=unsteady)
            for k in knees
        )
        objectives = tuple(
            o
            if o.missing
            else replace(o, holds_to=None, fails_from=None, crossing=None, settled=False, reason=unsteady)
            for o in objectives
        )
    return Swept(sweeps, knees, objectives)


def _knees(sweeps: Sequence[Sweep], design: Design, catalogue: Catalogue, series: Series) -> Iterator[Knee]:
    for sweep in sweeps:
        for source, throughput, latency in load_metrics(catalogue, design.declared):
            for line in sweep.lines:
                both = [(source, throughput), (source, latency)]
                steps = [step for step in line.steps if all((step.cell, key) in series for key in both)]
                rates, times = (_matrix(steps, key, series) for key in both)
                usable = np.isfinite(rates) & np.isfinite(times) & (rates > 0) & (times > 0)
                whole = usable.all(axis=1)
                if len(steps) >= LEAST and whole.any():
                    place = (sweep.factor, line.levels, source, throughput, latency)
                    yield _knee(place, steps, rates[whole], times[whole], design.confidence)


def _matrix(steps: Sequence[Step], key: Key, series: Series) -> Floats:
    """Shape ``(rounds, steps)``: the rounds that any of them has; NaN where one has no value."""
    every = [series[step.cell, key] for step in steps]
    rounds = sorted({int(number) for numbers, _ in every for number in numbers})
    matrix = np.full((len(rounds), len(steps)), np.nan)
    for column, (numbers, values) in enumerate(every):
        matrix[np.searchsorted(rounds, numbers), column] = values
    return matrix


def _knee(
    place: tuple[str, dict[str, str], str, str, str],
    steps: Sequence[Step],
    rates: Floats,
    times: Floats,
    confidence: float,
) -> Knee:
    rounds, last = len(rates), len(steps) - 1
    at = locate(power(rates, times), confidence)
    enough = rounds >= ENOUGH
    if why := _no_knee(at, last, steps, enough=enough):
        return Knee(*place, None, None, None, None, None, rounds, None, why)
    low, high = (steps[index].level for index in (at.low, at.high)) if enough else (None, None)
    reason = KneeFound(may_be_end=enough and (at.low == 0 or at.high == last))
    rate, time = float(rates[:, at.index].mean()), float(times[:, at.index].mean())
    sure = confidence if enough else None
    return Knee(*place, steps[at.index].level, low, high, rate, time, rounds, sure, reason)


def _no_knee(at: Located, last: int, steps: Sequence[Step], *, enough: bool) -> NoKnee | None:
    if at.index not in (0, last):
        return None
    sure = enough and at.low == at.high
    return NoKnee(steps[at.index].level, grows=bool(at.index), sure=sure, need=0 if enough else ENOUGH)


def _asked(design: Design, catalogue: Catalogue) -> Iterator[tuple[ObjectiveSpec, list[Key]]]:
    for spec in design.objectives:
        named = (key for metrics in catalogue.metrics.values() for key in matching(spec.metric, metrics))
        yield spec, list(dict.fromkeys(named))


def _objectives(
    design: Design, catalogue: Catalogue, series: Series, failed: Mapping[int, Rounds]
) -> Iterator[Objective]:
    traits = {key: trait for metrics in catalogue.metrics.values() for key, trait in metrics.items()}
    cases = [
        (spec, key, line)
        for spec, named in _asked(design, catalogue)
        for key in named or [("", spec.metric)]
        if (sweep := sweep_of(design, spec.factor)) is not None
        for line in sweep.lines
    ]
    for spec, key, line in cases:
        alpha = (1 - design.confidence) / len(cases)
        unit = traits[key].unit if key in traits else ""
        limit = amount_in(spec.limit, unit) if unit else None
        steps = [
            # A round without a value counts as a failed one: leaving it out would select rounds by their result.
            Observed(step.number, values[known], len(failed.get(step.cell, ())) + int((~known).sum()))
            for step in line.steps
            for _, values in [series.get((step.cell, key), _NONE)]
            for known in [np.isfinite(values)]
        ]
        gone = [catalogue.unsupported.get(step.cell, "") for step in line.steps]
        yield _objective((spec.factor, line.levels, *key, unit, limit, spec.below), line, steps, gone, alpha)


def _objective(
    of: tuple[str, dict[str, str], str, str, str, float | None, bool],
    line: Line,
    steps: Sequence[Observed],
    gone: Sequence[str],
    alpha: float,
) -> Objective:
    """``of``: its first fields. ``gone``: of each step, why it is unsupported; empty where it is not."""
    *_, metric, _, limit, below = of
    rounds = max(len(step.values) for step in steps)
    if limit is None or not rounds:
        named = (("", why) for why in dict.fromkeys(gone))
        why = Unsupported(tuple(named)) if all(gone) else NoMetric(metric, done=True)
        return Objective(*of, None, None, None, 0, 1 - alpha, all(gone), why, missing=True)
    ends = bracket(steps, limit, below, alpha)
    holds = line.steps[ends.holds - 1].level if ends.holds else None
    fails = line.steps[-ends.fails].level if ends.fails else None
    inner = gone[ends.holds : len(steps) - ends.fails]
    settled = not inner or bool(inner[0] and inner[-1])  # what can't be measured can't be passed over
    fewest = fewest_for_limits(math.log(2 / alpha))
    reason = ObjectiveEnds(
        unclear=len(steps) - ends.holds - ends.fails,
        all_hold=not ends.fails,
        none_holds=not ends.holds,
        need=fewest if rounds < fewest else 0,
        confidence=1 - alpha,
        lacks=ends.lacks if ends.holds or ends.fails else None,
        unmeasurable=sum(map(bool, inner)),
    )
    sure = None if ends.lacks else 1 - alpha
    return Objective(*of, holds, fails, ends.crossing, rounds, sure, settled, reason)
