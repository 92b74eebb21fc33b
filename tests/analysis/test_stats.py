"""Evidence by signs and ranks, intervals of means that hold at every look, and closed testing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storlab.analysis.stats import anytime, signed_rank
from storlab.analysis.stats.anytime import EFFECT_VARIANCE, mean_interval, width_factor, width_factors
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.stats.signed_rank import (
    fewest_rounds,
    interval,
    log_evidence,
    rounds_for_evidence,
    sequential_signed_ranks,
    typical,
)

from .simulate import MACHINES, log_ratios, running

SIDES = (1, -1)

ratios = st.lists(st.floats(-5, 5), min_size=1, max_size=30).map(np.array)


def test_ranks_count_only_rounds_so_far_and_what_does_not_differ_is_no_evidence() -> None:
    ranks = sequential_signed_ranks(np.array([0.3, -0.1, 0.5, 0.3, 0.0]))
    assert ranks.tolist() == pytest.approx([1, -1 / 2, 3 / 3, 2.5 / 4, 0])
    nothing = pytest.approx(0.0)
    assert log_evidence(np.zeros(50)) == nothing
    assert log_evidence(np.full(50, 1e-15)) == nothing, "nor are differences by rounding"
    assert log_evidence(np.array([])) == nothing
    values = np.where(np.arange(200) % 10 == 9, 1.0, -0.01)
    assert log_evidence(values, side=-1) > math.log(20) > 0 > log_evidence(values)


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [1, 100, 2, 2, 0.1]])
def test_over_all_signs_the_capital_is_one_on_average(sizes: list[float]) -> None:
    """The martingale property, exactly: with fair signs, no betting wins on average."""
    signs = itertools.product([1, -1], repeat=len(sizes))
    capital = [
        [math.exp(log_evidence(np.array(sizes) * np.array(sign), side=side)) for side in SIDES] for sign in signs
    ]
    assert np.mean(capital, axis=0) == pytest.approx([1, 1])


@given(ratios, st.floats(-1000, 1000), st.floats(0.5, 50), st.integers(0, 5))
def test_the_evidence_knows_neither_side_nor_scale_and_a_round_doubles_it_at_most_however_far_out(
    values: np.ndarray, outlier: float, scale: float, lost: int
) -> None:
    coarse, worst = np.round(values, 3), np.append(values, -10.0 - np.arange(lost))
    assert log_evidence(np.append(values, outlier)) <= log_evidence(values) + math.log(2) + 1e-9
    assert log_evidence(-values, side=-1) == pytest.approx(log_evidence(values))
    assert log_evidence(scale * coarse) == pytest.approx(log_evidence(coarse))
    assert log_evidence(values, lost=lost) == pytest.approx(log_evidence(worst)), "lost is the worst that can be"


def test_the_fewest_rounds_grow_with_the_logarithm_of_the_comparisons_and_a_forecast_needs_evidence_that_grows() -> (
    None
):
    assert [fewest_rounds(0.05 / comparisons) for comparisons in (1, 10, 100, 1000)] == [6, 10, 13, 16]
    assert 4 < rounds_for_evidence(np.array([0.1, 0.2, 0.15, 0.12]), math.log(40)) < 12
    assert rounds_for_evidence(np.array([0.1, -0.1, -0.1, 0.1]), math.log(40)) == math.inf
    assert rounds_for_evidence(np.array([]), math.log(40)) == math.inf
    assert rounds_for_evidence(np.ones(40), math.log(40)) == 40


@example(np.array([0, 0, 0, 0, 0, 0, 2, 3, 23, 44]) / 10, 1.0)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=25).map(lambda x: np.array(x) / 10), st.floats(1.0, 8.0))
def test_the_interval_is_what_the_evidence_does_not_rule_out(values: np.ndarray, needed: float) -> None:
    low, high = interval(values, needed)
    steps = np.unique(np.round(np.add.outer(values, values) / 2, 6))  # 2.3 is one, though it is 0.2 and 4.4, too
    inner = (steps[:-1] + steps[1:]) / 2  # evidence changes at the steps only
    for centre in (steps[0] - 1, *inner, steps[-1] + 1):
        ruled_out = max(log_evidence(values, centre, side) for side in SIDES) >= needed
        assert ruled_out == (not low <= centre <= high)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30).map(lambda x: np.round(x, 6)))
def test_evidence_for_above_falls_with_what_it_is_above(values: np.ndarray) -> None:
    at = np.linspace(-6, 6, 60)
    above, below = ([log_evidence(values, c, side) for c in at] for side in SIDES)
    assert (np.diff(above) <= 1e-9).all() and (np.diff(below) >= -1e-9).all()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30).map(np.array))
def test_the_typical_value_is_the_median_of_all_means_of_two(values: np.ndarray) -> None:
    means = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2)]
    assert typical(values) == pytest.approx(np.median(means), abs=1e-12)


def test_many_rounds_have_what_few_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).standard_t(2, size=120)
    few, alone = (*interval(values, math.log(40)), *sequential_signed_ranks(values)), typical(values)
    monkeypatch.setattr(signed_rank, "_MATRIX", 10)
    many = (*interval(values, math.log(40)), *sequential_signed_ranks(values))
    assert many == pytest.approx(few, abs=1e-8)
    assert typical(values) == pytest.approx(alone, abs=1e-3), "anywhere between the two in the middle"


samples = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40).map(np.array)
alphas = st.sampled_from([0.2, 0.05, 0.005, 0.0001])


def log_e_value(values: np.ndarray, mu: float = 0.0, g: float = EFFECT_VARIANCE) -> float:
    """log B of the module's docstring, as it stands there: the evidence that intervals are inverted from."""
    n, v, a = len(values), len(values) - 1, 1 + len(values) * g
    squared = n * (values.mean() - mu) ** 2 / values.var(ddof=1)
    return float(-math.log(a) / 2 + n / 2 * (math.log1p(squared / v) - math.log1p(squared / (v * a))))


