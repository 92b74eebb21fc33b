"""What a study can decide, said before it runs: never later than its verdicts, and with a warning where it can't."""

from __future__ import annotations

import numpy as np
import pytest

from storlab.analysis.compare import Question, compare
from storlab.analysis.foresight import Foresight, TypicalNoise, foresee
from storlab.analysis.questions import Planned
from storlab.analysis.stats.pairing import Pairs

NOISE = TypicalNoise(0.05, "(an assumption)")


def planned(count: int, margin: float = 0.05) -> list[Planned]:
    """Comparisons that are no relatives."""
    questions = (Question("fs", "a", "b", {}, False, "load", f"m{i}", "s", "lower", margin) for i in range(count))
    return [Planned(question, ((1, 2),)) for question in questions]


def foreseen(count: int, most: int = 30, margin: float = 0.05) -> Foresight:
    found = foresee(planned(count, margin), 0.95, 5, most, NOISE)
    assert found is not None
    return found


@pytest.mark.parametrize("count", [1, 3, 10, 30])
def test_no_verdict_is_possible_before_the_round_that_is_named(count: int) -> None:
    fewest = foreseen(count).alone
    question = planned(1)[0].question
    for logs in (np.linspace(1, 2, fewest), np.zeros(fewest)):  # the most evidence of a difference, and of none
        sooner = compare(question, Pairs(np.arange(1, fewest), logs[:-1]), 0.05, family=count)
        assert sooner.verdict == "undecided"


def test_one_comparison_needs_nobody_else() -> None:
    assert foreseen(1).earliest() == "after 5 rounds at the earliest", "of equal numbers"
    found = foreseen(1, margin=0.0)
    assert found.fewest == found.alone == 6


def test_of_several_the_earliest_depends_on_the_others() -> None:
    found = foreseen(10, margin=0.0)
    assert (found.fewest, found.alone) == (6, 10)
    assert found.earliest() == (
        "after 6 rounds at the earliest, where all 10 comparisons are clear; "
        "after 10 where one is clear and the others show nothing"
    )


def test_it_warns_exactly_where_the_rounds_are_too_few() -> None:
    assert "can't decide anything: it stops after 5 rounds" in foreseen(12, most=5).warning()
    assert foreseen(1, most=5).warning() == "" and "at least 6" in foreseen(1, most=5, margin=0.0).warning()
    assert "there is only 1 round" in foreseen(1, most=1).warning()
    alone = foreseen(12).alone
    assert alone > 6
    for most in (6, alone - 1):
        assert f"on one of 12 comparisons takes at least {alone}" in foreseen(12, most=most).warning()
    assert foreseen(12, most=alone).warning() == ""
    assert foreseen(1, most=6).warning() == ""


def test_differences_are_forecast_for_the_margin_and_for_ten_percent() -> None:
    found = foreseen(1, most=10)
    assert [by for by, _ in found.rounds] == [0.05, 0.10]
    (_, five), (_, ten) = found.rounds
    assert five is not None and ten is not None and 6 <= ten < five
    assert found.expected() == (
        f"a difference of 5 % in about {five} rounds, of 10 % in about {ten} rounds (it stops after 10), "
        "if ratios vary by 5 % (an assumption)"
    )
    noisy = foresee(planned(1, 0.001), 0.95, 5, 30, TypicalNoise(1.0, "much"))
    assert noisy is not None and "of 0.1 % in more rounds than is practical" in noisy.expected()


def test_what_this_machine_can_not_compare_is_not_counted() -> None:
    never = Planned(planned(1)[0].question, ((1, 2),), problem="b is unsupported.", counted=False)
    assert foresee([never], 0.95, 5, 30, NOISE) is None
    found = foresee([*planned(1), never], 0.95, 5, 30, NOISE)
    assert found is not None and found.comparisons == 1
