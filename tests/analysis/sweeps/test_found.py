"""A sweep from its tables to its summary."""

from __future__ import annotations

from collections.abc import Container
from itertools import product

import numpy as np
import polars as pl
import pytest

from storlab.analysis.design import Design, ObjectiveSpec
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.formats.fio.declared import declared
from storlab.metrics import Declarations

DEPTHS = ("1", "2", "4", "8", "16", "32")


def sweep(
    most: float = 8,
    rounds: int = 8,
    limit: str = "5ms",
    jobs: tuple[str, ...] = ("1", "2", "4"),
    silent: Container[tuple[str, int]] = (),
) -> Summary:
    """fio in a closed loop: iops, mean latency and p99 of every depth and number of jobs."""
    draw = np.random.default_rng(4)
    cells = [(at, {"jobs": j, "iodepth": d}) for at, (j, d) in enumerate(product(jobs, DEPTHS), start=1)]
    places = [(number, *cell) for number, cell in enumerate(product(range(1, rounds + 1), cells), start=1)]
    trials = pl.DataFrame(
        [(trial, n, cell, "done", None) for trial, n, (cell, _) in places],
        schema={"trial": pl.Int64, "round": pl.Int64, "cell": pl.Int64, "status": pl.String, "reason": pl.String},
        orient="row",
    )
    rows = []
    for trial, n, (cell, levels) in places:
        depth = float(levels["iodepth"]) * float(levels["jobs"])
        iops = 1000 * min(depth, most) * float(np.exp(0.03 * draw.normal()))
        values = (("iops", iops, "1/s", "higher"), ("latency.mean", depth / iops, "s", "lower"))
        tail = () if (levels["iodepth"], n) in silent else (("latency.p99", 3 * depth / iops, "s", "lower"),)
        for metric, value, unit, better in (*values, *tail):
            rows.append((trial, n, cell, None, "load", None, metric, value, unit, better))
    names = ("trial", "round", "cell", "node", "source", "job", "metric", "value", "unit", "better")
    texts = dict.fromkeys(("node", "source", "job", "metric", "unit", "better"), pl.String())
    kinds = {name: texts.get(name, pl.Int64()) for name in names} | {"value": pl.Float64()}
    design = Design(
        "A sweep",
        "iops",
        {"jobs": jobs, "iodepth": DEPTHS},
        tuple(cells),
        comparisons=(),
        declared=Declarations.union([("load", declared())]),
        sweeps=("iodepth", "jobs") if len(jobs) > 2 else ("iodepth",),
        objectives=(ObjectiveSpec("latency.p99", "iodepth", limit),),
    )
    return summarise(trials, pl.DataFrame(rows, schema=kinds, orient="row"), design, ended=True)


def test_a_sweep_has_a_line_for_each_combination_of_the_other_factors() -> None:
    found = sweep()
    (depths, jobs) = found.sweeps
    assert [line.levels for line in depths.lines] == [{"jobs": "1"}, {"jobs": "2"}, {"jobs": "4"}]
    assert [step.number for step in depths.lines[0].steps] == [1, 2, 4, 8, 16, 32]
    assert (jobs.factor, len(jobs.lines)) == ("jobs", 6)
    assert from_json(to_json(found)) == found


def test_every_line_has_its_knee_with_its_throughput_and_latency() -> None:
    knees = sweep().knees
    assert [(knee.levels["jobs"], knee.level) for knee in knees] == [("1", "8"), ("2", "4"), ("4", "2")]
    assert knees[0].rate == pytest.approx(8000, rel=0.05) and knees[0].time == pytest.approx(0.001, rel=0.05)
    assert (knees[0].throughput, knees[0].latency) == ("iops", "latency.mean")


@pytest.mark.parametrize(("most", "said"), [(1000, "still grows at 32"), (0.5, "falls from 1 on")])
def test_no_knee_within_the_range_is_an_answer(most: float, said: str) -> None:
    (knee,) = sweep(most, jobs=("1",)).knees
    assert knee.level is None and knee.reason.startswith("No knee within the range") and said in knee.reason


def test_an_objective_is_answered_on_every_line_with_the_confidence_of_all_together() -> None:
    found = sweep(rounds=10).objectives
    assert [(each.holds_to, each.fails_from) for each in found] == [("8", "16"), ("4", "8"), ("2", "4")]
    assert all(each.settled for each in found)
    assert found[0].confidence == pytest.approx(1 - 0.05 / 3)
    assert found[0].crossing is not None and 8 < found[0].crossing < 16


def test_rounds_without_a_value_may_have_been_beyond_the_limit() -> None:
    """Nothing completed in half of the rounds at a depth of 8: that it holds there can't be known."""
    (found,) = sweep(rounds=16, jobs=("1",)).objectives
    assert (found.holds_to, found.settled) == ("8", True)
    (found,) = sweep(rounds=16, jobs=("1",), silent=[("8", n) for n in range(1, 9)]).objectives
    assert found.holds_to != "8" and not found.settled


def test_too_few_rounds_say_how_many_it_takes() -> None:
    (found,) = sweep(rounds=3, jobs=("1",)).objectives
    assert (found.holds_to, found.fails_from, found.settled) == (None, None, False)
    assert found.reason == "Too few rounds: a confidence of 95 % takes at least 6."
