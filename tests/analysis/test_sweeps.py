"""Sweeps: their lines, knees and objectives, what these never say, and how often they err."""

from __future__ import annotations

from collections.abc import Container
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.design import Design, ObjectiveSpec
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.analysis.sweeps import Located, Observed, bracket, locate, power
from storlab.findings.answers import NotIndependent, NotSteady
from storlab.metrics import Declarations
from storlab.report.language.say import say
from storlab.report.model.factors import knee_sentence, objective_sentence
from storlab.tools.fio.declared import declared

from .simulate import metric_frame, trial_frame

DEPTHS = ("1", "2", "4", "8", "16", "32")


def sweep(
    most: float = 8,
    rounds: int = 8,
    limit: str = "5ms",
    jobs: tuple[str, ...] = ("1", "2", "4"),
    silent: Container[tuple[str, int]] = (),
    loading: int = 1,
    rises: float = 0.0,
) -> Summary:
    """fio in a closed loop: iops, mean latency and p99 of every depth and number of jobs."""
    draw = np.random.default_rng(4)
    cells = [(at, {"jobs": j, "iodepth": d}) for at, (j, d) in enumerate(product(jobs, DEPTHS), start=1)]
    places = [(number, *cell) for number, cell in enumerate(product(range(1, rounds + 1), cells), start=1)]
    rows = []
    for trial, n, (cell, levels) in places:
        depth = float(levels["iodepth"]) * float(levels["jobs"])
        iops = 1000 * min(depth, most) * float(np.exp(0.03 * draw.normal() + rises * n))
        values = (("iops", iops, "1/s", "higher"), ("latency.mean", depth / iops, "s", "lower"))
        tail = () if (levels["iodepth"], n) in silent else (("latency.p99", 3 * depth / iops, "s", "lower"),)
        rows += [(trial, n, cell, None, "load", None, *each, "sum") for each in (*values, *tail)]
    design = Design(
        "A sweep",
        "iops",
        {"jobs": jobs, "iodepth": DEPTHS},
        tuple(cells),
        comparisons=(),
        declared=Declarations.union([("load", declared())]),
        sweeps=("iodepth", "jobs") if len(jobs) > 2 else ("iodepth",),
        loading=loading,
        objectives=(ObjectiveSpec("latency.p99", "iodepth", limit),),
        steady=rises > 0,
    )
    trials = trial_frame([(trial, n, cell, "done", None) for trial, n, (cell, _) in places])
    return summarise(trials, metric_frame(rows), design, ended=True)


def test_every_combination_of_other_factors_has_a_line_and_every_line_its_knee() -> None:
    found = sweep()
    (depths, jobs) = found.sweeps
    assert [line.levels for line in depths.lines] == [{"jobs": "1"}, {"jobs": "2"}, {"jobs": "4"}]
    assert [step.number for step in depths.lines[0].steps] == [1, 2, 4, 8, 16, 32]
    assert (jobs.factor, len(jobs.lines)) == ("jobs", 6)
    assert from_json(to_json(found)) == found
    knees = sweep().knees
    assert [(knee.levels["jobs"], knee.level) for knee in knees] == [("1", "8"), ("2", "4"), ("4", "2")]
    assert knees[0].rate == pytest.approx(8000, rel=0.05) and knees[0].time == pytest.approx(0.001, rel=0.05)
    assert (knees[0].throughput, knees[0].latency) == ("iops", "latency.mean")
    assert sweep(loading=0).knees == (), "of block sizes, say"


@pytest.mark.parametrize(("most", "said"), [(1000, "still grows at 32"), (0.5, "falls from 1 on")])
def test_no_knee_within_the_range_is_an_answer_of_enough_rounds(most: float, said: str) -> None:
    (knee,) = sweep(most, rounds=10, jobs=("1",)).knees
    assert knee.level is None and say(knee.reason) == f"No knee within the range: throughput ÷ latency {said}."
    (few,) = sweep(most, rounds=9, jobs=("1",)).knees
    assert (
        few.level is None
        and say(few.reason).startswith("Not established whether there is a knee")
        and said in say(few.reason)
    )


