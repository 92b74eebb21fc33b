"""The commit that breaks a test now and then is found, and is the wrong one no more often than stated."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from storlab.analysis.suite.bisecting import Culprits, Tally, Terms, beliefs, find_culprit
from storlab.errors import UserError


def simulated(
    count: int, culprit: int, after: float, generator: np.random.Generator, terms: Terms, before: float = 0.0,
    dead: frozenset[int] = frozenset(),
) -> tuple[Culprits, list[int]]:  # fmt: skip
    asked = []

    def probe(number: int) -> bool | None:
        asked.append(number)
        return None if number in dead else bool(generator.random() >= (after if number >= culprit else before))

    return find_culprit(count, probe, terms), asked


@pytest.mark.parametrize(("after", "before"), [(1 / 3, 0.0), (1.0, 0.0), (0.4, 0.05)])
def test_the_culprit_is_found_with_the_stated_error(after: float, before: float) -> None:
    generator = np.random.default_rng(20260105)
    terms = Terms(error=0.05, flaky=before > 0)
    repeats, wrong, tests, builds = (100 if not before else 3), 0, [], []
    for _ in range(repeats):
        culprit = int(generator.integers(1, 31))
        found, asked = simulated(30, culprit, after, generator, terms, before)
        wrong += culprit not in found.candidates
        tests.append(len(asked))
        builds.append(1 + sum(a != b for a, b in pairwise(asked)))
    assert wrong / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats), wrong
    assert np.mean(tests) < (100 if not before else 300) and np.mean(builds) < 30, (np.mean(tests), np.mean(builds))


def test_a_failure_settles_it_where_the_good_never_fails() -> None:
    tally = Tally.of(10)
    tally.add(4, False)
    belief, _ = beliefs(tally, Terms())
    assert belief[:4].sum() == pytest.approx(1) and not belief[4:].any()


def test_what_can_not_be_tested_is_named_with_the_one_after_it() -> None:
    found, _ = simulated(8, 5, 1.0, np.random.default_rng(1), Terms(), dead=frozenset({4, 5}))
    assert found.candidates == (4, 5, 6) and found.probability >= 0.95


def test_ends_that_do_not_fit_are_refused() -> None:
    def ended(good: bool | None, bad: bool | None, flaky: bool = False) -> str:
        with pytest.raises(UserError) as error:
            find_culprit(5, lambda number: good if number == 0 else bad, Terms(flaky=flaky))
        return str(error.value)

    assert "the bad one passes: 59 of 59 runs" in ended(True, True)
    assert "the good one fails: run 1" in ended(False, False)
    assert "the good one fails as often as the bad one" in ended(False, False, flaky=True)
    assert "the bad one can't be tested" in ended(True, None)
    assert "the good one can't be tested" in ended(None, False)
