"""Everything about one series of one trial, and whether it matters to a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storlab.base.text import grouped
from storlab.findings import AnyFinding
from storlab.findings.runs import (
    AlikeNeighbours,
    LevelChange,
    LevelChanges,
    NeverSteady,
    Place,
    SeriesDrift,
    Stall,
    WarmUp,
)
from storlab.metrics import WHISKERS
from storlab.timeseries.changes import block_size, change_points, changes, fitted, refined
from storlab.timeseries.drift import Trend, trend
from storlab.timeseries.steady import SNIA_ROUNDS, SNIA_SLOPE, block_means, fio_time, mser, snia_time
from storlab.timeseries.variability import Floats, effective_sample_size, median, variability

FEWEST = 10
"""Of fewer samples nothing is said."""
MATERIAL = 0.01
"""As a share of the mean: what moves a result by less is not worth a sentence, however certain it is."""
FEW_CHANGES = 2
"""Changes of the level that say all there is to say of a rise or fall; more, and it is a drift as well."""
CLEAR = 4.0
"""Standard errors by which a warm-up must differ from the rest."""


@dataclass(frozen=True)
class Level:
    """At ``t`` s, where the first sample of the new level begins, it changes from ``before`` to ``after``, in the unit
    of the series. ``moved``: bytes until then, ``None`` if nothing says how many.
    """

    t: float
    before: float
    after: float
    moved: float | None = None


@dataclass(frozen=True)
class SeriesFindings:
    """What the samples of one trial say of it. Times in s; values in the series' unit, ``variance`` in its square.

    ``interval``: between samples, the median. ``steady_snia``, ``steady_fio``: when it was first steady, after the last
    change of its level by more than SNIA allows; ``None``: never, or it drifts by more than that all the while.
    ``warm_up``: what MSER-5 would leave out at the start, 0 for nothing; ``None`` where it can't tell.
    ``warm_up_effect``: by how much the mean is higher without, as a share; 0 where that may be chance.
    ``drift``: Sen's slope an hour, with its 95 % interval from ``drift_low`` to ``drift_high``; ``None`` for a series
    too short to tell. ``drift_share``: rise or fall over the whole series as a share of where it begins, 0 where that
    may be chance, or a few changes of the level say all of it. ``drift_steps``: where they do, the rise or fall from
    the first level to the last as a share of the first, 0 where the slope's interval includes 0.
    """

    n: int
    interval: float
    duration: float
    mean: float
    variance: float
    sigma: float
    cv: float | None
    outliers: int
    longest_stall: float
    effective: float
    steady_snia: float | None
    steady_fio: float | None
    warm_up: float | None
    warm_up_effect: float
    changes: tuple[Level, ...]
    drift: float | None
    drift_low: float | None
    drift_high: float | None
    drift_share: float
    drift_steps: float


def spacing(t: Floats) -> float:
    """Seconds between samples at ``t`` (shape ``(n,)``, ascending): the median; 0 for fewer than two."""
    return median(np.diff(t)) if len(t) > 1 else 0.0


def findings(t: Floats, values: Floats, whiskers: float = WHISKERS) -> SeriesFindings | None:
    """Of samples ``values`` that end at ``t`` s (both of shape ``(n,)``), in any order; what isn't finite is left out.

    Samples are taken to be evenly spaced. ``None`` for fewer than ``FEWEST``, or where they have no time between them.
    """
    kept = np.isfinite(values) & np.isfinite(t)
    order = np.argsort(t[kept], kind="stable")
    t, values = t[kept][order], values[kept][order]
    interval = spacing(t)
    if len(values) < FEWEST or not interval > 0:
        return None
    varying = variability(values, interval, whiskers)
    size = block_size(values)
    blocks = block_means(values, size)
    slope = trend(blocks)
    positions, share = _shape(blocks, slope, abs(varying.mean))
    steps = changes(values, refined(values, positions, size))
    found = tuple(Level(float(t[step.at - 1]), step.before, step.after) for step in steps)
    breaks = [step.at for step in steps if abs(step.after - step.before) > SNIA_SLOPE * abs(step.before)]
    last = breaks[-1] if breaks else 0

    def since(first: float | None) -> float | None:
        return None if first is None or abs(share) > SNIA_SLOPE else last * interval + first

    warm_up = mser(values)
    hour = 3600 / (size * interval)  # blocks
    return SeriesFindings(
        **vars(varying),
        interval=interval,
        duration=len(values) * interval,
        effective=effective_sample_size(values),
        steady_snia=since(snia_time(values[last:], interval)),
        steady_fio=since(fio_time(values[last:], interval)),
        warm_up=None if warm_up is None else warm_up * interval,
        warm_up_effect=_warm_up_effect(values, warm_up or 0),
        changes=found,
        drift=None if slope is None else slope.slope * hour,
        drift_low=None if slope is None else slope.low * hour,
        drift_high=None if slope is None else slope.high * hour,
        drift_share=_of_begin(share),
        drift_steps=0.0 if share or slope is None else _in_steps(found, slope, len(blocks), abs(varying.mean)),
    )


def _of_begin(share: float) -> float:
    """A rise or fall along a line, given as a ``share`` of its middle, as one of its begin, unless that is below 0."""
    return share / (1 - share / 2) if share < 2 else share


def _shape(blocks: Floats, slope: Trend | None, mean: float) -> tuple[list[int], float]:
    """Where the level of ``blocks`` changes, and the rise or fall of all of them as a share of ``mean``.

    A steady slope can be fitted by steps, and a few steps by a slope: what fits better for its number of parameters
    (Schwarz's criterion) is what is said. Beside a slope, steps are looked for in what it leaves.
    """
    least = MATERIAL * mean
    positions = change_points(blocks, least)
    if slope is None or not slope.sure or not mean:
        return positions, 0.0
    share = slope.slope * len(blocks) / mean
    if abs(share) < MATERIAL:
        return positions, 0.0
    line = slope.slope * np.arange(len(blocks))
    if not positions or _cost(blocks - line, [], 2) <= _cost(blocks, positions, 2 * len(positions) + 1):
        return change_points(blocks - line, least), share
    return positions, share if len(positions) > FEW_CHANGES else 0.0


def _in_steps(levels: Sequence[Level], slope: Trend, blocks: int, mean: float) -> float:
    """The rise or fall from the first level to the last, as a share of the first; 0 where that is no drift.

    It is one where the whole series goes the same way by what matters, by a slope that is likely more than chance: else
    any series that happens to end on another level than it began would have drifted.
    """
    if not levels or not mean or not slope.likely:
        return 0.0
    rise, first = levels[-1].after - levels[0].before, abs(levels[0].before)
    along = slope.slope * blocks / mean
    drifts = rise * along > 0 and min(abs(rise) / mean, abs(along)) >= MATERIAL
    return (rise / first if first else rise / mean) if drifts else 0.0


def _cost(blocks: Floats, positions: list[int], parameters: int) -> float:
    left = float(((blocks - fitted(blocks, positions)) ** 2).mean())
    return len(blocks) * math.log(max(left, 1e-300)) + parameters * math.log(len(blocks))


def _warm_up_effect(values: Floats, first: int) -> float:
    """By how much, as a share, the mean of all but the ``first`` samples is higher than that of all."""
    rest, head = values[first:], values[:first]
    mean = float(values.mean())
    if not first or not mean:
        return 0.0
    correlated = len(rest) / effective_sample_size(rest)  # samples that are worth one
    error = math.sqrt(float(rest.var()) * correlated * (1 / len(rest) + 1 / first))
    clear = abs(float(head.mean() - rest.mean())) > CLEAR * error
    return float(rest.mean()) / mean - 1 if clear else 0.0


# What is worth saying of series: a finding of each kind, over however many trials.

_SAME = 1.25
"""A change of the level up to here, in times the warm-up, is the warm-up's own end."""
_STALL = 1.0
"""s: a shorter stall may be one sample that came late."""
_MANY = 2 * SNIA_ROUNDS
"""Samples; of fewer, each would be a round of SNIA's, and noise alone is more than that allows."""
_ALIKE = 0.1
"""Of samples that are worth less than this share of their number, it is said."""
_TOLD = 3
"""Trials of different levels up to here are told one by one."""


@dataclass(frozen=True)
class Examined:
    """The findings of one series of one trial, of these ``levels``."""

    source: str
    metric: str
    found: SeriesFindings
    trial: int = 0
    levels: str = ""
    unit: str = ""


def remarks(examined: Iterable[Examined]) -> Iterator[AnyFinding]:
    """Of each series and kind one, with the trials of which it is true.

    A few trials of different levels have remarks of their own.
    """
    for group in grouped(((each.source, each.metric), each) for each in examined).values():
        levels = {each.levels for each in group if each.levels}
        if 1 < len(group) == len(levels) <= _TOLD:
            for each in group:
                yield from _remarks([each], each.levels)
        else:
            yield from _remarks(group)


def _remarks(group: Sequence[Examined], levels: str = "") -> Iterator[AnyFinding]:
    source, metric = group[0].source, group[0].metric

    def place(those: Sequence[Examined]) -> Place:
        trials = tuple((each.trial, "" if levels else each.levels) for each in those)
        return Place(source, metric, trials, len(group), levels)

    if those := [each for each in group if warms_up(each.found)]:
        seconds = [each.found.warm_up or 0.0 for each in those]
        most = max((each.found.warm_up_effect for each in those), key=abs)
        yield WarmUp(place(those), min(seconds), max(seconds), most)
    for steps in (False, True):
        drifting = [each for each in group if (_drifts_in_steps(each.found) if steps else each.found.drift_share)]
        shares = [each.found.drift_steps if steps else each.found.drift_share for each in drifting]
        if drifting:
            yield SeriesDrift(place(drifting), min(shares), max(shares), steps)
    if those := [each for each in group if level_changes(each.found)]:
        yield LevelChanges(place(those), tuple(map(_changes_of, those)))
    if those := [each for each in group if each.found.longest_stall >= _STALL]:
        yield Stall(place(those), max(each.found.longest_stall for each in those))
    if those := [each for each in group if _is_unsteady(each.found)]:
        yield NeverSteady(place(those))
    if those := [each for each in group if not _told(each.found) and _uncertainty(each.found) >= MATERIAL]:
        samples, worth = [each.found.n for each in those], [each.found.effective for each in those]
        error = max(_uncertainty(each.found) for each in those)
        yield AlikeNeighbours(place(those), (min(samples), max(samples)), (min(worth), max(worth)), error)


def warms_up(found: SeriesFindings) -> bool:
    """Whether the mean would be another one, by what matters, without the samples that MSER-5 leaves out."""
    return abs(found.warm_up_effect) >= MATERIAL


def level_changes(found: SeriesFindings) -> int:
    """How often the level changes, but for the end of the warm-up."""
    until = _SAME * (found.warm_up or 0.0) if warms_up(found) else 0.0
    return sum(change.t > until for change in found.changes)


def _is_unsteady(found: SeriesFindings) -> bool:
    """Whether it never is steady, though nothing says that it drifts or changes its level."""
    return found.steady_snia is None and found.n >= _MANY and not found.drift_share and not level_changes(found)


def _drifts_in_steps(found: SeriesFindings) -> bool:
    return bool(found.drift_steps) and level_changes(found) == len(found.changes)


def _told(found: SeriesFindings) -> bool:
    return bool(warms_up(found) or level_changes(found) or found.drift_share)


def _uncertainty(found: SeriesFindings) -> float:
    """Half of the 95 % interval of this trial's own mean as a share of it, where its samples are much alike; else 0."""
    if found.n < _MANY or found.effective >= _ALIKE * found.n or not found.mean:
        return 0.0
    return 1.96 * found.sigma / math.sqrt(found.effective) / abs(found.mean)


def _changes_of(each: Examined) -> LevelChange:
    found = each.found
    kept = found.changes[len(found.changes) - level_changes(found) :]
    largest = max(kept, key=lambda change: abs(change.after - change.before))
    step = (largest.after - largest.before) / abs(largest.before or found.mean)
    ends = (kept[-1].after - kept[0].before) / abs(kept[0].before or found.mean)
    said = found.drift_share or found.drift_steps or abs(ends) < MATERIAL  # already, or too little
    levels = (largest.before, largest.after)
    return LevelChange(len(kept), step, largest.t, 0.0 if said else ends, levels, each.unit, largest.moved)
