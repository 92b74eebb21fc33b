"""What can be seen where the noise is known: forecasts agree with what studies then take."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.noise_floor import EFFECTS, ROUNDS, noise_of, rounds_to_see, visible, warnings_of
from storlab.analysis.stats.signed_rank import fewest_rounds
from storlab.analysis.verdict import Rules

from .simulate import first_difference, log_ratios


def trials(sd: float, count: int, seed: int = 1) -> list[float]:
    return list(100 * np.exp(sd * np.random.default_rng(seed).normal(size=count)))


def test_the_noise_of_two_trials_is_that_of_one_times_the_root_of_two() -> None:
    assert noise_of(trials(0.05, 4000))[0].sd == pytest.approx(0.05 * math.sqrt(2), rel=0.05)


def test_trials_of_twice_the_length_have_less_noise_where_it_is_short() -> None:
    once, twice, *_ = noise_of(trials(0.05, 4000))
    assert (once.length, twice.length) == (1, 2)
    assert twice.sd == pytest.approx(once.sd / math.sqrt(2), rel=0.1)


def test_and_as_much_where_it_lasts() -> None:
    slow = np.repeat(trials(0.05, 500), 8)
    aligned = {each.length: each.sd for each in noise_of(list(np.roll(slow, 4)))}
    assert aligned[4] == pytest.approx(0.05 * math.sqrt(2), rel=0.2)


def test_few_trials_tell_nothing_of_long_ones() -> None:
    assert [each.length for each in noise_of(trials(0.05, 20))] == [1, 2]


@pytest.mark.parametrize("values", [[], [1.0] * 9, [1.0] * 20 + [0.0], [math.nan] * 20, [-1.0] * 20])
def test_what_has_no_noise_to_tell_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="trial"):
        noise_of(values)


def test_a_load_that_never_varies_sees_everything_in_the_fewest_rounds() -> None:
    (noise, *_) = noise_of([5.0] * 40)
    assert noise.sd == 0
    assert visible(noise.sd, fewest_rounds(0.05) + 1, 0.05) == 0
    assert rounds_to_see(0.01, noise.sd, 0.05) in (fewest_rounds(0.05), fewest_rounds(0.05) + 1)


@given(st.floats(1e-6, 3.0), st.sampled_from([0.05, 0.005, 0.01]))
def test_more_rounds_see_less_and_less_takes_more_rounds(sd: float, alpha: float) -> None:
    seen = [each for each in (visible(sd, n, alpha) for n in ROUNDS) if each is not None]
    assert seen == sorted(seen, reverse=True)
    needed = [math.inf if n is None else n for n in (rounds_to_see(effect, sd, alpha) for effect in EFFECTS)]
    assert needed == sorted(needed, reverse=True)


def test_fewer_rounds_than_any_verdict_takes_see_nothing() -> None:
    assert visible(0.01, fewest_rounds(0.05) - 1, 0.05) is None


@pytest.mark.parametrize("effect", [0.05, 0.1, 0.2])
def test_the_forecast_is_about_what_studies_take(effect: float) -> None:
    forecast = rounds_to_see(effect, 0.05 * math.sqrt(2), 0.05)
    values = log_ratios("normal", 300, 120, np.random.default_rng(2), effect=math.log1p(effect))
    found = first_difference(values, Rules(0.05, 0.0, "higher", 5))
    assert forecast == pytest.approx(np.median(np.where(found > 0, found, 120)), rel=0.3)


def test_a_trial_that_is_far_out_is_named() -> None:
    (warning,) = warnings_of([*trials(0.01, 20), 50.0, *trials(0.01, 3, seed=2)])
    assert warning.startswith("Trial 21 is an outlier")
