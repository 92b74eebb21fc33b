"""Tests of comparisons: ``compare``, ``pairing`` and ``verdict``."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.compare import Question, compare
from storlab.analysis.stats.pairing import Pairs, Side, pair, pool
from storlab.analysis.stats.signed_rank import fewest_rounds
from storlab.analysis.summary import Comparison, Undecided, UndecidedKind

positive = st.floats(1e-3, 1e3)
both_sides = st.integers(5, 25).flatmap(
    lambda n: st.tuples(st.lists(positive, min_size=n, max_size=n), st.lists(positive, min_size=n, max_size=n))
)


def question(better: str = "higher", margin: float = 0.05) -> Question:
    return Question("fs", "xfs", "ext4", {}, False, "load", "write.bandwidth", "B/s", better, margin)


def values(name: str, numbers: list[float] | np.ndarray) -> Side:
    return Side(name, np.arange(1, len(numbers) + 1), np.array(numbers, dtype=np.float64))


def compared(a: list[float], b: list[float], better: str = "higher", margin: float = 0.05) -> Comparison:
    return compare(question(better, margin), pair(values("xfs", a), values("ext4", b)), 0.05)


def ratios(numbers: np.ndarray | list[float], better: str = "higher", margin: float = 0.05) -> Comparison:
    return compare(question(better, margin), Pairs(np.arange(1, len(numbers) + 1), np.array(numbers)), 0.05)


FASTER = np.log(1.42) + 0.08 * np.array([0.9, -1.1, 0.4, -0.3, 1.3, -0.8, 0.1, -1.4, 0.7, -0.2, 0.5, -0.1])


def test_a_clear_difference_is_better_where_higher_is_better_and_worse_where_lower_is() -> None:
    better, worse = ratios(FASTER), ratios(FASTER, "lower")
    assert (better.verdict, worse.verdict) == ("better", "worse")
    assert better.reason == (
        "xfs is higher than ext4 in 12 of 12 rounds: 1.42× (1.30× to 1.55×); "
        "the interval excludes 1, and higher is better."
    )
    assert better.settled and better.rounds_to_decide is None


def test_a_metric_without_a_direction_differs_but_never_wins() -> None:
    found = ratios(FASTER, "neither")
    assert found.verdict == "undecided"
    assert "they differ" in found.reason
    assert found.settled


def test_a_difference_within_the_margin_is_equivalent_even_where_it_is_certain() -> None:
    certain = 0.01 + 0.002 * np.sin(np.arange(20))
    found = ratios(certain)
    assert found.verdict == "equivalent"
    assert found.low is not None and found.low > 1
    assert "though real" in found.reason
    assert ratios(certain, margin=0.0).verdict == "better"


def test_levels_that_hardly_differ_are_equivalent_and_not_merely_undecided() -> None:
    found = ratios(0.01 * np.sin(np.arange(30)))
    assert found.verdict == "equivalent"
    assert "lies within the margin of ±5 %." in found.reason


def test_nothing_is_equivalent_without_a_margin() -> None:
    found = ratios(0.01 * np.sin(np.arange(30)), margin=0.0)
    assert found.verdict == "undecided"
    assert found.reason.endswith("the interval includes 1.")


def test_four_rounds_give_no_verdict_however_clear_they_are() -> None:
    found = ratios([1.0, 1.01, 0.99, 1.0])
    assert found.verdict == "undecided"
    assert found.reason == "4 rounds done on both sides: a verdict needs at least 5."
    assert found.warnings == ("Only 4 of at least 5 rounds.",)


def test_five_equal_signs_could_be_chance_so_they_give_no_verdict_yet() -> None:
    found = ratios([1.0, 1.01, 0.99, 1.0, 1.02])
    assert found.verdict == "undecided"
    assert "takes at least 6 rounds" in found.reason
    assert found.rounds_to_decide == 1


def test_equal_counts_in_every_round_become_a_verdict_with_a_warning() -> None:
    found = compared([4096.0] * 8, [2048.0] * 8)
    assert found.verdict == "better"
    assert found.low == found.ratio == found.high == pytest.approx(2)
    assert "right for counts only" in found.warnings[0]


def test_identical_values_are_equivalent() -> None:
    found = compared([4096.0] * 8, [4096.0] * 8)
    assert found.verdict == "equivalent"
    assert found.reason.startswith("xfs equals ext4 in each of 8 rounds: 1.000×")


def test_differences_in_the_last_bit_of_a_float_decide_nothing() -> None:
    found = compared([0.1 + 0.2] * 12, [0.3] * 12, margin=0.0)
    assert found.ratio == 1
    assert found.verdict == "undecided"


def test_rounds_done_on_one_side_only_are_left_out_and_named() -> None:
    a = Side("xfs", np.array([1, 2, 3]), np.array([1.0, 2.0, 3.0]))
    b = Side("ext4", np.array([1, 3, 4, 5]), np.array([1.0, 3.0, 4.0, 5.0]))
    pairs = pair(a, b)
    assert pairs.rounds.tolist() == [1, 3]
    assert pairs.log_ratios.tolist() == [0, 0]
    assert pairs.warnings == (
        "Left out: round 2, done for xfs but not for ext4.",
        "Left out: rounds 4 and 5, done for ext4 but not for xfs.",
    )


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (0.0, "xfs is 0 in round 3"),
        (-1.0, "xfs is 0 or negative in round 3"),
        (math.nan, "xfs lacks the metric in round 3"),
        (math.inf, "xfs lacks the metric in round 3"),
    ],
)
def test_a_value_without_a_logarithm_leaves_the_whole_comparison_without_a_ratio(bad: float, words: str) -> None:
    found = compared([1.0, 2.0, bad, 4.0, 5.0, 6.0], [1.0] * 6)
    assert (found.verdict, found.ratio, found.low, found.high) == ("undecided", None, None, None)
    assert words in found.reason
    assert found.settled and found.rounds == 6


def test_a_count_that_is_always_zero_says_so() -> None:
    assert compared([1.0] * 6, [0.0] * 6).reason == (
        "ext4 is 0 in every round, so there is no ratio of write.bandwidth "
        "to base a verdict on; its values are in the tables."
    )


def test_no_common_round_is_undecided_and_open() -> None:
    found = compare(question(), pair(values("xfs", []), values("ext4", [1.0])), 0.05)
    assert found.reason == "No round was done for both xfs and ext4."
    assert not found.settled


def test_pooling_takes_the_mean_of_each_round_and_only_whole_rounds() -> None:
    first = Pairs(np.array([1, 2, 3]), np.array([0.1, 0.2, 0.3]))
    second = Pairs(np.array([1, 3, 4]), np.array([0.3, 0.5, 0.7]))
    pooled = pool([first, second], ["4k", "64k"])
    assert pooled.rounds.tolist() == [1, 3]
    assert pooled.log_ratios.tolist() == pytest.approx([0.2, 0.4])
    assert pooled.warnings == ("Left out: rounds 2 and 4, not done in every combination.",)
    assert pool([first, Pairs(problem="None.")], ["4k", "64k"]).problem == "None."
    assert len(pool([], []).rounds) == 0


def test_an_outlier_is_named_by_its_round() -> None:
    found = ratios([0.01, 0.02, 0.0, -0.01, 0.01, 0.02, 3.0, 0.01])
    assert "Round 7 is an outlier (modified z-score above 3.5)." in found.warnings


def test_drift_of_the_ratio_is_named_though_there_is_no_outlier() -> None:
    found = ratios(np.linspace(0.5, 0.1, 20))
    assert any("The ratio falls over the rounds" in warning for warning in found.warnings)


@given(st.lists(st.floats(-0.1, 0.1), min_size=5, max_size=20), st.floats(1, 1e6), st.data())
def test_how_far_out_an_outlier_is_changes_no_verdict(rest: list[float], outlier: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rest)))
    near, far = (ratios(np.insert(rest, place, size), margin=0.0) for size in (1.0, outlier))
    if near.verdict == "better" or far.verdict == "better":
        assert near.verdict == far.verdict


@pytest.mark.parametrize("size", [0.3, 1.0, 10.0, 1e3])
def test_ten_rounds_of_noise_and_a_huge_one_are_undecided(size: float) -> None:
    noise = 0.02 * np.sin(np.arange(10) * 2.4)
    assert ratios([*noise, size]).verdict != "better"


@given(both_sides, positive)
def test_multiplying_both_sides_by_a_constant_changes_nothing(
    sides: tuple[list[float], list[float]], factor: float
) -> None:
    a, b = np.array(sides[0]), np.array(sides[1])
    plain, scaled = compared(list(a), list(b)), compared(list(a * factor), list(b * factor))
    assert scaled.ratio == pytest.approx(plain.ratio)
    assert scaled.low == pytest.approx(plain.low)
    assert scaled.verdict == plain.verdict


@given(both_sides)
def test_swapping_the_sides_inverts_the_ratio_the_interval_and_the_verdict(
    sides: tuple[list[float], list[float]],
) -> None:
    there, back = compared(*sides), compared(sides[1], sides[0])
    opposite = {"better": "worse", "worse": "better"}
    assert back.verdict == opposite.get(there.verdict, there.verdict)
    assert there.ratio is not None and back.ratio == pytest.approx(1 / there.ratio)
    if there.low is not None and there.high is not None:
        assert back.low == pytest.approx(1 / there.high)
        assert back.high == pytest.approx(1 / there.low)


@given(both_sides)
def test_no_verdict_contradicts_its_interval(sides: tuple[list[float], list[float]]) -> None:
    found = compared(*sides)
    if found.verdict == "better":
        assert found.low is not None and found.low > 1
    elif found.verdict == "worse":
        assert found.high is not None and found.high < 1
    elif found.verdict == "equivalent":
        assert found.low is not None and found.high is not None
        assert 1 / 1.05 <= found.low <= found.high <= 1.05


def test_extreme_values_overflow_nowhere() -> None:
    found = compared([1e300] * 9 + [1e-300] * 9, [1e-300] * 9 + [1e300] * 9)
    assert found.ratio == pytest.approx(1)
    assert found.high is not None and math.isfinite(found.high)


def test_an_alpha_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        compare(question(), Pairs(), 0.0)


def test_rounds_that_go_far_the_other_way_keep_ranks_from_a_verdict_that_the_mean_is_against() -> None:
    """Lower in nine of ten rounds, and far higher in the tenth."""
    noise = 1e-4 * np.random.default_rng(1).normal(size=200)
    found = ratios(np.where(np.arange(200) % 10 == 9, 1.0, -0.01) + noise, margin=0.0)
    assert found.high is not None and found.high < 1
    assert found.verdict == "undecided"
    assert found.reason.endswith("but the mean, 1.095×, does not: a few rounds go far the other way.")


def test_other_comparisons_without_evidence_make_the_interval_wider() -> None:
    pairs = Pairs(np.arange(1, 13), FASTER)
    alone, among = (compare(question(), pairs, 0.05, family=family) for family in (1, 20))
    assert among.low is not None and alone.low is not None and among.high is not None and alone.high is not None
    assert among.low < alone.low < alone.high < among.high
    assert alone.confidence == pytest.approx(0.95) and among.confidence == pytest.approx(0.9975)
    assert compare(question(), pairs, 0.05, family=20, threshold=20.0) == alone


def test_rounds_that_are_equal_take_no_evidence_from_those_that_are_not() -> None:
    found = ratios([0.01, 0.02, 0.0, 0.01, 0.02, 0.0, 0.0, 0.01, 0.02, 0.01, 0.0], margin=0.0)
    assert found.verdict == "better"
    assert found.low is not None and found.low > 1
    assert "(1.000× to 1.020×)" in found.reason


RISING = np.linspace(0.4, 0.7, 12)  # each round stands out more than those before: the most evidence there can be


def of_ten(logs: list[float] | np.ndarray, better: str = "higher", *, a: int = 0, b: int = 0) -> Undecided | None:
    """What one of ten comparisons lacks of which the others show nothing."""
    after = len(logs) + 1  # the rounds in which only a failed, or only b
    alone_a, alone_b = frozenset(range(after, after + a)), frozenset(range(after, after + b))
    pairs = Pairs(np.arange(1, after), np.asarray(logs, dtype=np.float64), failed_a=alone_a, failed_b=alone_b)
    found = compare(question(better), pairs, 0.05, family=10)
    assert (found.undecided is None) == (found.verdict != "undecided" or found.settled)
    return found.undecided


def test_a_clear_direction_is_leaning_from_the_round_on_that_would_decide_one_comparison_alone() -> None:
    assert fewest_rounds(0.05) == 6
    kinds: dict[int, UndecidedKind] = {4: "too few rounds", 5: "too few rounds", 6: "leaning", 8: "leaning"}
    for rounds, kind in kinds.items():
        assert of_ten(RISING[:rounds]) == Undecided(kind, rounds, 9), rounds
        assert of_ten(-RISING[:rounds]) == Undecided(kind, rounds, 9), rounds
    assert of_ten(RISING[:10]) is None, "decided"


def test_rounds_are_too_few_as_long_as_none_of_them_could_be_a_verdict() -> None:
    mixed = np.array([0.2, -0.3, 0.25, -0.2, 0.3, -0.25, 0.1, -0.15, 0.05, 0.2])
    assert of_ten(mixed[:8]) == Undecided("too few rounds", 4, 9)
    found = of_ten(mixed[:9])
    assert found is not None and found.kind == "no evidence"
    equal = compare(question(), Pairs(np.arange(1, 9), np.zeros(8)), 0.05, family=10)
    assert equal.verdict == "undecided" and equal.undecided is not None and equal.undecided.fewest == 9
    assert compare(question(), Pairs(np.arange(1, 10), np.zeros(9)), 0.05, family=10).verdict == "equivalent"


def test_nothing_leans_against_its_mean_or_against_rounds_that_failed() -> None:
    slow = np.array([*RISING[:8], -40.0])
    found = of_ten(slow)
    assert found is not None and found.kind == "no evidence"
    assert of_ten(RISING[:7]) == Undecided("leaning", 7, 9)
    assert of_ten(RISING[:7], b=1) == Undecided("leaning", 7, 9), "who failed is not who leads"
    found = of_ten(RISING[:7], a=1)
    assert found is not None and found.kind == "too few rounds"


def test_a_metric_without_a_direction_leans_as_well_until_it_differs() -> None:
    assert of_ten(RISING[:7], "neither") == Undecided("leaning", 7, 9)
    assert of_ten(RISING, "neither") is None


@given(logs=st.lists(st.floats(-2, 2), min_size=1, max_size=16), family=st.integers(1, 20))
def test_only_what_is_undecided_has_a_kind_and_each_keeps_to_its_definition(logs: list[float], family: int) -> None:
    values = np.array(logs)
    found = compare(question(), Pairs(np.arange(1, len(logs) + 1), values), 0.05, family=family)
    assert (found.undecided is None) == (found.verdict != "undecided")
    if found.undecided is not None:
        alone = compare(question(margin=0.0), Pairs(np.arange(1, len(logs) + 1), values), 0.05)
        if alone.verdict != "undecided":
            assert found.undecided.kind == "leaning"
        elif alone.low is not None and found.undecided.kind == "leaning":
            assert not alone.low <= 1 <= (alone.high or 0), "or there is no interval yet"
        if found.undecided.kind == "too few rounds":
            assert len(logs) < found.undecided.fewest
