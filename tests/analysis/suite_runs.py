"""Runs of a suite that is made up, and what is said of them: the figures of docs/explanation/suites-over-many-runs.md.

These are printed by ``PYTHONPATH=tests python -m analysis.suite_runs``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from storlab.suites.comparing import Change, Side, compare_runs
from storlab.suites.model import ObservedRun, Outcome, SuiteEnvironment, Try

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LETTERS = {"P": Outcome.PASS, "F": Outcome.FAIL, "S": Outcome.SKIP, "K": Outcome.KILLED}


@cache
def _tries(letters: str, seconds: float) -> tuple[Try, ...]:
    return tuple(Try(LETTERS[letter], seconds) for letter in letters)


def run_of(
    tests: Mapping[str, str], number: int = 0, *, seconds: float = 1.0, environment: SuiteEnvironment | None = None
) -> ObservedRun:
    """A run in which each test had these outcomes, a letter a try: ``FP`` failed, then passed."""
    tries = {name: _tries(letters, seconds) for name, letters in tests.items()}
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


BROKEN = (1.0, 0.5, 1 / 3)
DESIGNS = ((0, 1, 1), (30, 1, 1), (100, 1, 1), (30, 1, 3), (0, 3, 3), (0, 5, 5), (0, 10, 10), (30, 10, 10), (0, 20, 20))


def rates_of(generator: np.random.Generator) -> list[float]:
    """A suite as they are: most tests never fail, some now and then, a few always."""
    flaky = generator.beta(0.7, 4, size=40)
    return [*([0.0] * 250), *flaky.tolist(), *([1.0] * 10)]


def simulate(design: tuple[int, int, int], worse: list[float], repeats: int, seed: int) -> tuple[float, list[float]]:
    """The share of false claims, and of each test that got worse, how often that was found. Those are the first."""
    generator = np.random.default_rng(seed)
    false, found = [], np.zeros(len(worse))
    for _ in range(repeats):
        before = rates_of(generator)
        after = [*worse, *before[len(worse) :]]
        sides = [drawn(rates, count, generator, start) for rates, count, start in
                 ((before, design[0], 0), (before, design[1], 200), (after, design[2], 400))]  # fmt: skip
        [result] = compare_runs(Side("A", tuple(sides[1])), sides[0], [Side("B", tuple(sides[2]))])
        numbers = [int(each.test.rpartition("test")[2]) for each in result.of(Change.REGRESSED)]
        false.append(sum(number >= len(worse) for number in numbers) / max(len(numbers), 1))
        for number in numbers:
            if number < len(worse):
                found[number] += 1
    return float(np.mean(false)), (found / repeats).tolist()


def main(repeats: int) -> None:
    """A line a design."""
    for design in DESIGNS:
        wrong, _ = simulate(design, [], repeats, 1)
        cells = []
        for rate in BROKEN:
            share, found = simulate(design, [rate] * 3, repeats, 2)
            cells.append(f"{np.mean(found):.0%} (false {share:.1%})")
        sys.stdout.write(f"{design}: nothing changed: {wrong:.1%}; " + "; ".join(cells) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