def test_the_e_value_is_the_bayes_factor_by_numerical_integration() -> None:
    from scipy import integrate, stats

    values = np.array([0.3, 1.1, 0.7, -0.2, 0.9])
    n = len(values)
    t = math.sqrt(n) * values.mean() / values.std(ddof=1)
    # Under effect size d, t is noncentral t with noncentrality √n·d; d ~ N(0, 10).
    alternative, _ = integrate.quad(
        lambda d: stats.nct.pdf(t, n - 1, math.sqrt(n) * d) * stats.norm.pdf(d, scale=math.sqrt(10)), -15, 15
    )
    assert log_e_value(values) == pytest.approx(math.log(alternative / stats.t.pdf(t, n - 1)), rel=1e-6)


@given(samples, alphas)
def test_the_ends_of_an_interval_have_an_e_value_of_one_over_alpha(values: np.ndarray, alpha: float) -> None:
    found = mean_interval(values, alpha)
    if not found.bounded or found.sd < 1e-3:
        return
    for end in (found.low, found.high):
        assert log_e_value(values, end) == pytest.approx(-math.log(alpha), rel=1e-6)
    inside, outside = (found.low + share * (found.high - found.low) for share in (0.1, -0.1))
    assert log_e_value(values, inside) < -math.log(alpha) < log_e_value(values, outside)


def test_the_cost_table_of_the_documentation_holds() -> None:
    table = {(1, 5): 3.78, (1, 10): 1.22, (1, 30): 0.61, (10, 5): 2.42, (10, 10): 1.32, (10, 30): 0.68}
    for (g, rounds), factor in table.items():
        assert round(float(width_factors(np.array([rounds]), 0.05, g)[0]), 2) == factor
        assert f"{factor:.2f}" in Path(anytime.__file__).read_text()


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.005, 0.0001])
def test_intervals_shrink_with_every_round(alpha: float) -> None:
    factors = width_factors(np.arange(1, 100_000), alpha)
    finite = factors[np.isfinite(factors)]
    assert (np.diff(finite) < 0).all()
    assert np.isinf(factors[: len(factors) - len(finite)]).all(), "once there is an found, there always is"


