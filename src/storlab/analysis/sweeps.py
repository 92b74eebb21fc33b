"""What is said of sweeps, factors whose levels are numbers: how well each point is known, where the curve bends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.data import Knee, Line, Objective, Step, Sweep
from storlab.analysis.design import Design, ObjectiveSpec
from storlab.analysis.questions import Catalogue, matching
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.checks import independence_lacks
from storlab.analysis.stats.pairing import Rounds
from storlab.analysis.stats.signed_rank import typical
from storlab.analysis.verdict import fewest_for_limits, lies_beyond
from storlab.base.levels import LEAST, amount_in, numbers_of
from storlab.base.text import grouped
from storlab.findings import AnyFinding
from storlab.findings.answers import KneeFound, NoKnee, NotIndependent, ObjectiveEnds
from storlab.findings.rounds import NoMetric, Unsupported
from storlab.metrics import Declarations, Key

# The knee of latency against throughput: the load of maximal power, and how sure the rounds are of it.
#
# Power is throughput ÷ mean latency. Where it is largest, a line through the origin touches the curve: below, a
# little more latency buys much throughput, and above it is the other way round. Kleinrock 1979, "Power and
# deterministic rules of thumb for probabilistic problems in computer communications", and 2018, "Internet congestion
# control using the power metric". Unlike methods that look for the largest curvature (Satopää, Albrecht, Irwin and
# Raghavan 2011, "Finding a 'kneedle' in a haystack"), it depends neither on where the axes begin and end nor on a
# sensitivity that somebody chose.
#
# Power that is largest at the first or last level has its maximum beyond the range, as far as anybody knows: if
# rounds allow for no other level, there is no knee within it. Levels between which the knee lies are those of the
# bootstrap over rounds (Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3): whole rounds
# are drawn again, so what all levels of a round have in common stays so. It describes, and gets no verdict: of fewer
# than ten rounds a bootstrap is too sure, so neither these levels nor "no knee" are said then.

ENOUGH = 10
"""Rounds from which on the levels around a knee hold it about as often as they should."""

_DRAWS = 2000
_SEED = 20180601  # any: the same rounds have the same knee


@dataclass(frozen=True)
class Located:
    """``index`` of the level with the most power, and the first and last index that the rounds allow for."""

    index: int
    low: int
    high: int


def power(throughput: Floats, latency: Floats) -> Floats:
    """log(throughput ÷ latency); both of shape ``(rounds, levels)``, positive."""
    return np.asarray(np.log(throughput) - np.log(latency))


def locate(log_power: Floats, confidence: float) -> Located:
    """``log_power``: shape ``(rounds, levels)``, at least one of each, the levels in ascending order."""
    rounds = len(log_power)
    best = int(log_power.mean(axis=0).argmax())
    if rounds == 1:
        return Located(best, 0, log_power.shape[1] - 1)
    drawn = np.random.default_rng(_SEED).integers(rounds, size=(_DRAWS, rounds))
    counts = np.zeros((_DRAWS, rounds))
    np.add.at(counts, (np.arange(_DRAWS)[:, None], drawn), 1.0)
    where = (counts @ log_power).argmax(axis=1)
    half = (1 - confidence) / 2
    low, high = np.quantile(where, [half, 1 - half], method="inverted_cdf")
    return Located(best, min(best, int(low)), max(best, int(high)))


# The lines of a sweep: its steps within each combination of the other factors, and which metrics belong together.


def sweep_of(design: Design, factor: str) -> Sweep | None:
    """``None`` where its levels are no numbers."""
    labels = design.factors[factor]
    known = numbers_of(labels)
    if known is None:
        return None
    number = dict(zip(labels, known.values, strict=True))
    steps = grouped(
        (
            tuple((name, level) for name, level in levels.items() if name != factor),
            Step(levels[factor], number[levels[factor]], cell),
        )
        for cell, levels in design.cells
    )
    lines = (Line(dict(others), tuple(sorted(own, key=lambda step: step.number))) for others, own in steps.items())
    return Sweep(factor, known.unit, tuple(lines))


def load_metrics(catalogue: Catalogue, declared: Declarations) -> Iterator[tuple[str, str, str]]:
    """Source, throughput and mean latency of a load's operations; of all directions together where it has these."""
    names = grouped(key for metrics in catalogue.metrics.values() for key in metrics)
    for source, metrics in names.items():
        specs = {name: declared[source].find(name) for name in dict.fromkeys(metrics)}
        means = {
            _prefix(spec.of): name for name, spec in specs.items() if spec.statistic == "mean" and spec.unit == "s"
        }
        rates: dict[str, str] = {}
        for name, spec in specs.items():
            if spec.quantity == "throughput" and spec.unit == "1/s" and _prefix(name) in means:
                rates.setdefault(_prefix(name), name)
        for prefix in [""] if "" in rates else rates:
            yield source, rates[prefix], means[prefix]


