"""Tests of ``storlab.analysis.stats.closed_testing``: what it asks is what testing every possible set asks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.stats.closed_testing import Hypothesis, thresholds

LEVELS = "abcd"
PAIRS = list(itertools.combinations(LEVELS, 2))
evidence = st.floats(-5, 8)


def hypotheses(*families: list[float]) -> list[Hypothesis]:
    """Of each family all pairs of three or four levels, with the evidence against each."""
    pairs = {3: list(itertools.combinations("abc", 2)), 6: PAIRS, 1: [("a", "b")]}
    return [
        Hypothesis(number, *pair, log_evidence)
        for number, of in enumerate(families)
        for pair, log_evidence in zip(pairs[len(of)], of, strict=True)
    ]


def equalities(levels: str) -> list[set[tuple[str, str]]]:
    """Every set of pairs that may be equal while all others differ, by brute force: those that are transitive."""
    pairs = list(itertools.combinations(levels, 2))
    subsets = itertools.chain.from_iterable(itertools.combinations(pairs, n) for n in range(len(pairs) + 1))
    return [
        set(one)
        for one in subsets
        if all(
            tuple(sorted({x, z})) in one
            for (x, y), (v, z) in itertools.product([*one, *((b, a) for a, b in one)], repeat=2)
            if y == v and x != z
        )
    ]


def rejected_by_closure(asked: list[Hypothesis], alpha: float) -> list[bool]:
    """Marcus, Peritz and Gabriel, literally: a hypothesis falls when every possible set with it does."""
    by_family = {number: [h for h in asked if h.family == number] for number in dict.fromkeys(h.family for h in asked)}
    choices = [
        [
            [h for h in of if (h.a, h.b) in equal]
            for equal in equalities("".join(sorted({x for h in of for x in h.a + h.b})))
        ]
        for of in by_family.values()
    ]
    fallen = dict.fromkeys(map(id, asked), True)
    for chosen in itertools.product(*choices):
        means = [np.mean([math.exp(h.log_evidence) for h in of]) for of in chosen if of]
        if means and np.mean(means) < 1 / alpha:
            fallen |= {id(h): False for of in chosen for h in of}
    return [fallen[id(h)] for h in asked]


@given(st.lists(evidence, min_size=6, max_size=6), st.lists(evidence, min_size=3, max_size=3), evidence)
def test_what_is_asked_is_what_testing_every_possible_set_asks(
    four: list[float], three: list[float], two: float
) -> None:
    asked = hypotheses(four, three, [two])
    claimed = [h.log_evidence >= math.log(need) for h, need in zip(asked, thresholds(asked, 0.05), strict=True)]
    close = [
        abs(math.exp(h.log_evidence) / need - 1) < 1e-9 for h, need in zip(asked, thresholds(asked, 0.05), strict=True)
    ]
    if not any(close):
        assert claimed == rejected_by_closure(asked, 0.05)


def test_a_comparison_by_itself_needs_what_one_needs() -> None:
    assert thresholds(hypotheses([0.0]), 0.05) == pytest.approx([20])
    assert len(thresholds([], 0.05)) == 0


def test_without_any_evidence_each_needs_what_bonferroni_asks() -> None:
    nothing = -math.inf
    assert thresholds(hypotheses([nothing], [nothing], [nothing]), 0.05) == pytest.approx([60] * 3)
    assert thresholds(hypotheses([nothing] * 3), 0.05) == pytest.approx([60] * 3)
    assert thresholds(hypotheses([nothing] * 3, [nothing] * 3), 0.05) == pytest.approx([120] * 6)


def test_what_is_certain_costs_the_others_nothing() -> None:
    assert thresholds(hypotheses([10.0], [10.0], [0.0]), 0.05) == pytest.approx([39, 39, 20])


def test_of_many_levels_any_set_of_pairs_is_taken_for_possible() -> None:
    many = [Hypothesis("f", *pair, 0.0) for pair in itertools.combinations("abcdefgh", 2)]
    assert thresholds(many, 0.05) == pytest.approx([20 + 27 * 19] * 28)


@given(st.lists(evidence, min_size=3, max_size=3), st.integers(0, 2), st.floats(0.1, 3))
def test_more_evidence_against_one_never_makes_another_need_more(of: list[float], which: int, more: float) -> None:
    stronger = [value + more * (index == which) for index, value in enumerate(of)]
    before, after = (thresholds(hypotheses(each), 0.05) for each in (of, stronger))
    assert all(after[index] <= before[index] + 1e-9 for index in range(3) if index != which)
