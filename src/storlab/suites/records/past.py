"""What earlier runs say of each test: when it ran last, how long it takes, how often it passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from storlab.suites.model import Outcome
from storlab.suites.records.folder import SuiteRun


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
    seen: dict[tuple[str, str], list[tuple[datetime, float, Outcome]]] = {}
    for run in runs:
        for attempt in run.attempts:
            if attempt.role == "test" and attempt.number == 1 and attempt.outcome is not Outcome.SKIP:
                seen.setdefault(attempt.key, []).append((attempt.started, attempt.elapsed, attempt.outcome))
    return {key: _past(tries) for key, tries in seen.items()}


def _past(tries: list[tuple[datetime, float, Outcome]]) -> PastTest:
    passed = sum(outcome is Outcome.PASS for _, _, outcome in tries)
    last, _, outcome = max(reversed(tries), key=lambda each: each[0])
    return PastTest(passed, len(tries), median(seconds for _, seconds, _ in tries), last, outcome)