def _prefix(name: str) -> str:
    """``read`` of ``read.iops``."""
    return name.rpartition(".")[0]


# Up to which step of a sweep a metric stays within a limit: "up to which rate is p99 below 5 ms?"
#
# At each step the rounds are evidence that the metric's typical value lies on the good side of the limit, or on the
# bad one: by ranks of the logarithm of value ÷ limit (``stats.signed_rank``), and by signs alone (``stats.signs``),
# valid after any number of rounds. A round whose trial failed counts as the worst against the good side.
#
# *Holds up to*: steps are tested in ascending order, each with half of α, up to the first without enough evidence.
# *Fails from*: the same from the last step downwards, with the other half. Testing in an order that is fixed
# beforehand needs no correction for the number of steps: a false statement takes an error at the first step, in that
# order, of which it is false (Maurer, Hothorn and Lehmacher 1995; Westfall and Krishen 2001, "Optimally weighted,
# fixed sequence and gatekeeper multiple testing procedures"). So what is said of the steps at both ends holds with a
# confidence of 1 − α, whatever shape the curve has. Where the metric rises with the load, the step at which it
# crosses the limit lies between them.
#
# That supposes what claims about a value suppose, too: that one round does not tell of the next. Where the rounds do
# not pass a check of that (``stats.checks``), what is said is of these rounds, and has no confidence. The crossing
# itself, of which no more is said than "about", is where the monotone curve that fits the typical values best
# (isotonic regression: Barlow, Bartholomew, Bremner and Brunk 1972) meets the limit.

_LEAST = 1e-9  # of the limit: a value of 0 has no logarithm, and is as good as one so small


@dataclass(frozen=True)
class Observed:
    """One step: the factor's ``number``; ``values`` (shape ``(n,)``, finite) in order of rounds; rounds that failed."""

    number: float
    values: Floats
    failed: int = 0


@dataclass(frozen=True)
class Bracket:
    """``holds``: how many of the first steps hold. ``fails``: how many of the last do not. ``lacks``: why neither has a
    confidence.
    """

    holds: int
    fails: int
    crossing: float | None
    lacks: NotIndependent | None


def bracket(steps: Sequence[Observed], limit: float, below: bool, alpha: float) -> Bracket:
    """``steps`` in ascending order; ``limit`` > 0; ``alpha``: that either end is false."""
    side = 1 if below else -1  # on which the metric is worse than the limit
    offs = [side * np.log(np.maximum(step.values, _LEAST * limit) / limit) for step in steps]
    needed = math.log(2 / alpha)
    good = [lies_beyond(off, 0.0, -1, needed, step.failed) for off, step in zip(offs, steps, strict=True)]
    bad = [lies_beyond(off, 0.0, 1, needed) for off in offs]
    holds = next((index for index, found in enumerate(good) if not found), len(steps))
    fails = next((index for index, found in enumerate(reversed(bad)) if not found), len(steps))
    lacks = independence_lacks([off for off in offs if len(off)])
    return Bracket(holds, min(fails, len(steps) - holds), _crossing(steps, offs), lacks)


def _crossing(steps: Sequence[Observed], offs: Sequence[Floats]) -> float | None:
    """Where the monotone fit of the typical logarithms passes 0; between two steps on a straight line."""
    from scipy.optimize import isotonic_regression

    known = [(step.number, typical(off)) for step, off in zip(steps, offs, strict=True) if len(off)]
    if len(known) < 2:
        return None
    numbers, heights = np.array(known).T
    fitted = isotonic_regression(heights, increasing=True).x
    above = int(np.searchsorted(fitted, 0.0))  # the first step that does not lie below the limit
    if above in (0, len(fitted)):
        return None
    low, high = fitted[above - 1], fitted[above]
    share = 1.0 if high == low else -low / (high - low)
    return float(numbers[above - 1] + share * (numbers[above] - numbers[above - 1]))


# All that is said of a study's sweeps, from its cells' series: lines, knees, and objectives.

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
