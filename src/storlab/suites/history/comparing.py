"""What changed between runs of a suite, and what may be flakiness: see docs/explanation/suites-over-many-runs.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from storlab.suites.history.counts import Counts, OneSided, claimable, count, discoveries, more_failures, turned
from storlab.suites.history.times import Times, compare_times
from storlab.suites.observed import ObservedRun

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
    one_sided = _one_sided(len(worse), len(better))
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


def _one_sided(worse: int, better: int) -> float:
    """The sign test, two-sided: in a flaky group, each direction is as likely."""
    from scipy.stats import binom

    return min(2 * float(binom.sf(max(worse, better) - 1, worse + better, 0.5)), 1.0)


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
