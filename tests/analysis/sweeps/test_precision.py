"""Tests of ``storlab.analysis.sweeps.precision``, and of the rule that stops a study with nothing but sweeps."""

from __future__ import annotations

import numpy as np

from storlab.analysis.stats.anytime import mean_interval
from storlab.analysis.stopping import Continue, Rule, Stop, decide
from storlab.analysis.summary import Estimate, Summary
from storlab.analysis.sweeps.precision import open_points, relative_width


def point(cell: int, rounds: int, cv: float, mean: float = 100.0, metric: str = "iops") -> Estimate:
    """Rounds of exactly this spread."""
    values = np.where(np.arange(rounds) % 2, mean, -mean) if rounds % 2 == 0 else np.linspace(-1, 1, rounds)
    values = mean + cv * mean * (values - values.mean()) / values.std(ddof=1)
    low, high = (end for end in (mean_interval(values, 0.05).low, mean_interval(values, 0.05).high))
    of = {"qd": str(cell)}
    return Estimate(cell, of, "load", metric, "1/s", "higher", rounds, mean, mean, cv * mean, cv, low, high, 0.95)


def summary(rounds: int, *points: Estimate) -> Summary:
    return Summary("A sweep", "iops", 0.95, rounds, "", estimates=points)


RULE = Rule("points", min_rounds=5, max_rounds=30, precision=0.10)


def test_a_sweep_stops_once_every_point_is_known_well_enough() -> None:
    found = decide(summary(6, point(1, 6, 0.01), point(2, 6, 0.02)), RULE)
    assert found == Stop("Stopped after 6 rounds: 2 points of iops known to ±10 % or better.")


def test_a_point_that_is_not_known_well_keeps_it_going_with_a_forecast_that_comes_true() -> None:
    found = decide(summary(6, point(1, 6, 0.01), point(2, 6, 0.10)), RULE)
    assert isinstance(found, Continue) and found.remaining is not None
    assert found.reason.startswith("After 6 rounds: 1 of 2 points not yet known to ±10 %; about ")
    then = 6 + found.remaining
    assert not open_points(summary(then, point(2, then, 0.10)), 0.10)
    assert open_points(summary(then - 1, point(2, then - 1, 0.10)), 0.10)


def test_other_metrics_do_not_keep_a_sweep_going() -> None:
    found = decide(summary(6, point(1, 6, 0.01), point(1, 6, 0.5, metric="latency.p99")), RULE)
    assert isinstance(found, Stop)


def test_the_most_rounds_end_a_sweep() -> None:
    found = decide(summary(30, point(1, 30, 0.9)), RULE)
    assert found == Stop(
        "Stopped after 30 rounds, the most that the study allows: 1 of 1 point not yet known to ±10 %."
    )


def test_a_point_that_is_always_zero_is_known() -> None:
    zero = Estimate(1, {}, "load", "iops", "1/s", "higher", 5, 0.0, 0.0, 0.0, None, 0.0, 0.0, 0.95)
    assert relative_width(zero) is None and not open_points(summary(5, zero), 0.1)
