"""Whether tests take longer than they did. A run in which all of them were slow is a busy machine, and no change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storlab.suites.history.counts import Floats
from storlab.suites.observed import ObservedRun

_LEVEL = 0.05
_FEWEST = 4  # runs of each side: with fewer, no rank test could find anything
_SHORTEST = 0.1  # s: what takes less varies by the clock
_EXACT = 8  # runs of the smaller side up to which the exact distribution is needed; scipy's own choice
_RATIO = 1.2
"""A change that is worth a line."""


@dataclass(frozen=True)
class TimeChange:
    """A test that takes so many times as long. ``before``, ``after``: seconds in the middle, as they were measured."""

    test: str
    ratio: float
    before: float
    after: float
    chance: float


@dataclass(frozen=True)
class Times:
    """``overall``: how many times as long the runs took in the middle of all tests; ``None`` where nothing compares.

    ``compared``: tests with enough runs on both sides.
    """

    overall: float | None
    compared: int
    changed: tuple[TimeChange, ...]


def compare_times(before: Sequence[ObservedRun], after: Sequence[ObservedRun]) -> Times:
    """Tests that passed in enough runs of both sides, with each run's times divided by how slow that run was."""
    taken = [_times(run) for run in (*before, *after)]
    names = sorted(set().union(*taken)) if taken else []
    usual = {name: float(np.median([each[name] for each in taken if name in each])) for name in names}
    slow = [_factor(each, usual) for each in taken]
    left, right = slow[: len(before)], slow[len(before) :]
    overall = float(np.median(right) / np.median(left)) if usual and left and right else None
    rows = []
    for name in names:
        sides = _sides(name, taken, slow, len(before))
        if min(map(len, sides)) >= _FEWEST:
            rows.append((name, *sides))
    return Times(overall, len(rows), _changed(rows, taken, len(before)))


def _times(run: ObservedRun) -> dict[str, float]:
    firsts = ((name, tries[0]) for name, tries in run.tests.items())
    return {name: first.elapsed for name, first in firsts if first.passed and first.elapsed}


def _factor(times: dict[str, float], usual: dict[str, float]) -> float:
    """How many times as long as usual a run took in the middle of its tests."""
    ratios = [seconds / usual[name] for name, seconds in times.items() if usual[name] >= _SHORTEST]
    return float(np.median(ratios)) if ratios else 1.0


def _sides(name: str, taken: Sequence[dict[str, float]], slow: Sequence[float], split: int) -> tuple[Floats, Floats]:
    pairs = list(zip(taken, slow, strict=True))
    sides = (pairs[:split], pairs[split:])
    left, right = (np.array([each[name] / factor for each, factor in side if name in each]) for side in sides)
    return left, right


def _changed(
    rows: Sequence[tuple[str, Floats, Floats]], taken: Sequence[dict[str, float]], split: int
) -> tuple[TimeChange, ...]:
    """Mann and Whitney's test of each, false discoveries over all; and what is too little to matter is left out."""
    from scipy.stats import false_discovery_control

    if not rows:
        return ()
    chances = _rank_tests([(left, right) for _, left, right in rows])
    claimed = false_discovery_control(chances, method="bh") <= _LEVEL
    found = []
    for (name, left, right), chance in ((row, c) for row, c, yes in zip(rows, chances, claimed, strict=True) if yes):
        # Hodges and Lehmann's estimate of a shift, of logarithms: the middle of all ratios of one to another.
        ratio = math.exp(float(np.median(np.log(right)[:, None] - np.log(left)[None, :])))
        earlier, later = (_median(name, side) for side in (taken[:split], taken[split:]))
        if max(ratio, 1 / ratio) >= _RATIO and max(earlier, later) >= _SHORTEST:
            found.append(TimeChange(name, ratio, earlier, later, float(chance)))
    return tuple(sorted(found, key=lambda each: -abs(math.log(each.ratio))))


def _rank_tests(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Mann and Whitney's test of each pair, exact where there are no ties: all of one shape at once, for speed."""
    from scipy.stats import mannwhitneyu

    shapes: dict[tuple[int, int, bool], list[int]] = {}
    for number, (left, right) in enumerate(pairs):
        tied = len(np.unique(np.concatenate([left, right]))) < len(left) + len(right)
        shapes.setdefault((len(left), len(right), tied), []).append(number)
    chances = np.ones(len(pairs))
    for (_, _, tied), numbers in shapes.items():
        lefts, rights = (np.array([pairs[number][side] for number in numbers]) for side in (0, 1))
        small = not tied and min(lefts.shape[1], rights.shape[1]) <= _EXACT
        found = mannwhitneyu(lefts, rights, axis=1, method="exact" if small else "asymptotic").pvalue
        chances[numbers] = np.nan_to_num(found, nan=1.0)  # where all are the same
    return chances


def _median(name: str, taken: Sequence[dict[str, float]]) -> float:
    return float(np.median([each[name] for each in taken if name in each]))