def test_levels_around_a_knee_have_a_confidence_from_ten_rounds_on() -> None:
    few, many = (sweep(rounds=rounds, jobs=("1",)).knees[0] for rounds in (9, 10))
    assert (few.level, few.low, few.high, few.confidence) == ("8", None, None, None)
    assert (many.level, many.low, many.high, many.confidence) == ("8", "8", "8", 0.95)
    assert "iodepth 8 (9 rounds, too few for an interval)" in knee_sentence(few)


def test_an_objective_is_answered_on_every_line_unless_rounds_without_a_value_may_be_beyond() -> None:
    found = sweep(rounds=10).objectives
    assert [(each.holds_to, each.fails_from) for each in found] == [("8", "16"), ("4", "8"), ("2", "4")]
    assert all(each.settled for each in found)
    assert found[0].confidence == pytest.approx(1 - 0.05 / 3)
    assert found[0].crossing is not None and 8 < found[0].crossing < 16
    (few,) = sweep(rounds=3, jobs=("1",)).objectives
    assert (few.holds_to, few.fails_from, few.settled) == (None, None, False)
    assert say(few.reason) == "Too few rounds: a confidence of 95 % takes at least 6."
    # Nothing completed in half of the rounds at a depth of 8: that it holds there can't be known.
    (whole,) = sweep(rounds=16, jobs=("1",)).objectives
    assert (whole.holds_to, whole.settled) == ("8", True)
    (half,) = sweep(rounds=16, jobs=("1",), silent=[("8", n) for n in range(1, 9)]).objectives
    assert half.holds_to != "8" and not half.settled
    summary = sweep(rounds=1, jobs=("1",), silent=[(depth, 1) for depth in DEPTHS])
    (none,) = summary.objectives
    assert (none.missing, none.limit, none.holds_to, none.fails_from) == (True, None, None, None)
    assert objective_sentence(none).startswith("latency.p99 below its limit (jobs=1): missing. No completed trial has")


@pytest.mark.parametrize("lasting", [0.6, 0.9])
def test_noise_that_lasts_over_rounds_leaves_no_confidence_in_what_holds(lasting: float) -> None:
    draw, sure = np.random.default_rng(7), 0
    for _ in range(40):
        noise = draw.normal(size=30)
        for number in range(1, 30):
            noise[number] += lasting * noise[number - 1]
        found = bracket([Observed(1.0, LIMIT * np.exp(0.05 * noise - 0.5))], LIMIT, True, 0.05)
        assert found.holds == 1
        sure += not found.lacks
    assert sure <= 4
    white = [bracket([Observed(1.0, np.exp(draw.normal(size=30)))], 1.0, True, 0.05).lacks for _ in range(200)]
    assert white.count(None) >= 170 and set(white) == {None, NotIndependent()}
    few = bracket([Observed(1.0, np.full(9, 1e-3))], LIMIT, True, 0.05)
    assert few.holds == 1 and few.lacks == NotIndependent(10)


def test_what_holds_in_rounds_that_tell_of_each_other_is_said_of_these_rounds() -> None:
    (found,) = sweep(rounds=9, jobs=("1",)).objectives
    assert (found.holds_to, found.confidence) == ("8", None)
    assert "(9 rounds)" in objective_sentence(found) and "confidence" not in objective_sentence(found)
    assert "That is true of these rounds: in fewer than 10 rounds nobody can tell" in say(found.reason)


AT = np.array([1, 2, 4, 8, 16, 32], dtype=np.float64)


def test_before_the_steady_state_that_is_asked_for_there_is_no_knee_and_no_objective_holds() -> None:
    found = sweep(rises=0.2)
    assert found.unsteady == NotSteady(18, 18, "iops")
    assert {(knee.level, knee.reason) for knee in found.knees} == {(None, found.unsteady)}
    assert {(o.holds_to, o.fails_from, o.settled, o.reason) for o in found.objectives} == {
        (None, None, False, found.unsteady)
    }


