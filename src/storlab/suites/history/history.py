"""How often tests pass on each environment, and which of them are flaky."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from storlab.suites.environment import SuiteEnvironment
from storlab.suites.history.counts import Counts, count, interval
from storlab.suites.observed import ObservedRun


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
    def flaky(self) -> bool:
        return self.counts.flaky


@dataclass(frozen=True)
class History:
    """What runs say together: flaky tests first, then those that never pass, then skipped ones, then the rest."""

    runs: tuple[ObservedRun, ...]
    environments: tuple[SuiteEnvironment, ...]
    tests: tuple[TestHistory, ...]

    @property
    def flaky(self) -> list[TestHistory]:
        return [each for each in self.tests if each.flaky]

    @property
    def failing(self) -> list[TestHistory]:
        return [each for each in self.tests if not each.flaky and each.counts.failed]

    @property
    def skipped(self) -> list[TestHistory]:
        return [each for each in self.tests if not each.counts.decided]

    @property
    def passing(self) -> list[TestHistory]:
        return [each for each in self.tests if not each.flaky and each.counts.decided and not each.counts.failed]


def history_of(runs: Sequence[ObservedRun]) -> History:
    """What came of each test on each environment. ``runs``: oldest first."""
    by_environment: dict[tuple[str, ...], list[ObservedRun]] = {}
    for run in runs:
        by_environment.setdefault(run.environment.key, []).append(run)
    found = [_test(test, each) for each in by_environment.values() for test in _names(each)]
    found.sort(key=_order)
    environments = tuple(each[0].environment for each in by_environment.values())
    return History(tuple(runs), environments, tuple(found))


def _names(runs: Sequence[ObservedRun]) -> list[str]:
    return list(dict.fromkeys(test for run in runs for test in run.tests))


def _test(test: str, runs: Sequence[ObservedRun]) -> TestHistory:
    counts = count(test, runs)
    rate, (low, high) = None, (0.0, 1.0)
    if counts.decided:
        rate, (low, high) = counts.passed / counts.decided, interval(counts.passed, counts.decided)
    firsts = [(run, first) for run in runs if (first := run.first(test)) is not None]
    times = [first.elapsed for _, first in firsts if first.passed and first.elapsed is not None]
    seconds = median(times) if times else None
    return TestHistory(test, runs[0].environment, counts, rate, low, high, seconds, firsts[-1][0].name)


def _order(test: TestHistory) -> tuple[int, int, str]:
    """Flaky tests cost most where they fail most often; then what fails always."""
    if test.flaky:
        return 0, -test.counts.failed, test.test
    if test.counts.failed:
        return 1, -test.counts.failed, test.test
    return (3 if test.counts.decided else 2), 0, test.test