def test_one_round_has_no_interval_and_equal_values_are_a_point_unless_they_are_too_few() -> None:
    alone = mean_interval(np.array([3.0]), 0.05)
    assert not alone.bounded and math.isnan(alone.sd)
    assert math.isinf(width_factor(2, 0.05)) and math.isfinite(width_factor(4, 0.05))
    assert not mean_interval(np.full(2, 7.0), 0.05).bounded
    for values in (np.full(6, 7.0), 7.0 + np.array([0, 1e-15, -1e-15, 0, 1e-15, 0])):  # equal but for rounding
        found = mean_interval(values, 0.05)
        assert found.sd == 0 and found.low == found.high == pytest.approx(7.0)


@given(samples, st.floats(0.01, 100), st.floats(-100, 100), st.integers(2, 5))
def test_intervals_follow_a_change_of_unit_and_the_same_data_seen_more_often_never_widen_them(
    values: np.ndarray, scale: float, shift: float, times: int
) -> None:
    found, other, often = (mean_interval(x, 0.05) for x in (values, scale * values + shift, np.tile(values, times)))
    if found.bounded:
        assert often.high - often.low <= (found.high - found.low) * (1 + 1e-9)
    if found.bounded and found.sd > 1e-3:
        assert other.low == pytest.approx(scale * found.low + shift, rel=1e-6, abs=1e-6)
        assert other.high == pytest.approx(scale * found.high + shift, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        *(({"alpha": alpha}, "between 0 and 1") for alpha in (0.0, 1.0, -0.1, math.nan)),
        *(({"g": g}, "positive and finite") for g in (0.0, -1.0, math.inf, math.nan)),
    ],
)
def test_what_is_no_probability_no_proper_variance_or_no_value_is_refused(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        width_factors(np.array([5]), **{"alpha": 0.05, **wrong})
    with pytest.raises(ValueError, match="at least one"):
        mean_interval(np.array([]), 0.05)


@pytest.mark.parametrize("kind", MACHINES)
def test_intervals_hold_after_every_round_at_once(kind: str) -> None:
    """4,000 studies with 100 looks each: the found may miss the truth at any look in 5 % of them at most."""
    values = log_ratios(kind, 4000, 100, np.random.default_rng(20_240_501), effect=0.1)
    mean, sd = running(values)
    factors = width_factors(np.arange(1, 101), 0.05)
    known = np.isfinite(factors)
    missed = known & (np.abs(mean - 0.1) > np.where(known, factors, 0.0) * sd * (1 - 1e-9))
    assert missed[:, 4:].any(axis=1).mean() <= 0.05


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
def test_it_asks_what_testing_every_possible_set_asks(four: list[float], three: list[float], two: float) -> None:
    asked = hypotheses(four, three, [two])
    needed = thresholds(asked, 0.05)
    found = np.exp([h.log_evidence for h in asked])
    if not (abs(found / needed - 1) < 1e-9).any():
        assert [*(found >= needed)] == rejected_by_closure(asked, 0.05)


def test_each_needs_what_one_needs_or_what_bonferroni_asks_where_others_show_nothing() -> None:
    assert thresholds(hypotheses([0.0]), 0.05) == pytest.approx([20])
    assert len(thresholds([], 0.05)) == 0
    nothing = -math.inf
    assert thresholds(hypotheses([nothing], [nothing], [nothing]), 0.05) == pytest.approx([60] * 3)
    assert thresholds(hypotheses([nothing] * 3), 0.05) == pytest.approx([60] * 3)
    assert thresholds(hypotheses([nothing] * 3, [nothing] * 3), 0.05) == pytest.approx([120] * 6)
    assert thresholds(hypotheses([10.0], [10.0], [0.0]), 0.05) == pytest.approx([39, 39, 20])
    many = [Hypothesis("f", *pair, 0.0) for pair in itertools.combinations("abcdefgh", 2)]
    assert thresholds(many, 0.05) == pytest.approx([20 + 27 * 19] * 28)


@given(st.lists(evidence, min_size=3, max_size=3), st.integers(0, 2), st.floats(0.1, 3))
def test_more_evidence_against_one_never_makes_another_need_more(of: list[float], which: int, more: float) -> None:
    stronger = [value + more * (index == which) for index, value in enumerate(of)]
    before, after = (thresholds(hypotheses(each), 0.05) for each in (of, stronger))
    assert all(after[index] <= before[index] + 1e-9 for index in range(3) if index != which)