def closed_loop(most: float, seed: int = 1, rounds: int = 8, sd: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    """A device that serves ``most`` times what one request in flight gets, and latencies by Little's law."""
    draw = np.random.default_rng(seed)
    rates = 1000 * np.minimum(AT, most) * np.exp(sd * draw.normal(size=(rounds, len(AT))))
    return rates, AT / rates


@pytest.mark.parametrize(("most", "index"), [(4, 2), (8, 3), (16, 4)])
def test_the_knee_is_where_a_device_is_busy_and_nobody_waits(most: float, index: int) -> None:
    found = locate(power(*closed_loop(most)), 0.95)
    assert found.index == index
    assert found.low <= index <= found.high <= found.low + 2


def test_units_do_not_move_a_knee_noise_blurs_it_and_one_round_says_nothing() -> None:
    def knee(most: float, **more: Any) -> Located:
        return locate(power(*closed_loop(most, **more)), 0.95)

    rates, times = closed_loop(8)
    assert locate(power(rates * 7, times * 1e6), 0.95) == knee(8)
    quiet, noisy = knee(8, sd=0.02), knee(8, sd=0.5)
    assert noisy.high - noisy.low > quiet.high - quiet.low
    last = len(AT) - 1
    assert (knee(8, rounds=1).low, knee(8, rounds=1).high) == (0, last)
    assert knee(1000).index == last, "where a device is never full"


def test_the_levels_around_the_knee_hold_it_in_most_studies() -> None:
    """Between two depths, 5.6 of 4 and 8: either may be nearest, and the band has to have the truly best."""
    best = int((np.minimum(AT, 5.5) ** 2 / AT).argmax())
    found = [locate(power(*closed_loop(5.5, seed, rounds=12, sd=0.1)), 0.95) for seed in range(150)]
    assert np.mean([each.low <= best <= each.high for each in found]) >= 0.9


LIMIT = 0.005


def steps(means: list[float], rounds: int, seed: int, noise: str = "normal", sd: float = 0.15) -> list[Observed]:
    draw = np.random.default_rng(seed)
    shapes = {
        "normal": lambda: draw.normal(size=rounds),
        "heavy": lambda: draw.standard_t(2, size=rounds),
        "bursts": lambda: draw.normal(size=rounds) * np.where(draw.random(rounds) < 0.2, 6.0, 1.0),
    }
    return [Observed(2.0**at, mean * np.exp(sd * shapes[noise]())) for at, mean in enumerate(means)]


def test_clear_steps_are_bracketed_and_a_limit_beyond_the_range_has_no_crossing() -> None:
    found = bracket(steps([0.001, 0.002, 0.003, 0.02, 0.05], 10, 1), LIMIT, True, 0.05)
    assert (found.holds, found.fails) == (3, 2)
    assert found.crossing is not None and 4 < found.crossing < 8
    every = bracket(steps([0.001, 0.002, 0.003], 10, 1), LIMIT, True, 0.05)
    none = bracket(steps([0.01, 0.02, 0.03], 10, 1), LIMIT, True, 0.05)
    assert (every.holds, every.fails, every.crossing) == (3, 0, None)
    assert (none.holds, none.fails, none.crossing) == (0, 3, None)
    found = bracket(steps([20.0, 15.0, 10.0, 2.0, 1.0], 10, 1), 5.0, False, 0.05)
    assert (found.holds, found.fails) == (3, 2)


def test_what_few_rounds_failures_or_no_values_leave_open_is_not_established_nor_what_is_behind() -> None:
    good = steps([0.001, 0.002], 10, 1)
    failing = [good[0], Observed(2.0, good[1].values[:6], failed=4)]
    silent = [*steps([0.001], 10, 1), Observed(2.0, np.empty(0)), Observed(4.0, np.full(10, 0.1))]
    for made, ends in (
        (steps([0.0001, 0.5], 5, 1, sd=0.001), (0, 0)),
        (steps([0.001, LIMIT, 0.001, 0.05], 10, 1), (1, 1)),
        (good, (2, 0)),
        (failing, (1, 0)),
        (silent, (1, 1)),
    ):
        found = bracket(made, LIMIT, True, 0.05)
        assert (found.holds, found.fails) == ends


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
