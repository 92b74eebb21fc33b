"""What is worth saying of series: a finding of each kind, over however many trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
from storlab.grouping import grouped
from storlab.timeseries.findings import MATERIAL, SeriesFindings
from storlab.timeseries.steady import SNIA_ROUNDS

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
        yield LevelChanges(place(those), tuple(_changes_of(each.found) for each in those))
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


def _changes_of(found: SeriesFindings) -> LevelChange:
    kept = found.changes[len(found.changes) - level_changes(found) :]
    largest = max(kept, key=lambda change: abs(change.after - change.before))
    step = (largest.after - largest.before) / abs(largest.before or found.mean)
    ends = (kept[-1].after - kept[0].before) / abs(kept[0].before or found.mean)
    said = found.drift_share or found.drift_steps or abs(ends) < MATERIAL  # already, or too little
    return LevelChange(len(kept), step, largest.t, 0.0 if said else ends)
