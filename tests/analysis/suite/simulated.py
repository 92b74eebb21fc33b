"""Runs of a suite that is made up: tests that pass, that are flaky, that got worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from storlab.suite.environment import SuiteEnvironment
from storlab.suite.model import Outcome
from storlab.suite.observed import ObservedRun, Try

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LETTERS = {"P": Outcome.PASS, "F": Outcome.FAIL, "S": Outcome.SKIP, "K": Outcome.KILLED}


def run_of(
    tests: Mapping[str, str], number: int = 0, *, seconds: float = 1.0, environment: SuiteEnvironment | None = None
) -> ObservedRun:
    """A run in which each test had these outcomes, a letter a try: ``FP`` failed, then passed."""
    tries = {name: tuple(Try(LETTERS[letter], seconds) for letter in letters) for name, letters in tests.items()}
    began = BEGAN + timedelta(days=number)
    known = environment or SuiteEnvironment(kernel="6.12")
    return ObservedRun(f"run-{number}", f"r{number}", began, known, tries, frozenset(tests))


def runs_of(columns: Mapping[str, str], start: int = 0) -> list[ObservedRun]:
    """Runs from one letter a run of each test: ``{"a": "PPF"}`` are three."""
    count = max(map(len, columns.values()))
    return [
        run_of({name: letters[at] for name, letters in columns.items() if letters[at] != " "}, start + at)
        for at in range(count)
    ]


def drawn(rates: Sequence[float], count: int, generator: np.random.Generator, start: int = 0) -> list[ObservedRun]:
    """Runs in which test number i fails at ``rates[i]``, whatever the others do."""
    failed = generator.random((count, len(rates))) < np.array(rates)
    names = [f"group{number // 10}/test{number}" for number in range(len(rates))]
    return [
        run_of({name: "F" if fails else "P" for name, fails in zip(names, row, strict=True)}, start + at, seconds=0.0)
        for at, row in enumerate(failed)
    ]
