"""What is worth saying of a series, in words: one sentence for each kind of finding, over however many trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from storlab.grouping import grouped
from storlab.timeseries.findings import MATERIAL, Level, SeriesFindings
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
"""Trials up to here are told one by one."""


@dataclass(frozen=True)
class Examined:
    """The findings of one series of one trial, of these ``levels``. ``name``: what to call it in a sentence."""

    name: str
    found: SeriesFindings
    trial: int = 0
    levels: str = ""


def warnings(examined: Iterable[Examined]) -> list[str]:
    """Sentences about these: of each name and kind one, that says of how many trials it is true.

    A few trials of different levels have sentences of their own.
    """
    groups = grouped((each.name, each) for each in examined)
    for name, group in list(groups.items()):
        levels = {each.levels for each in group if each.levels}
        if 1 < len(group) == len(levels) <= _TOLD:
            del groups[name]
            groups |= {f"{name} ({each.levels})": [each] for each in group}
    said = (_sentences(name, group) for name, group in groups.items())
    return [sentence for sentences in said for sentence in sentences]


def _sentences(name: str, group: Sequence[Examined]) -> list[str]:
    words = (
        (_warm_up, [each for each in group if warms_up(each.found)]),
        (_drift, [each for each in group if each.found.drift_share]),
        (_drift_in_steps, [each for each in group if _drifts_in_steps(each.found)]),
        (_changes, [each for each in group if level_changes(each.found)]),
        (_stall, [each for each in group if each.found.longest_stall >= _STALL]),
        (_unsteady, [each for each in group if _is_unsteady(each.found)]),
        (_worth, [each for each in group if not _told(each.found) and _uncertainty(each.found) >= MATERIAL]),
    )
    return [f"{name}{_trials(those, group)} {say([each.found for each in those])}" for say, those in words if those]


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
    """Whether it drifts by changes of its level, none of them the end of the warm-up."""
    return bool(found.drift_steps) and level_changes(found) == len(found.changes)


def _trials(those: Sequence[Examined], group: Sequence[Examined]) -> str:
    if len(group) == 1:
        return ":"
    if len(those) == len(group):
        return " in both trials:" if len(group) == 2 else f" in all {len(group)} trials:"
    if len(those) <= _TOLD:
        numbers = [f"{each.trial} ({each.levels})" if each.levels else str(each.trial) for each in those]
        listed = " and ".join(filter(None, [", ".join(numbers[:-1]), numbers[-1]]))
        if max(each.trial for each in those) > len(group):  # the group isn't all trials: "trial 91 of 7" says nothing
            return f" in {len(those)} of {len(group)} trials ({listed}):"
        return f" in {'trial' if len(those) == 1 else 'trials'} {listed} of {len(group)}:"
    return f" in {len(those)} of {len(group)} trials:"


def _warm_up(found: Sequence[SeriesFindings]) -> str:
    seconds = _span([each.warm_up or 0.0 for each in found], time_words)
    effects = [each.warm_up_effect for each in found]
    most = max(effects, key=abs)
    than = "higher" if most > 0 else "lower"
    return (
        f"the first {seconds} look like warm-up (MSER-5), without which the mean is "
        f"{'' if len(found) == 1 else 'up to '}{_percent(most)} {than}"
    )


def _drift(found: Sequence[SeriesFindings]) -> str:
    way = _way([each.drift_share for each in found])
    return f"it {way} over the trial (Mann-Kendall), so its mean depends on how long it ran"


def _drift_in_steps(found: Sequence[SeriesFindings]) -> str:
    way = _way([each.drift_steps for each in found])
    return f"it {way} from start to end, in steps rather than gradually, so its mean depends on how long it ran"


def _way(shares: Sequence[float]) -> str:
    """``falls by 12 %``, ``rises or falls by up to 12 %``."""
    rising = sum(share > 0 for share in shares)
    way = "rises" if rising == len(shares) else "falls" if not rising else "rises or falls"
    size = max(map(abs, shares))
    return f"{way} by {'' if len(shares) == 1 else 'up to '}{_percent(size)}"


def _stall(found: Sequence[SeriesFindings]) -> str:
    seconds = max(each.longest_stall for each in found)
    return f"it stands still for {'' if len(found) == 1 else 'up to '}{time_words(seconds)}: at most 1 % of its median"


def _unsteady(found: Sequence[SeriesFindings]) -> str:
    return (
        "it is not steady by SNIA's rule, or not to its end: five rounds in a row within 20 % of each other, "
        "rising or falling by at most 10 %"
    )


def _told(found: SeriesFindings) -> bool:
    """Whether something is said that makes neighbours alike."""
    return bool(warms_up(found) or level_changes(found) or found.drift_share)


def _uncertainty(found: SeriesFindings) -> float:
    """Half of the 95 % interval of this trial's own mean as a share of it, where its samples are much alike; else 0."""
    if found.n < _MANY or found.effective >= _ALIKE * found.n or not found.mean:
        return 0.0
    return 1.96 * found.sigma / math.sqrt(found.effective) / abs(found.mean)


def _worth(found: Sequence[SeriesFindings]) -> str:
    worth = _span([each.effective for each in found], "{:.0f}".format)
    most = _percent(max(_uncertainty(each) for each in found))
    of = _span([float(each.n) for each in found], "{:.0f}".format)
    return f"neighbours are alike, so {of} samples are worth {worth}: they give a trial's own mean to ±{most} only"


def _changes(found: Sequence[SeriesFindings]) -> str:
    if len(found) > _TOLD:
        counts = [level_changes(each) for each in found]
        return f"the level changes within the trial, {_span([float(count) for count in counts], _times)}"
    return f"the level {', and '.join(map(_changes_of, found))}"


def _changes_of(first: SeriesFindings) -> str:
    kept = first.changes[len(first.changes) - level_changes(first) :]
    largest = max(kept, key=lambda change: abs(change.after - change.before))
    step = _percent((largest.after - largest.before) / abs(largest.before or first.mean))
    rises, at = largest.after > largest.before, time_words(largest.t)
    if len(kept) == 1:
        return f"{'rises' if rises else 'falls'} by {step} at {at}"
    return f"changes {len(kept)} times, the most by {step} {'up' if rises else 'down'} at {at}{_end_of(first, kept)}"


def _end_of(found: SeriesFindings, kept: Sequence[Level]) -> str:
    share = (kept[-1].after - kept[0].before) / abs(kept[0].before or found.mean)
    if found.drift_share or found.drift_steps or abs(share) < MATERIAL:
        return ""  # said already, or too little
    return f", and it ends {_percent(share)} {'higher' if share > 0 else 'lower'} than it began"


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:.0f} times"


def _span(values: Sequence[float], words: Callable[[float], str]) -> str:
    """The values' range in words: "12 s", "4 s to 12 s"."""
    low, high = words(min(values)), words(max(values))
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    size = 100 * abs(share)
    return f"{size:.1f} %" if size < 9.95 else f"{size:.0f} %"


def time_words(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``7 min 40 s``, ``8 h 33 min``."""
    if seconds < 9.95:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
