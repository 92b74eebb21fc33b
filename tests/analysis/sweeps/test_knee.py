"""Tests of ``storlab.analysis.sweeps.knee``."""

from __future__ import annotations

import numpy as np
import pytest

from storlab.analysis.sweeps.knee import locate, power

DEPTHS = np.array([1, 2, 4, 8, 16, 32], dtype=np.float64)


def closed_loop(most: float, seed: int = 1, rounds: int = 8, sd: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    """A device that serves ``most`` times what one request in flight gets, and latencies by Little's law."""
    draw = np.random.default_rng(seed)
    rates = 1000 * np.minimum(DEPTHS, most) * np.exp(sd * draw.normal(size=(rounds, len(DEPTHS))))
    return rates, DEPTHS / rates


@pytest.mark.parametrize(("most", "index"), [(4, 2), (8, 3), (16, 4)])
def test_the_knee_is_where_a_device_is_busy_and_nobody_waits(most: float, index: int) -> None:
    found = locate(power(*closed_loop(most)), 0.95)
    assert found.index == index
    assert found.low <= index <= found.high <= found.low + 2


def test_neither_axis_nor_unit_moves_the_knee() -> None:
    rates, times = closed_loop(8)
    assert locate(power(rates * 7, times * 1e6), 0.95) == locate(power(rates, times), 0.95)


def test_more_noise_makes_the_knee_less_certain() -> None:
    quiet, noisy = (locate(power(*closed_loop(8, sd=sd)), 0.95) for sd in (0.02, 0.5))
    assert noisy.high - noisy.low > quiet.high - quiet.low


def test_one_round_does_not_say_how_certain_it_is() -> None:
    found = locate(power(*closed_loop(8, rounds=1)), 0.95)
    assert (found.low, found.high) == (0, len(DEPTHS) - 1)


def test_a_device_that_is_never_full_has_the_most_power_at_the_end() -> None:
    assert locate(power(*closed_loop(1000)), 0.95).index == len(DEPTHS) - 1


def test_the_levels_around_the_knee_hold_it_in_most_studies() -> None:
    """Between two depths, 5.6 of 4 and 8: either may be nearest, and the band has to have the truly best."""
    best = int((np.minimum(DEPTHS, 5.5) ** 2 / DEPTHS).argmax())
    found = [locate(power(*closed_loop(5.5, seed, rounds=12, sd=0.1)), 0.95) for seed in range(150)]
    assert np.mean([each.low <= best <= each.high for each in found]) >= 0.9
