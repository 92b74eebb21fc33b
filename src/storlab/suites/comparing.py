"""What changed between runs of a suite, and what may be flakiness: see docs/explanation/suites-over-many-runs.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from storlab.base.text import grouped
from storlab.suites.history import Counts, Floats, OneSided, claimable, count, discoveries, more_failures, turned
from storlab.suites.model import ObservedRun

# Whether tests take longer than they did. A run in which all of them were slow is a busy machine, and no change.

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
    """``overall``: how many times as long the runs took in the middle of all tests; ``None`` if nothing compares.

    ``compared``: tests with enough runs on both sides.
    """

    overall: float | None
    compared: int
    changed: tuple[TimeChange, ...]


def compare_times(before: Sequence[ObservedRun], after: Sequence[ObservedRun]) -> Times:
    """Tests that passed in enough runs of both sides, with each run's times divided by how slow that run was."""
    taken = []
    for run in (*before, *after):
        firsts = ((name, tries[0]) for name, tries in run.tests.items())
        taken.append({name: first.elapsed for name, first in firsts if first.passed and first.elapsed})
    names = sorted(set().union(*taken)) if taken else []
    usual = {name: float(np.median([each[name] for each in taken if name in each])) for name in names}
    slow = [_factor(each, usual) for each in taken]
    left, right = slow[: len(before)], slow[len(before) :]
    overall = float(np.median(right) / np.median(left)) if usual and left and right else None
    both = list(zip(taken, slow, strict=True))
    pairs, rows = (both[: len(before)], both[len(before) :]), []
    for name in names:
        sides = [np.array([each[name] / factor for each, factor in side if name in each]) for side in pairs]
        if min(map(len, sides)) >= _FEWEST:
            rows.append((name, sides[0], sides[1]))
    return Times(overall, len(rows), _changed(rows, taken, len(before)))


def _factor(times: dict[str, float], usual: dict[str, float]) -> float:
    """How many times as long as usual a run took in the middle of its tests."""
    ratios = [seconds / usual[name] for name, seconds in times.items() if usual[name] >= _SHORTEST]
    return float(np.median(ratios)) if ratios else 1.0


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
        sides = (taken[:split], taken[split:])
        earlier, later = (float(np.median([each[name] for each in side if name in each])) for side in sides)
        if max(ratio, 1 / ratio) >= _RATIO and max(earlier, later) >= _SHORTEST:
            found.append(TimeChange(name, ratio, earlier, later, float(chance)))
    return tuple(sorted(found, key=lambda each: -abs(math.log(each.ratio))))


