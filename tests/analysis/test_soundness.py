"""False verdicts and time to a verdict, by simulation with recorded seeds. A look after every round.

The tolerance is three standard errors of the share, so that a change of generator alone breaks nothing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from storlab.analysis.stats.anytime import Floats
from storlab.analysis.verdict import Failed, Rules, judge

from .simulate import MACHINES, first_difference, log_ratios

SEED = 20_240_501
STUDIES, ROUNDS = 1000, 100


def at_most(share: float, studies: int) -> float:
    return share + 3 * math.sqrt(share * (1 - share) / studies)


@pytest.mark.parametrize("kind", MACHINES)
def test_a_against_a_gives_a_verdict_in_five_percent_of_studies_at_most(kind: str) -> None:
    values = log_ratios(kind, STUDIES, ROUNDS, np.random.default_rng(SEED))
    found = first_difference(values, Rules(0.05, 0.0, "higher", 5))
    assert (found > 0).mean() <= at_most(0.05, STUDIES)


def test_ten_comparisons_give_no_more_false_verdicts_than_one() -> None:
    rng = np.random.default_rng(SEED + 1)
    rules = Rules(0.05 / 10, 0.0, "higher", 5)
    wrong = [first_difference(log_ratios("heavy tails", 10, ROUNDS, rng), rules).any() for _ in range(300)]
    assert np.mean(wrong) <= at_most(0.05, 300)


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "AR(1)"])
def test_levels_that_differ_by_more_than_the_margin_are_hardly_ever_called_equivalent(kind: str) -> None:
    studies = 300
    values = log_ratios(kind, studies, 60, np.random.default_rng(SEED + 2), effect=math.log(1.2) + 1e-9)
    rules = Rules(0.05, 0.2, "higher", 5)
    wrong = [any(_equivalent(row[:n], rules) for n in range(5, 61)) for row in values]
    assert np.mean(wrong) <= at_most(0.05, studies)


def _equivalent(values: Floats, rules: Rules) -> bool:
    # The cheap condition first: no interval lies within the margin whose middle does not.
    return abs(values.mean()) <= math.log1p(rules.margin) and judge(values, "a", "b", rules).verdict == "equivalent"


def test_a_planted_effect_of_ten_percent_is_found_in_noise_of_five() -> None:
    values = log_ratios("normal", 300, 60, np.random.default_rng(SEED + 3), effect=math.log(1.1))
    found = first_difference(values, Rules(0.05, 0.05, "higher", 5))
    assert (found > 0).mean() >= 0.99
    assert np.median(found) <= 15


def test_a_large_effect_needs_hardly_more_than_the_fewest_rounds() -> None:
    values = log_ratios("normal", 300, 20, np.random.default_rng(SEED + 4), effect=math.log(1.42))
    found = first_difference(values, Rules(0.05, 0.05, "higher", 5))
    assert (found > 0).all()
    assert np.median(found) <= 7


def test_a_burst_on_one_side_every_twentieth_round_does_not_hide_an_effect() -> None:
    values = log_ratios("bursts", 300, 60, np.random.default_rng(SEED + 5), effect=math.log(2))
    found = first_difference(values, Rules(0.05, 0.05, "higher", 5))
    assert (found > 0).mean() >= 0.6, "bursts of 20 times widen the interval of the mean, and rightly so"


def test_the_forecast_of_the_rounds_to_a_verdict_is_about_right() -> None:
    """Over many studies the forecast made after 8 rounds is neither dream nor nightmare."""
    values = log_ratios("normal", 300, 100, np.random.default_rng(SEED + 6), effect=math.log(1.1))
    rules = Rules(0.05, 0.0, "higher", 5)
    found = first_difference(values, rules)
    forecasts = [
        judge(row[:8], "a", "b", rules).rounds_to_decide for row, n in zip(values, found, strict=True) if n > 8
    ]
    told = [8 + more for more in forecasts if more is not None]
    assert len(told) > 0.9 * len(forecasts)
    assert 0.5 < np.median(told) / np.median(found[found > 8]) < 2


def test_who_fails_in_slow_trials_is_not_called_faster_for_the_trials_that_are_left() -> None:
    """a and b are the same but that b is given up where it is slow: what is left of it is 4 % faster.

    Judged by those rounds alone, nearly all of these studies said so.
    """
    rng = np.random.default_rng(20_261_121)
    rules = Rules(0.05, 0.0, "higher", 5)
    wrong, tempted = 0, 0
    for _ in range(100):
        a, b = 0.05 * rng.normal(size=(2, 200))
        done = b > 0
        failed = Failed(b=int((~done).sum()))
        tempted += judge((a - b)[done], "a", "b", rules).verdict == "worse"
        wrong += judge((a - b)[done], "a", "b", rules, failed).verdict == "worse"
    assert wrong == 0 and tempted > 90
