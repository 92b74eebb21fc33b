"""Comparisons: pairing, verdict, and the words for both."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.compare import Question, compare
from storlab.analysis.questions import level_names
from storlab.analysis.stats.pairing import Pairs, Side, pair, pool
from storlab.analysis.stats.signed_rank import fewest_rounds
from storlab.analysis.summary import Comparison, Undecided, UndecidedKind
from storlab.base.amounts import numbered, percent, plural
from storlab.findings.rounds import NoRound
from storlab.report.language.phrases import times
from storlab.report.language.say import said, say

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


def test_a_clear_difference_follows_the_metrics_direction_and_without_one_never_wins() -> None:
    better, worse, neither = (ratios(FASTER, word) for word in ("higher", "lower", "neither"))
    assert [found.verdict for found in (better, worse, neither)] == ["better", "worse", "undecided"]
    assert say(better.reason) == (
        "xfs is higher than ext4 in 12 of 12 rounds: 1.42× (1.30× to 1.55×); "
        "the interval excludes 1, and higher is better."
    )
    assert better.settled and better.rounds_to_decide is None
    assert neither.settled and "they differ" in say(neither.reason)


def test_what_lies_within_the_margin_is_equivalent_however_certain_and_nothing_is_without_a_margin() -> None:
    certain, hardly = 0.01 + 0.002 * np.sin(np.arange(20)), 0.01 * np.sin(np.arange(30))
    real, alike, without = ratios(certain), ratios(hardly), ratios(hardly, margin=0.0)
    assert [found.verdict for found in (real, alike, without)] == ["equivalent", "equivalent", "undecided"]
    assert real.low is not None and real.low > 1 and "though real" in say(real.reason)
    assert ratios(certain, margin=0.0).verdict == "better"
    assert "lies within the margin of ±5 %." in say(alike.reason)
    assert say(without.reason).endswith("the interval includes 1.")


def test_four_rounds_give_no_verdict_however_clear_and_five_equal_signs_could_be_chance() -> None:
    four, five = ratios([1.0, 1.01, 0.99, 1.0]), ratios([1.0, 1.01, 0.99, 1.0, 1.02])
    assert (four.verdict, five.verdict) == ("undecided", "undecided")
    assert say(four.reason) == "4 rounds done on both sides: a verdict needs at least 5."
    assert said(four.warnings) == ("Only 4 of at least 5 rounds.",)
    assert "takes at least 6 rounds" in say(five.reason) and five.rounds_to_decide == 1


def test_equal_numbers_in_every_round_are_a_verdict_and_the_last_bit_of_a_float_decides_nothing() -> None:
    twice, same = compared([4096.0] * 8, [2048.0] * 8), compared([4096.0] * 8, [4096.0] * 8)
    assert (twice.verdict, same.verdict) == ("better", "equivalent")
    assert twice.low == twice.ratio == twice.high == pytest.approx(2)
    assert "right for counts only" in said(twice.warnings)[0]
    assert say(same.reason).startswith("xfs equals ext4 in each of 8 rounds: 1.000×")
    nearly = compared([0.1 + 0.2] * 12, [0.3] * 12, margin=0.0)
    assert (nearly.ratio, nearly.verdict) == (1, "undecided")


def test_rounds_done_on_one_side_only_are_left_out_and_named_and_pooling_takes_the_mean_of_whole_rounds() -> None:
    a = Side("xfs", np.array([1, 2, 3]), np.array([1.0, 2.0, 3.0]))
    pairs = pair(a, Side("ext4", np.array([1, 3, 4, 5]), np.array([1.0, 3.0, 4.0, 5.0])))
    assert (pairs.rounds.tolist(), pairs.log_ratios.tolist()) == ([1, 3], [0, 0])
    assert said(pairs.warnings) == (
        "Left out: round 2, done for xfs but not for ext4.",
        "Left out: rounds 4 and 5, done for ext4 but not for xfs.",
    )
    first, second = (
        Pairs(np.array(n), np.array(x)) for n, x in (([1, 2, 3], [0.1, 0.2, 0.3]), ([1, 3, 4], [0.3, 0.5, 0.7]))
    )
    pooled = pool([first, second], ["4k", "64k"])
    assert (pooled.rounds.tolist(), pooled.log_ratios.tolist()) == ([1, 3], pytest.approx([0.2, 0.4]))
    assert said(pooled.warnings) == ("Left out: rounds 2 and 4, not done in every combination.",)
    assert pool([first, Pairs(problem=NoRound("a"))], ["4k", "64k"]).problem == NoRound("a")
    assert len(pool([], []).rounds) == 0


@pytest.mark.parametrize(
    ("bad", "words"),
    [(-1.0, "is 0 or negative"), (math.nan, "lacks the metric"), (math.inf, "lacks the metric")],
)
def test_a_value_without_a_logarithm_leaves_the_whole_comparison_without_a_ratio(bad: float, words: str) -> None:
    found = compared([1.0, 2.0, bad, 4.0, 5.0, 6.0], [1.0] * 6)
    assert (found.verdict, found.ratio, found.low, found.high) == ("missing", None, None, None)
    assert f"xfs {words} in round 3" in say(found.reason)
    assert found.settled and found.rounds == 6


def test_what_is_always_zero_or_has_no_common_round_says_so() -> None:
    found = compared([0.0] * 6, [0.0] * 6)
    assert (found.verdict, found.settled) == ("missing", True)
    assert say(found.reason) == (
        "xfs is 0 in every round, so there is no ratio of write.bandwidth "
        "to base a verdict on; its values are in the tables."
    )
    found = compared([], [1.0])
    assert (say(found.reason), found.settled) == ("No round was done for both xfs and ext4.", False)


def test_a_value_of_0_is_the_most_extreme_of_its_rounds_and_named() -> None:
    b = [100.0, 103, 98, 101, 99, 102, 97, 100, 104, 96]
    a = [1.3 * value for value in b]
    found = compared(a, [*b[:6], 0.0, *b[7:]])
    assert found.verdict == "better" and found.ratio == pytest.approx(1.3)
    assert found.low is not None and 1 < found.low < 1.31
    assert said(found.warnings)[0] == (
        "ext4 is 0 in round 7: a ratio with 0 counts as beyond all others, that of 0 and 0 as 1, and neither as "
        "evidence of equivalence."
    )
    lost = compared([*a[:6], 0.0, *a[7:]], b)
    assert lost.verdict == "undecided" and "1.30× (0× to 1.30×); the interval includes 1" in say(lost.reason)
    assert compared(a, [*[0.0] * 9, 0.1], "lower").verdict == "worse"
    assert say(compared([*[0.0] * 9, 0.1], b).reason).startswith("xfs is lower than ext4 in 10 of 10 rounds: 0× (0×")
    assert compared([0.0] * 10, b, "lower").verdict == "missing", (
        "of what is always 0 nobody knows whether it was measured"
    )


def test_no_zeros_are_equivalent_and_each_side_of_them_is_the_mirror_image_of_the_other() -> None:
    same = [5.0] * 30
    alike = compared([*same, 0.0], [*same, 0.0])
    assert (alike.verdict, alike.ratio, alike.settled) == ("undecided", 1, False)
    assert "zeros are no evidence of that" in say(alike.reason)
    a, b = [1.0, 0.0, 3.0, 2.0, 0.0, 4.0, 7.0, 0.0], [2.0, 5.0, 0.0, 4.0, 0.0, 5.0, 9.0, 1.0]
    there, back = compared(a, b), compared(b, a, "lower")
    assert there.verdict == back.verdict == "undecided"
    assert there.ratio is not None and back.ratio is not None and there.ratio == pytest.approx(1 / back.ratio)


def test_two_alike_that_are_often_0_are_called_different_no_more_often_than_is_allowed() -> None:
    """A third of the values are 0, and the others log-normal; a gate and the verdict are looked at after each round."""
    rng = np.random.default_rng(38)
    whole = rng.lognormal(0.0, 0.5, size=(200, 2, 14)) * (rng.random(size=(200, 2, 14)) > 1 / 3)
    false = 0
    for a, b in whole:
        looks = (compared([*a[:n]], [*b[:n]], "lower").verdict for n in range(6, 15))
        false += any(verdict in ("better", "worse", "equivalent") for verdict in looks)
    assert 0 < false <= 0.05 * 200 + 3 * (200 * 0.05 * 0.95) ** 0.5


def test_outliers_are_named_by_their_round_and_so_is_drift_without_any() -> None:
    found = ratios([0.01, 0.02, 0.0, -0.01, 0.01, 0.02, 3.0, 0.01])
    assert "Round 7 is an outlier (modified z-score above 3.5)." in said(found.warnings)
    found = ratios(np.linspace(0.5, 0.1, 20))
    assert any("The ratio falls over the rounds" in warning for warning in said(found.warnings))


@given(st.lists(st.floats(-0.1, 0.1), min_size=5, max_size=20), st.floats(1, 1e6), st.data())
def test_how_far_out_an_outlier_is_changes_no_verdict(rest: list[float], outlier: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rest)))
    near, far = (ratios(np.insert(rest, place, size), margin=0.0) for size in (1.0, outlier))
    if near.verdict == "better" or far.verdict == "better":
        assert near.verdict == far.verdict


def test_a_huge_round_among_noise_decides_nothing_and_extreme_values_overflow_nowhere() -> None:
    for size in (0.3, 1.0, 10.0, 1e3):
        assert ratios([*(0.02 * np.sin(np.arange(10) * 2.4)), size]).verdict != "better"
    found = compared([1e300] * 9 + [1e-300] * 9, [1e-300] * 9 + [1e300] * 9)
    assert found.ratio == pytest.approx(1) and found.high is not None and math.isfinite(found.high)
    with pytest.raises(ValueError, match="between 0 and 1"):
        compare(question(), Pairs(), 0.0)


@given(both_sides, positive)
def test_a_constant_changes_nothing_swapping_the_sides_inverts_all_and_no_verdict_contradicts_its_interval(
    sides: tuple[list[float], list[float]], factor: float
) -> None:
    there, back = compared(*sides), compared(sides[1], sides[0])
    a, b = ([value * factor for value in side] for side in sides)
    scaled = compared(a, b)
    assert scaled.ratio == pytest.approx(there.ratio) and scaled.low == pytest.approx(there.low)
    assert scaled.verdict == there.verdict
    opposite = {"better": "worse", "worse": "better"}
    assert back.verdict == opposite.get(there.verdict, there.verdict)
    assert there.ratio is not None and back.ratio == pytest.approx(1 / there.ratio)
    if there.low is not None and there.high is not None:
        assert back.low == pytest.approx(1 / there.high) and back.high == pytest.approx(1 / there.low)
    low, high = there.low or 0.0, there.high or math.inf
    assert there.verdict != "better" or low > 1
    assert there.verdict != "worse" or high < 1
    assert there.verdict != "equivalent" or 1 / 1.05 <= low <= high <= 1.05


def test_ranks_and_mean_have_to_agree_and_equal_rounds_take_no_evidence_from_the_others() -> None:
    """Lower in nine of ten rounds, and far higher in the tenth."""
    noise = 1e-4 * np.random.default_rng(1).normal(size=200)
    found = ratios(np.where(np.arange(200) % 10 == 9, 1.0, -0.01) + noise, margin=0.0)
    assert found.high is not None and found.high < 1
    assert found.verdict == "undecided"
    assert say(found.reason).endswith("but the mean, 1.095×, does not: a few rounds go far the other way.")
    found = ratios([0.01, 0.02, 0.0, 0.01, 0.02, 0.0, 0.0, 0.01, 0.02, 0.01, 0.0], margin=0.0)
    assert found.verdict == "better"
    assert found.low is not None and found.low > 1
    assert "(1.000× to 1.020×)" in say(found.reason)


def test_other_comparisons_without_evidence_make_the_interval_wider() -> None:
    pairs = Pairs(np.arange(1, 13), FASTER)
    alone, among = (compare(question(), pairs, 0.05, family=family) for family in (1, 20))
    assert among.low is not None and alone.low is not None and among.high is not None and alone.high is not None
    assert among.low < alone.low < alone.high < among.high
    assert alone.confidence == pytest.approx(0.95) and among.confidence == pytest.approx(0.9975)
    assert compare(question(), pairs, 0.05, family=20, threshold=20.0) == alone


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
    assert of_ten(RISING[:7], "neither") == Undecided("leaning", 7, 9)
    assert of_ten(RISING, "neither") is None


def test_rounds_are_too_few_as_long_as_none_of_them_could_be_a_verdict() -> None:
    mixed = np.array([0.2, -0.3, 0.25, -0.2, 0.3, -0.25, 0.1, -0.15, 0.05, 0.2])
    assert of_ten(mixed[:8]) == Undecided("too few rounds", 4, 9)
    found = of_ten(mixed[:9])
    assert found is not None and found.kind == "no evidence"
    equal = compare(question(), Pairs(np.arange(1, 9), np.zeros(8)), 0.05, family=10)
    assert equal.verdict == "undecided" and equal.undecided is not None and equal.undecided.fewest == 9
    assert compare(question(), Pairs(np.arange(1, 10), np.zeros(9)), 0.05, family=10).verdict == "equivalent"


def test_nothing_leans_against_its_mean_or_against_rounds_that_failed() -> None:
    for found, kind in ((of_ten([*RISING[:8], -40.0]), "no evidence"), (of_ten(RISING[:7], a=1), "too few rounds")):
        assert found is not None and found.kind == kind
    assert of_ten(RISING[:7]) == Undecided("leaning", 7, 9)
    assert of_ten(RISING[:7], b=1) == Undecided("leaning", 7, 9), "who failed is not who leads"


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


def test_ratios_have_as_many_decimals_as_they_need_and_percentages_show_what_is_missing_to_a_hundred() -> None:
    for low, ratio, high, text in (
        (1.31, 1.42, 1.54, "1.42× (1.31× to 1.54×)"),
        (0.998, 1.004, 1.011, "1.004× (0.998× to 1.011×)"),
        (1.001, 1.12, 1.25, "1.120× (1.001× to 1.250×)"),
        (1.0003, 1.0004, 1.0005, "1.0004× (1.0003× to 1.0005×)"),
        (0.94, 1.0, 1.0, "1.000× (0.940× to 1.000×)"),
        (0.0012, 0.0015, 0.0019, "0.0015× (0.0012× to 0.0019×)"),
        (95.0, 1234.4, 16000.0, "1234× (95.00× to 16000×)"),
        (1e-300, 1.0, 1e300, "1.000× (1e-300× to 1e+300×)"),
    ):
        assert times(low, ratio, high) == text
    shares = [0.05, 0.95, 0.995, 1 - 0.05 / 3, 1 - 0.05 / 1000, 0.025, 0.0, 1.0, 2.0]
    assert [*map(percent, shares)] == [
        "5 %", "95 %", "99.5 %", "98.3 %", "99.995 %", "2.5 %", "0 %", "100 %", "200 %"
    ]  # fmt: skip


def test_lists_numbers_and_levels_read_as_in_a_sentence() -> None:
    assert numbered("round", [3]) == "round 3"
    assert numbered("round", [3, 5]) == "rounds 3 and 5"
    assert numbered("round", [1, 2, 7]) == "rounds 1, 2 and 7"
    assert numbered("round", range(1, 12)) == "rounds 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"
    assert (plural(1, "round"), plural(2, "round"), plural(0, "round")) == ("1 round", "2 rounds", "0 rounds")
    assert level_names({"bs": "4k", "media": "ssd"}) == "bs=4k, media=ssd"
