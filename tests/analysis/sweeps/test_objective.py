"""Tests of ``storlab.analysis.sweeps.objective``: what it says, what it never says, and how often it errs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.sweeps.objective import Observed, bracket

LIMIT = 0.005
Draw = np.random.Generator


def steps(means: list[float], rounds: int, seed: int, noise: str = "normal", sd: float = 0.15) -> list[Observed]:
    draw = np.random.default_rng(seed)
    shapes = {
        "normal": lambda: draw.normal(size=rounds),
        "heavy": lambda: draw.standard_t(2, size=rounds),
        "bursts": lambda: draw.normal(size=rounds) * np.where(draw.random(rounds) < 0.2, 6.0, 1.0),
    }
    return [Observed(2.0**at, mean * np.exp(sd * shapes[noise]())) for at, mean in enumerate(means)]


def test_clear_steps_are_bracketed_between_neighbours() -> None:
    found = bracket(steps([0.001, 0.002, 0.003, 0.02, 0.05], 10, 1), LIMIT, True, 0.05)
    assert (found.holds, found.fails) == (3, 2)
    assert found.crossing is not None and 4 < found.crossing < 8


def test_a_limit_beyond_the_range_has_no_crossing() -> None:
    every = bracket(steps([0.001, 0.002, 0.003], 10, 1), LIMIT, True, 0.05)
    none = bracket(steps([0.01, 0.02, 0.03], 10, 1), LIMIT, True, 0.05)
    assert (every.holds, every.fails, every.crossing) == (3, 0, None)
    assert (none.holds, none.fails, none.crossing) == (0, 3, None)


def test_what_should_stay_above_is_the_mirror_image() -> None:
    found = bracket(steps([20.0, 15.0, 10.0, 2.0, 1.0], 10, 1), 5.0, False, 0.05)
    assert (found.holds, found.fails) == (3, 2)


def test_five_rounds_establish_nothing() -> None:
    found = bracket(steps([0.0001, 0.5], 5, 1, sd=0.001), LIMIT, True, 0.05)
    assert (found.holds, found.fails) == (0, 0)


def test_a_step_that_is_not_established_hides_those_behind_it() -> None:
    found = bracket(steps([0.001, LIMIT, 0.001, 0.05], 10, 1), LIMIT, True, 0.05)
    assert (found.holds, found.fails) == (1, 1)


def test_rounds_that_failed_speak_against_a_step() -> None:
    good = steps([0.001, 0.002], 10, 1)
    failing = [good[0], Observed(2.0, good[1].values[:6], failed=4)]
    assert bracket(good, LIMIT, True, 0.05).holds == 2
    assert bracket(failing, LIMIT, True, 0.05).holds == 1


def test_a_step_without_values_is_never_established() -> None:
    made = [*steps([0.001], 10, 1), Observed(2.0, np.empty(0)), Observed(4.0, np.full(10, 0.1))]
    found = bracket(made, LIMIT, True, 0.05)
    assert (found.holds, found.fails) == (1, 1)


VALUES = st.lists(st.floats(0, 1e6), min_size=0, max_size=12).map(lambda each: np.array(each, dtype=np.float64))


@given(st.lists(VALUES, min_size=1, max_size=6), st.floats(1e-6, 1e6), st.booleans())
def test_no_step_both_holds_and_fails(values: list[np.ndarray], limit: float, below: bool) -> None:
    made = [Observed(float(at), each) for at, each in enumerate(values)]
    found = bracket(made, limit, below, 0.05)
    assert found.holds + found.fails <= len(made)
    assert found.crossing is None or 0 <= found.crossing <= len(made) - 1


@given(st.floats(1e-3, 1e3), st.integers(0, 50))
def test_the_unit_does_not_matter(factor: float, seed: int) -> None:
    made = steps([0.001, 0.004, 0.006, 0.02], 12, seed)
    scaled = [Observed(step.number, step.values * factor) for step in made]
    one, other = bracket(made, LIMIT, True, 0.05), bracket(scaled, LIMIT * factor, True, 0.05)
    assert (one.holds, one.fails) == (other.holds, other.fails)


@pytest.mark.parametrize("noise", ["normal", "heavy", "bursts"])
def test_its_two_ends_are_true_at_least_as_often_as_it_says(noise: str) -> None:
    """At worst two steps lie on the limit itself, of which neither side may be established. Looked at every round."""
    means, alpha, studies = [0.004, LIMIT, LIMIT, 0.0063], 0.10, 300
    wrong = 0
    for seed in range(studies):
        every = steps(means, 16, seed, noise, sd=0.3)
        looks = ([Observed(step.number, step.values[:n]) for step in every] for n in range(5, 17))
        found = [bracket(look, LIMIT, True, alpha) for look in looks]
        wrong += any(each.holds > 1 or each.fails > 1 for each in found)
    assert wrong / studies <= alpha
