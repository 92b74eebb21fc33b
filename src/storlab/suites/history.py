"""How often tests pass over many runs, which of them are flaky, and the exact tests on such counts.

What counts of a run is a test's first try. Later ones are only there because it failed, so a rate over all tries would
depend on how many are allowed; that a later try passed shows that a test is flaky, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

import numpy as np
from numpy.typing import NDArray

from storlab.base.text import grouped
from storlab.suites.model import ObservedRun, Outcome, SuiteEnvironment
from storlab.suites.records.folder import SuiteRun

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROUNDING = 1e-9  # three runs against three have a chance of 1/20, which may be a little more than 0.05 in binary


@dataclass(frozen=True)
class Counts:
    """Of one test in several runs. ``wavered``: in one of them, tries of it came out differently.

    ``last`` and ``last_wavered``: what came of the last run, and whether its tries did.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wavered: bool = False
    last: Outcome | None = None
    last_wavered: bool = False

    @property
    def decided(self) -> int:
        return self.passed + self.failed

    @property
    def flaky(self) -> bool:
        return self.wavered or (self.passed > 0 and self.failed > 0)


def count(test: str, runs: Iterable[ObservedRun]) -> Counts:
    """What came of a test in these runs, oldest first."""
    tally = {True: 0, False: 0, None: 0}
    wavered = last_wavered = False
    last = None
    for run in runs:
        tries = run.tests.get(test)
        if not tries:
            continue
        tally[tries[0].passed] += 1
        last_wavered = len({each.passed for each in tries} - {None}) > 1
        wavered |= last_wavered
        last = tries[0].outcome
    return Counts(tally[True], tally[False], tally[None], wavered, last, last_wavered)


def interval(passed: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval for a pass rate (Clopper and Pearson, Biometrika 26, 1934)."""
    from scipy.stats import beta

    half = (1 - level) / 2
    low = float(beta.ppf(half, passed, runs - passed + 1)) if passed else 0.0
    high = float(beta.ppf(1 - half, passed + 1, runs - passed)) if passed < runs else 1.0
    return low, high


@dataclass(frozen=True)
class OneSided:
    """Of several tests: the chance of as many failures after, or more, if nothing changed; and the least possible one.

    Both given how many failures there are in all, so the least is known before it is known on which side they are.
    """

    chance: Floats
    least: Floats


def more_failures(before: Sequence[Counts], after: Sequence[Counts]) -> OneSided:
    """Fisher's exact test, one-sided, of each pair of counts: if nothing changed, every order of runs is as likely."""
    from scipy.stats import hypergeom

    failed_after = _array(each.failed for each in after)
    runs_after = _array(each.decided for each in after)
    failed = failed_after + _array(each.failed for each in before)
    runs = runs_after + _array(each.decided for each in before)
    most = np.minimum(failed, runs_after)
    chance = hypergeom.sf(failed_after - 1, runs, failed, runs_after)
    least = hypergeom.sf(most - 1, runs, failed, runs_after)
    return OneSided(np.minimum(chance, 1.0), np.minimum(least, 1.0))


def turned(counts: Counts) -> Counts:
    """With failures for passes: fewer failures are more passes."""
    return Counts(counts.failed, counts.passed)


def _array(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def discoveries(tests: OneSided, level: float) -> NDArray[np.bool_]:
    """Which differences are claimed, so that of all claims a share of at most ``level`` is expected to be false.

    Benjamini and Hochberg (JRSS B 57, 1995), over those tests only that could have been claimed whatever came of them
    (Tarone, Biometrics 46, 1990): the least chance that is possible is fixed by the number of failures in all.
    """
    from scipy.stats import false_discovery_control

    counted = claimable(tests, level)
    found = np.zeros(len(tests.chance), dtype=bool)
    if counted.any():
        found[counted] = false_discovery_control(tests.chance[counted], method="bh") <= level * (1 + _ROUNDING)
    return found


def claimable(tests: OneSided, level: float) -> NDArray[np.bool_]:
    """Which have enough runs for a claim, were all failures on one side."""
    return tests.least <= level * (1 + _ROUNDING)


KINDS = ("flaky", "failing", "skipped", "passing")


@dataclass(frozen=True)
class TestHistory:
    """One test in one environment. ``low``, ``high``: of the pass rate, 95 % exact; without runs, nothing is known."""

    __test__ = False  # pytest takes it for a test otherwise

    test: str
    environment: SuiteEnvironment
    counts: Counts
    rate: float | None
    low: float
    high: float
    seconds: float | None  # in the middle of the runs in which it passed
    last: str  # the run with its last result

    @property
    def kind(self) -> str:
        """One of ``KINDS``; it is flaky if its outcomes differ within this environment."""
        if self.counts.flaky:
            return "flaky"
        return "failing" if self.counts.failed else "passing" if self.counts.decided else "skipped"


@dataclass(frozen=True)
class History:
    """What runs say together: flaky tests first, then those that never pass, then skipped ones, then the rest."""

    runs: tuple[ObservedRun, ...]
    environments: tuple[SuiteEnvironment, ...]
    tests: tuple[TestHistory, ...]

    def of(self, kind: str) -> list[TestHistory]:
        return [each for each in self.tests if each.kind == kind]


def history_of(runs: Sequence[ObservedRun]) -> History:
    """What came of each test on each environment. ``runs``: oldest first."""
    by_environment = grouped((run.environment.key, run) for run in runs)
    names = ((alike, dict.fromkeys(test for run in alike for test in run.tests)) for alike in by_environment.values())
    found = [_test(test, alike) for alike, tests in names for test in tests]
    # Flaky tests cost most where they fail most often.
    found.sort(key=lambda each: (KINDS.index(each.kind), -each.counts.failed, each.test))
    environments = tuple(each[0].environment for each in by_environment.values())
    return History(tuple(runs), environments, tuple(found))


def _test(test: str, runs: Sequence[ObservedRun]) -> TestHistory:
    counts = count(test, runs)
    rate, (low, high) = None, (0.0, 1.0)
    if counts.decided:
        rate, (low, high) = counts.passed / counts.decided, interval(counts.passed, counts.decided)
    firsts = [(run, first) for run in runs if (first := run.first(test)) is not None]
    times = [first.elapsed for _, first in firsts if first.passed and first.elapsed is not None]
    seconds = median(times) if times else None
    return TestHistory(test, runs[0].environment, counts, rate, low, high, seconds, firsts[-1][0].name)


@dataclass(frozen=True)
class PastTest:
    """One test in earlier runs. First tries count, and skips say nothing. ``seconds``: in the middle of all runs."""

    passed: int
    decided: int
    seconds: float
    last: datetime
    last_outcome: Outcome


Past = Mapping[tuple[str, str], PastTest]
"""By group and path."""


def past_of(runs: Iterable[SuiteRun]) -> Past:
    firsts = (each for run in runs for each in run.attempts if each.role == "test" and each.number == 1)
    found = {}
    for key, tries in grouped((each.key, each) for each in firsts if each.outcome is not Outcome.SKIP).items():
        passed = sum(each.outcome is Outcome.PASS for each in tries)
        last, seconds = max(reversed(tries), key=lambda each: each.started), median(each.elapsed for each in tries)
        found[key] = PastTest(passed, len(tries), seconds, last.started, last.outcome)
    return found
