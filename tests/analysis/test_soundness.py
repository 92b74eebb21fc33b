"""False verdicts and time to a verdict, by simulation with recorded seeds. A look after every round.

How often there is a verdict on A against A is computed in ``test_documentation.py``, as the page says it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from storlab.analysis.verdict import Failed, Rules, judge

from .simulate import at_most, ever, first_difference, log_ratios

SEED = 20_240_501


def test_ten_comparisons_give_no_more_false_verdicts_than_one() -> None:
    values = log_ratios("heavy tails", 10 * 300, 100, np.random.default_rng(SEED + 1))
    found = first_difference(values, Rules(0.05 / 10, 0.0, "higher", 5)).reshape(300, 10)
    assert found.any(axis=1).mean() <= at_most(0.05, 300)


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "AR(1)"])
def test_levels_that_differ_by_more_than_the_margin_are_hardly_ever_called_equivalent(kind: str) -> None:
    values = log_ratios(kind, 300, 60, np.random.default_rng(SEED + 2), effect=math.log(1.2) + 1e-9)
    assert ever({"equivalent"}, values, Rules(0.05, 0.2, "higher", 5)).mean() <= at_most(0.05, 300)


@pytest.mark.parametrize(
    ("kind", "rounds", "seed", "effect", "share", "median"),
    [
        pytest.param("normal", 60, 3, 1.1, 0.99, 15, id="10 % in noise of 5 %"),
        pytest.param("normal", 20, 4, 1.42, 1.0, 7, id="a large effect in hardly more than the fewest rounds"),
        pytest.param("bursts", 60, 5, 2.0, 0.6, 60, id="bursts widen the interval of the mean, and rightly so"),
    ],
)  # fmt: skip
def test_a_planted_effect_is_found(kind: str, rounds: int, seed: int, effect: float, share: float, median: int) -> None:
    values = log_ratios(kind, 300, rounds, np.random.default_rng(SEED + seed), effect=math.log(effect))
    found = first_difference(values, Rules(0.05, 0.05, "higher", 5))
    assert (found > 0).mean() >= share and np.median(found) <= median


def test_the_forecast_of_the_rounds_to_a_verdict_is_about_right() -> None:
    """Over many studies the forecast made after 8 rounds is neither dream nor nightmare."""
    values = log_ratios("normal", 300, 100, np.random.default_rng(SEED + 6), effect=math.log(1.1))
    rules = Rules(0.05, 0.0, "higher", 5)
    found = first_difference(values, rules)
    forecasts = [judge(row[:8], "a", "b", rules).rounds_to_decide for row in values[found > 8]]
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
        tempted += judge((a - b)[done], "a", "b", rules).verdict == "worse"
        wrong += judge((a - b)[done], "a", "b", rules, Failed(b=int((~done).sum()))).verdict == "worse"
    assert wrong == 0 and tempted > 90
