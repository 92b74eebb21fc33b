"""What is said of limits and margins: by ranks and signs together, of the typical round, with a count of far ones."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from benchmarks.soundness.engine import lies_beyond, log_evidence
from hypothesis import given
from hypothesis import strategies as st

from analysis.simulate import at_most, log_ratios
from storlab.analysis.compare import Question, compare
from storlab.analysis.judging import apply, parse_gate
from storlab.analysis.stats import signs
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.checks import far_rounds
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.verdict import Rules, beyond, judge, span_of_limits
from storlab.report.language.say import say

SEED = 20_261_130
RULES = Rules(0.05, 0.1, "higher", 5)
QUESTION = Question("fs", "xfs", "ext4", {}, False, "load", "bandwidth", "B/s", "higher")


def _said(ratios: Floats, *gates: str) -> list[str]:
    pairs = Pairs(np.arange(1, len(ratios) + 1), ratios)
    asked = [parse_gate(gate) for gate in gates]
    return [found.outcome for found in apply(asked, compare(QUESTION, pairs, 0.05), pairs, RULES)]


def test_the_capital_of_those_who_bet_on_fair_coins_is_1_on_average_and_rarely_ever_20() -> None:
    for n in range(1, 15):
        mean = sum(math.comb(n, f) * math.exp(signs.log_evidence(n - f, f)) for f in range(n + 1)) / 2**n
        assert mean == pytest.approx(1.0)
    known = [[signs.log_evidence(n - f, f) >= math.log(20) for f in range(n + 1)] for n in range(15)]
    reached = sum(
        any(known[n + 1][far] for n, far in enumerate(np.cumsum(path).tolist())) for path in product((0, 1), repeat=14)
    )
    assert 0.02 < reached / 2**14 <= 0.05


@given(st.lists(st.floats(-3, 3).map(lambda x: round(x, 2)), min_size=1, max_size=40), st.integers(0, 5))
def test_medians_that_signs_leave_possible_are_those_that_no_side_rules_out(values: list[float], more: int) -> None:
    ratios, needed = np.array(values), math.log(20 + more)
    low, high = signs.interval(ratios, needed)
    for centre in (*values, *(x + 0.005 for x in values), min(values) - 1, max(values) + 1):
        ruled_out = any(signs.evidence_of(ratios, centre, side) >= needed for side in (1, -1))
        if centre not in (low, high):
            assert ruled_out == (not low <= centre <= high)


def test_rounds_expected_by_signs_are_those_that_it_takes() -> None:
    values = np.array([1.0, 1.0, 1.0, -1.0] * 3)
    total = int(signs.rounds_for_evidence(values, math.log(20), 0.0, 1))
    grown = np.resize(values, total)
    assert len(values) < total and signs.evidence_of(grown, 0.0, 1) >= math.log(20)
    assert signs.rounds_for_evidence(-values, math.log(20), 0.0, 1) == math.inf


@pytest.mark.parametrize(("rounds", "share"), [(7, None), (8, 0.5), (15, 0.3), (23, 0.2), (48, 0.1), (99, 0.05)])
def test_so_many_rounds_without_a_far_one_show_that_those_are_rarer(rounds: int, share: float | None) -> None:
    assert far_rounds(np.zeros(rounds), 0.1).rarer_than == share


def test_equivalent_tells_how_many_rounds_may_be_far_off() -> None:
    few, many = (judge(np.resize([0.001, -0.001], n), "xfs", "ext4", RULES) for n in (20, 60))
    assert few.verdict == many.verdict == "equivalent"
    assert "up to 30 % of all may differ by more than 30 %" in say(few.reason)
    assert "Fewer than 10 % of rounds differ by more than 30 %" in say(many.reason)


def test_typical_rounds_that_are_alike_are_not_equivalent_where_one_side_stalls() -> None:
    ratios = np.resize([0.001, -0.001], 60)
    ratios[[20, 33, 41, 52]] = -1.5
    found = judge(ratios, "xfs", "ext4", RULES)
    assert found.verdict == "undecided" and not found.settled
    assert "4 of 60 rounds differ by more than 30 %, all with the lower value for xfs" in say(found.reason)
    assert found.far is not None and (found.far.above, found.far.below) == (0, 4)
    assert say(judge(-ratios, "xfs", "ext4", RULES).reason).endswith("all with the lower value for ext4.")


def test_levels_at_the_margin_are_not_equivalent_though_one_side_alone_is_skewed() -> None:
    """Half of all rounds lie beyond the margin, and ranks alone would call a fifth of such studies equivalent."""
    edge, needed = math.log1p(0.1), math.log(20)
    noise = 0.05 * (np.exp(np.random.default_rng(SEED).normal(size=(300, 100))) - 1)  # of median 0
    ratios = edge - noise
    ranks = np.minimum(log_evidence(ratios, -edge)[0], log_evidence(ratios, edge)[1]) >= needed
    both = np.logical_and(*(lies_beyond(ratios, -side * edge, side, needed) for side in (1, -1)))
    assert both.any(axis=1).mean() <= at_most(0.05, 300) < 0.15 < ranks.any(axis=1).mean()
    row, n = np.argwhere(ranks & ~both)[0]
    assert not beyond(ratios[row, : n + 1], edge, -1, RULES)


def test_two_limits_take_twice_the_evidence_of_one() -> None:
    six = np.array([-0.30, -0.31, -0.29, -0.32, -0.28, -0.33])
    assert _said(six[:5], "worse>5%") == ["hit"]
    assert _said(six[:5], "worse>5%", "worse>10%") == ["undecided", "undecided"]
    assert _said(six, "worse>5%", "worse>10%") == ["hit", "hit"]


def test_gates_on_both_sides_of_the_truth_are_rarely_ever_wrong() -> None:
    """One would be wrong by being hit, the other by passing."""
    values = log_ratios("normal", 400, 60, np.random.default_rng(SEED + 1), effect=math.log1p(0.05))
    both = Rules(0.05, 0.1, "higher", 5, sides=2)
    wrong = [
        any(beyond(row[:n], math.log1p(0.05), side, both) for n in range(5, 61) for side in (1, -1)) for row in values
    ]
    assert 0 < np.mean(wrong) <= at_most(0.05, 400)


@given(
    st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=5, max_size=30), st.sampled_from([-0.2, 0.03, 0.3])
)
def test_what_is_said_of_a_limit_and_the_interval_beside_it_agree(values: list[float], edge: float) -> None:
    ratios = np.array(values)
    seen = span_of_limits(ratios, RULES.one_sided)
    for side, is_outside in ((1, seen.low > edge), (-1, seen.high < edge)):
        if beyond(ratios, edge, side, RULES):
            assert is_outside or (seen.low if side > 0 else seen.high) == pytest.approx(edge)
        elif is_outside:  # the mean alone may speak against it
            assert side * (ratios.mean() - edge) <= 0
