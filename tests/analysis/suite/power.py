"""The figures of docs/explanation/suites-over-many-runs.md: ``PYTHONPATH=tests python -m analysis.suite.power``."""

from __future__ import annotations

import sys

import numpy as np

from analysis.suite.simulated import drawn
from storlab.analysis.suite.comparing import Change, Side, compare_runs

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