def _rank_tests(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Mann and Whitney's test of each pair, exact if there are no ties: all of one shape at once, for speed."""
    from scipy.stats import mannwhitneyu

    ties = (len(np.unique(np.concatenate(pair))) < sum(map(len, pair)) for pair in pairs)
    shapes = grouped(((*map(len, pairs[number]), tied), number) for number, tied in enumerate(ties))
    chances = np.ones(len(pairs))
    for (_, _, tied), numbers in shapes.items():
        lefts, rights = (np.array([pairs[number][side] for number in numbers]) for side in (0, 1))
        small = not tied and min(lefts.shape[1], rights.shape[1]) <= _EXACT
        found = mannwhitneyu(lefts, rights, axis=1, method="exact" if small else "asymptotic").pvalue
        chances[numbers] = np.nan_to_num(found, nan=1.0)  # where all are the same
    return chances


LEVEL = 0.05
"""The share of all tests reported as regressed, and of those as fixed, that may be so by chance alone."""
_MOST_MORE = 50  # runs that are suggested


class Change(StrEnum):
    """What is said of a test. ``LEFT_OUT``: the later runs were not asked for it."""

    REGRESSED = "regressed"
    FIXED = "fixed"
    FLAKY = "flaky"
    UNDECIDED = "undecided"
    MISSING = "missing"
    NEW = "new"
    UNCHANGED = "unchanged"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class TestChange:
    """One test on two sides. ``chance``: that flakiness alone makes a difference as large, in this direction.

    ``more``: runs of each side that would decide it, if they come out as those that there are.
    """

    __test__ = False  # pytest takes it for a test otherwise

    test: str
    change: Change
    before: Counts
    after: Counts
    chance: float | None = None
    more: int | None = None


@dataclass(frozen=True)
class Side:
    """Runs that are taken together."""

    label: str
    runs: tuple[ObservedRun, ...]


@dataclass(frozen=True)
class Comparison:
    """Two sides. ``worse``, ``better``: groups of tests in which more went one way than the other.

    ``one_sided``: the chance that flakiness alone, of one group as of another, makes it as one-sided, either way.
    ``earlier``: runs of the history that count with those before.
    """

    before: Side
    after: Side
    changes: tuple[TestChange, ...]
    worse: int
    better: int
    one_sided: float
    times: Times
    earlier: int = 0

    def of(self, change: Change) -> list[TestChange]:
        return [each for each in self.changes if each.change is change]

    @property
    def compared(self) -> bool:
        """Whether any test passed or failed on both sides."""
        return any(each.before.decided and each.after.decided for each in self.changes)

    @property
    def gaps(self) -> bool:
        return any(run.gaps for side in (self.before, self.after) for run in side.runs)


def compare_runs(before: Side, history: Sequence[ObservedRun], afters: Sequence[Side]) -> list[Comparison]:
    """Each of ``afters`` beside ``before``, whose tests also have ``history``; false discoveries over all together."""
    known = [*history, *before.runs]
    counted = {test: count(test, known) for test in _tests(known)}
    pairs = [_pairs(counted, before, after) for after in afters]
    flat = [pair for side in pairs for pair in side]
    worse = more_failures([each.before for each in flat], [each.after for each in flat])
    fewer = more_failures([turned(each.before) for each in flat], [turned(each.after) for each in flat])
    regressed, fixed = discoveries(worse, LEVEL), discoveries(fewer, LEVEL)
    family = _family(flat, worse, fewer)
    found, at = [], 0
    for after, side in zip(afters, pairs, strict=True):
        changes = []
        for pair in side:
            chance = float(min(worse.chance[at], fewer.chance[at]))
            changes.append(_judged(pair, bool(regressed[at]), bool(fixed[at]), chance, family))
            at += 1
        alone = len(known) == 1 and len(after.runs) == 1
        found.append(_comparison(before, after, changes, alone, len(afters), known, len(history)))
    return found


def _tests(runs: Iterable[ObservedRun]) -> list[str]:
    return list(dict.fromkeys(test for run in runs for test in (*run.tests, *sorted(run.asked))))


def _pairs(counted: dict[str, Counts], before: Side, after: Side) -> list[TestChange]:
    own = {test for run in before.runs for test in run.tests}
    asked = {test for run in after.runs for test in run.asked}
    found = []
    for test in dict.fromkeys([*counted, *_tests(after.runs)]):
        earlier, later = counted.get(test, Counts()), count(test, after.runs)
        if not earlier.decided and not later.decided:
            change = Change.UNCHANGED
        elif not earlier.decided:
            change = Change.NEW
        elif later.decided:
            change = Change.UNDECIDED
        elif test not in own:
            continue  # only the history has it
        else:
            # A console doesn't say what was to be run, so what it lacks may have been lost.
            told = all(run.started is not None for run in after.runs)
            change = Change.LEFT_OUT if told and test not in asked else Change.MISSING
        found.append(TestChange(test, change, earlier, later))
    return found


def _differs(pair: TestChange) -> bool:
    left, right = pair.before, pair.after
    return pair.change is Change.UNDECIDED and left.failed * right.decided != right.failed * left.decided


def _family(pairs: Sequence[TestChange], worse: OneSided, fewer: OneSided) -> int:
    could = claimable(worse, LEVEL) | claimable(fewer, LEVEL)
    return int(np.count_nonzero(could | np.array([_differs(each) for each in pairs], dtype=bool))) or 1


def _judged(pair: TestChange, regressed: bool, fixed: bool, chance: float, family: int) -> TestChange:
    if pair.change is not Change.UNDECIDED:
        return pair
    flaky = pair.before.flaky or pair.after.flaky
    more = None
    if regressed:
        change = Change.REGRESSED
    elif fixed:
        change = Change.FIXED
    elif flaky:
        change = Change.FLAKY
    elif not _differs(pair):
        return TestChange(pair.test, Change.UNCHANGED, pair.before, pair.after)
    else:
        change, more = Change.UNDECIDED, _more(pair, LEVEL / family)
    return TestChange(pair.test, change, pair.before, pair.after, chance if _differs(pair) else None, more)


def _more(pair: TestChange, level: float) -> int | None:
    """Runs that each side lacks to be decided if all of them come out as before: every order is as likely."""
    before, after = pair.before.decided, pair.after.decided
    for more in range(_MOST_MORE + 1):
        if 1 / math.comb(before + after + 2 * more, after + more) <= level:
            return more
    return None


def _comparison(
    before: Side,
    after: Side,
    changes: list[TestChange],
    alone: bool,
    sides: int,
    known: Sequence[ObservedRun],
    earlier: int,
) -> Comparison:
    worse, better = _groups(changes)
    if alone:
        changes = _one_run_each(changes, worse, better, LEVEL / sides)
    from scipy.stats import binom

    # The sign test, two-sided: in a flaky group, each direction is as likely.
    most, groups = max(len(worse), len(better)), len(worse) + len(better)
    one_sided = min(2 * float(binom.sf(most - 1, groups, 0.5)), 1.0)
    times = compare_times(known, after.runs)
    return Comparison(before, after, tuple(changes), len(worse), len(better), one_sided, times, earlier)


def _groups(changes: Sequence[TestChange]) -> tuple[set[str], set[str]]:
    """Groups with more tests that got worse than better, and the other way round; tests of a group share a set-up."""
    balance: dict[str, float] = {}
    for each in changes:
        if each.chance is not None:
            difference = each.after.failed / each.after.decided - each.before.failed / each.before.decided
            group = each.test.rpartition("/")[0]
            balance[group] = balance.get(group, 0.0) + math.copysign(1.0, difference)
    return {group for group, net in balance.items() if net > 0}, {group for group, net in balance.items() if net < 0}


def _one_run_each(changes: list[TestChange], worse: set[str], better: set[str], level: float) -> list[TestChange]:
    """One run a side says nothing of a single test, but much of very many.

    Flakiness turns as many groups one way as the other, so those that got better tell how many of those that got worse
    did so by chance: (better + 1) / worse is what is expected of false ones at most (Barber and Candès, Annals of
    Statistics 43, 2015, "knockoff+", of which this is the case with nothing but signs).
    """
    claimed: dict[Change, set[str]] = {}
    for change, these, others in ((Change.REGRESSED, worse, better), (Change.FIXED, better, worse)):
        if these and (len(others) + 1) / len(these) <= level:
            claimed[change] = these
    found = []
    for each in changes:
        wanted = Change.REGRESSED if each.after.failed else Change.FIXED
        group = each.test.rpartition("/")[0]
        if each.change is Change.UNDECIDED and group in claimed.get(wanted, ()):
            each = TestChange(each.test, wanted, each.before, each.after, each.chance)
        found.append(each)
    return found
