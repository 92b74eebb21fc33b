"""What a study can decide, said before it runs, and what can be seen where the noise is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.compare import Question, compare
from storlab.analysis.foresight import Foresight, TypicalNoise, foresee
from storlab.analysis.noise_floor import EFFECTS, ROUNDS, noise_of, rounds_to_see, visible, warnings_of
from storlab.analysis.questions import Planned
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import fewest_rounds
from storlab.analysis.verdict import Rules

from .simulate import first_difference, log_ratios

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


def test_one_comparison_needs_nobody_else_and_of_several_the_earliest_depends_on_the_others() -> None:
    assert foreseen(1).earliest() == "after 5 rounds at the earliest", "of equal numbers"
    found = foreseen(1, margin=0.0)
    assert found.fewest == found.alone == 6
    found = foreseen(10, margin=0.0)
    assert (found.fewest, found.alone) == (6, 10)
    assert found.earliest() == (
        "after 6 rounds at the earliest, where all 10 comparisons are clear; "
        "after 10 where one is clear and the others show nothing"
    )


def test_it_warns_exactly_where_rounds_are_too_few_and_what_cant_be_compared_is_not_counted() -> None:
    assert "can't decide anything: it stops after 5 rounds" in foreseen(12, most=5).warning()
    assert foreseen(1, most=5).warning() == "" and "at least 6" in foreseen(1, most=5, margin=0.0).warning()
    assert "there is only 1 round" in foreseen(1, most=1).warning()
    alone = foreseen(12).alone
    assert alone > 6
    for most in (6, alone - 1):
        assert f"on one of 12 comparisons takes at least {alone}" in foreseen(12, most=most).warning()
    assert foreseen(12, most=alone).warning() == ""
    assert foreseen(1, most=6).warning() == ""
    never = Planned(planned(1)[0].question, ((1, 2),), problem="b is unsupported.", counted=False)
    assert foresee([never], 0.95, 5, 30, NOISE) is None
    found = foresee([*planned(1), never], 0.95, 5, 30, NOISE)
    assert found is not None and found.comparisons == 1


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


def trials(sd: float, count: int, seed: int = 1) -> list[float]:
    return list(100 * np.exp(sd * np.random.default_rng(seed).normal(size=count)))


def test_the_noise_of_two_trials_is_that_of_one_times_the_root_of_two_and_averages_out_where_it_is_short() -> None:
    assert noise_of(trials(0.05, 4000))[0].sd == pytest.approx(0.05 * math.sqrt(2), rel=0.05)
    once, twice, *_ = noise_of(trials(0.05, 4000))
    assert (once.length, twice.length) == (1, 2)
    assert twice.sd == pytest.approx(once.sd / math.sqrt(2), rel=0.1)
    slow = np.repeat(trials(0.05, 500), 8)
    aligned = {each.length: each.sd for each in noise_of(list(np.roll(slow, 4)))}
    assert aligned[4] == pytest.approx(0.05 * math.sqrt(2), rel=0.2)
    assert [each.length for each in noise_of(trials(0.05, 20))] == [1, 2]


@pytest.mark.parametrize("values", [[], [1.0] * 9, [1.0] * 20 + [0.0], [math.nan] * 20, [-1.0] * 20])
def test_what_has_no_noise_to_tell_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="trial"):
        noise_of(values)


def test_a_load_that_never_varies_sees_everything_soon_and_a_trial_far_out_is_named() -> None:
    (noise, *_) = noise_of([5.0] * 40)
    assert noise.sd == 0
    assert visible(noise.sd, fewest_rounds(0.05) + 1, 0.05) == 0
    assert rounds_to_see(0.01, noise.sd, 0.05) in (fewest_rounds(0.05), fewest_rounds(0.05) + 1)
    assert visible(0.01, fewest_rounds(0.05) - 1, 0.05) is None
    (warning,) = warnings_of([*trials(0.01, 20), 50.0, *trials(0.01, 3, seed=2)])
    assert warning.startswith("Trial 21 is an outlier")


@given(st.floats(1e-6, 3.0), st.sampled_from([0.05, 0.005, 0.01]))
def test_more_rounds_see_less_and_less_takes_more_rounds(sd: float, alpha: float) -> None:
    seen = [each for each in (visible(sd, n, alpha) for n in ROUNDS) if each is not None]
    assert seen == sorted(seen, reverse=True)
    needed = [math.inf if n is None else n for n in (rounds_to_see(effect, sd, alpha) for effect in EFFECTS)]
    assert needed == sorted(needed, reverse=True)


@pytest.mark.parametrize("effect", [0.05, 0.1, 0.2])
def test_the_forecast_is_about_what_studies_take(effect: float) -> None:
    forecast = rounds_to_see(effect, 0.05 * math.sqrt(2), 0.05)
    values = log_ratios("normal", 300, 120, np.random.default_rng(2), effect=math.log1p(effect))
    found = first_difference(values, Rules(0.05, 0.0, "higher", 5))
    assert forecast == pytest.approx(np.median(np.where(found > 0, found, 120)), rel=0.3)
