"""Estimates of cells and nodes, against the plain functions; and the summary's JSON, its method, and a large one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.estimates import Recorded, estimates
from storlab.analysis.stats import checks
from storlab.analysis.stats.anytime import mean_interval
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Estimate, Summary, from_json, to_json
from storlab.base.errors import ParseError
from storlab.findings.rounds import Constant, Drift
from storlab.findings.runs import RoundsDone
from storlab.metrics import Declarations, MetricSpec, Specs
from storlab.report.language.methods import method
from storlab.report.language.say import said, say
from storlab.timeseries.drift import average_ranks

from .simulate import Factors, Values, design, tables, trial_frame
from .test_summarise import study

CELLS = {1: {"fs": "xfs"}, 2: {"fs": "ext4"}}


def recorded(*series: list[float | None]) -> Recorded:
    """Each of ``series`` is one metric of cell 1, a value a round."""
    names = [f"m{index}" for index in range(len(series))]
    rows = [(index, round_, value) for index, one in enumerate(series) for round_, value in enumerate(one, 1)]
    return Recorded(
        pl.DataFrame({"series": range(len(series)), "cell": 1, "source": "load", "metric": names}).with_columns(
            pl.col("series").cast(pl.UInt32), unit=pl.lit("B/s"), better=pl.lit("higher")
        ),
        pl.DataFrame(rows, schema={"series": pl.UInt32, "round": pl.Int64, "value": pl.Float64}, orient="row"),
    )


def one(values: list[float | None], spec: MetricSpec | None = None) -> Estimate:
    declared = Declarations({"load": Specs([spec] if spec else [])})
    (found,) = estimates(recorded(values), CELLS, 0.95, 5, declared)
    return found


LIMITS = {  # of a metric that is declared so, and "None" of one that nobody declared: a rate, by its unit
    MetricSpec("m0", "1", domain="share"): (0.0, 1.0), MetricSpec("m0", "1"): (0.0, math.inf),
    MetricSpec("m0", "s"): (0.0, math.inf), MetricSpec("m0", "1", domain="signed"): (-math.inf, math.inf),
    MetricSpec("m0", "°C"): (-math.inf, math.inf), None: (0.0, math.inf),
}  # fmt: skip


@given(
    st.lists(st.floats(0.1, 1e6), min_size=2, max_size=30)
    | st.lists(st.sampled_from([-0.1, 0.0, 0.1, 0.9, 1.0]), min_size=3, max_size=8),
    st.sampled_from(list(LIMITS)),
)
def test_an_estimate_says_what_the_plain_functions_say_within_what_is_possible(
    values: list[float], spec: MetricSpec | None
) -> None:
    found, numbers = one(list(values), spec), np.array(values)
    bottom, top = LIMITS[spec]
    interval = mean_interval(numbers, 0.05)
    assert found.rounds == len(values)
    assert found.mean == pytest.approx(numbers.mean())
    assert found.median == pytest.approx(np.median(numbers))
    assert found.sd == pytest.approx(interval.sd, rel=1e-6, abs=1e-9)
    if interval.bounded:
        low = max(interval.low, bottom) if min(values) >= bottom else interval.low
        high = min(interval.high, top) if max(values) <= top else interval.high
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
    else:
        assert (found.low, found.high) == (None, None)


@given(st.lists(st.sampled_from([1.0, 1.1, 1.2, 1.3, 2.0, 9.0, 50.0]), min_size=5, max_size=25))
def test_warnings_are_those_of_the_plain_checks(values: list[float]) -> None:
    found = set(one(list(values)).warnings)
    plain = set(checks.warn(np.array(values), np.arange(1, len(values) + 1), "metric"))
    assert {
        Drift("metric", w.rising) if isinstance(w, Drift) else w for w in found if not isinstance(w, Constant)
    } == plain


def test_one_round_has_no_spread_equal_counts_are_a_point_and_drift_is_named() -> None:
    found = one([3.0])
    assert (found.sd, found.cv, found.low, found.high) == (None, None, None, None)
    assert said(found.warnings) == ("Only 1 of at least 5 rounds.",)
    assert one([-1.0, 1.0, 0.0]).cv is None
    found = one([7.0] * 6)
    assert found.low == found.high == 7 and found.sd == 0 and found.cv == 0
    assert said(found.warnings) == ("The same value in every round: the interval is a point, right for counts only.",)
    found = one([1779.0 - 40 * round_ for round_ in range(20)])
    assert said(found.warnings) == ("The value falls over the rounds: they are not repeats of one steady state.",)


def test_what_is_no_number_is_left_out_and_counted_and_without_any_there_is_no_estimate() -> None:
    found = one([1.0, 2.0, math.nan, None, math.inf, 3.0, 2.0, 2.5])
    assert found.rounds == 5
    assert found.mean == pytest.approx(2.1)
    assert said(found.warnings) == ("No finite value in 3 rounds: left out.",)
    assert estimates(recorded([math.nan, None]), CELLS, 0.95, 5, Declarations()) == ()


def test_ranks_share_ties_drift_needs_a_direction_and_outliers_are_found_among_equal_values() -> None:
    assert average_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]
    assert checks.drift_z(np.arange(9.0)) == pytest.approx(math.sqrt(8))
    assert checks.drift_z(np.ones(9)) == 0
    assert checks.drift_z(np.array([1.0, 2.0])) == 0
    assert checks.outliers(np.array([1.0] * 9 + [2.0])).tolist() == [False] * 9 + [True]
    assert not checks.outliers(np.ones(9)).any()


@given(st.lists(st.floats(0.1, 1e6), min_size=5, max_size=30), st.sampled_from([-990, -600, 600, 990]))
def test_an_estimate_of_huge_or_tiny_numbers_is_that_of_their_multiples(values: list[float], power: int) -> None:
    factor = 2.0**power
    usual, scaled = one(list(values)), one([value * factor for value in values])
    assert (scaled.mean, scaled.median, scaled.cv) == (usual.mean * factor, usual.median * factor, usual.cv)
    assert scaled.sd is not None and usual.sd is not None and scaled.sd == usual.sd * factor
    assert usual.high is not None and scaled.high == pytest.approx(usual.high * factor)
    assert said(scaled.warnings) == said(usual.warnings)


def test_estimates_come_in_the_order_of_the_series_and_none_beyond_all_floats() -> None:
    found = estimates(recorded([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]), CELLS, 0.95, 5, Declarations())
    assert [(e.metric, e.mean) for e in found] == [("m0", 1.5), ("m1", 3.5), ("m2", 5.5)]
    assert found[0].levels == {"fs": "xfs"} and found[0].unit == "B/s"
    wide = one([1.7e308, 0.1e308])
    assert (wide.low, wide.high) == (None, None) and wide.sd is not None and math.isfinite(wide.sd)
    assert one([1.7e308, -1.7e308]).sd is None


NODES = ("vm-1", "vm-2", "vm-10")
ROUNDS = 5
COMPARED = (CompareSpec("fs", metrics=("bandwidth", "probe:host-load:cpu.user")),)


def rows(cell: int, number: int, nodes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    def row(node: str | None, source: str, metric: str, value: float, unit: str = "1") -> dict[str, Any]:
        place = {
            "trial": 10 * number + cell,
            "round": number,
            "cell": cell,
            "node": node,
            "source": source,
            "job": None,
        }
        return {**place, "metric": metric, "value": value, "unit": unit, "better": "higher", "across": "sum"}

    for share, node in enumerate(nodes, start=1):
        yield row(node, "load", "write.bandwidth", 100.0 * share + number, "B/s")
        yield row(node, "load", "write.bytes", 1e6 * share, "B")
        yield row(node, "probe:stalls", "stall.longest", 0.1 * share, "s")
    yield row(None, "load", "write.bandwidth", 100.0 * sum(range(len(nodes) + 1)), "B/s")
    busy = [(guest, "", 99.0) for guest in (*nodes[:2], None)]
    for machine, end, load in (*busy, ("host", "@host", 7.0), (None, "@host", 7.0)):
        yield row(machine, f"probe:host-load{end}", "load.1m", load)
        yield row(machine, f"probe:host-load{end}", "cpu.user", load / 100)


def summary(nodes: tuple[str, ...], comparisons: tuple[CompareSpec, ...] = ()) -> Summary:
    cells = ((1, {"fs": "a"}), (2, {"fs": "b"}))
    places = [(cell, number) for number in range(1, ROUNDS + 1) for cell, _ in cells]
    trials = trial_frame([(10 * number + cell, number, cell, "done", None) for cell, number in places])
    metrics = pl.DataFrame([row for cell, number in places for row in rows(cell, number, nodes)])
    return summarise(trials, metrics, Design("t", "bandwidth", {"fs": ("a", "b")}, cells, comparisons))


def of(found: Summary, cell: int = 1) -> dict[tuple[str | None, str], Estimate]:
    return {(e.node, e.metric): e for e in found.by_node if e.cell == cell}


def test_nodes_are_estimated_each_in_the_order_of_their_numbers_and_add_up_to_all() -> None:
    whole = summary(NODES)
    found = of(whole)
    each = [(node, metric) for node in NODES for metric in ("write.bandwidth", "stall.longest")]
    assert list(found) == [*each, ("host", "load.1m")]
    last = found["vm-10", "write.bandwidth"]
    assert last.mean == pytest.approx(303.0) and last.rounds == ROUNDS
    assert found["vm-2", "stall.longest"].mean == pytest.approx(0.2)
    assert sum(e.mean for (_, metric), e in found.items() if metric == "write.bandwidth") == pytest.approx(609.0)
    assert from_json(to_json(whole)) == whole


def test_the_hosts_load_is_its_own_a_lone_node_is_not_shown_and_compared_metrics_are_on_each_machine() -> None:
    assert of(summary(NODES))["host", "load.1m"].mean == pytest.approx(7.0), "and not that of the busiest guest"
    assert list(of(summary(("vm-1",)))) == [("host", "load.1m")]
    found = of(summary(NODES, COMPARED))  # of one end of the chain: the host has numbers of its own
    assert {node for node, metric in found if metric == "cpu.user"} == {"vm-1", "vm-2"}


GOLDEN = Path(__file__).parent / "golden" / "summary.json"


def small() -> Summary:
    """A study with every kind of result: a verdict, a failure, an outlier, no interval."""
    factors: Factors = {"fs": ("xfs", "ext4"), "bs": ("4k", "64k")}
    fast = [160.0, 152.0, 148.0, 155.0, 151.0, 163.0, 149.0, 158.0, 157.0, 150.0]
    slow = [100.0, 98.0, 103.0, 99.0, 101.0, 97.0, 102.0, 100.0, 99.5, 100.5]
    values: Values = {
        ("xfs", "4k"): list(fast),
        ("xfs", "64k"): [*fast[:8], None, 900.0],
        ("ext4", "4k"): list(slow),
        ("ext4", "64k"): [*slow[:9], -1.0],
    }
    trials, metrics, cells = tables(values, factors)
    asked = replace(design(factors, cells), stopped=RoundsDone(10, 10), facts={"seed": 7, "x": [1.5]})
    return summarise(trials, metrics, asked)


def test_a_summary_comes_back_from_json_exactly_and_is_that_of_the_golden_file() -> None:
    """To renew it after a wanted change: ``GOLDEN.write_bytes(to_json(small()))``."""
    summary = small()
    ours, golden = from_json(to_json(summary)), from_json(GOLDEN.read_bytes())
    assert ours == summary and to_json(ours) == to_json(summary)
    assert [say(c.reason) for c in ours.comparisons] == [say(c.reason) for c in golden.comparisons]
    assert [said(e.warnings) for e in ours.estimates] == [said(e.warnings) for e in golden.estimates]
    assert [c.ratio for c in ours.comparisons] == pytest.approx([c.ratio for c in golden.comparisons])
    assert orjson.loads(to_json(ours)).keys() == orjson.loads(GOLDEN.read_bytes()).keys()


def test_a_number_that_json_can_not_hold_is_refused_by_name() -> None:
    summary = small()
    bad = replace(summary.estimates[0], mean=math.nan)
    with pytest.raises(ValueError, match=r"estimates\[0\]\.mean is nan"):
        to_json(replace(summary, estimates=(bad,)))
    with pytest.raises(ValueError, match=r"facts\.a\[1\] is inf"):
        to_json(replace(summary, facts={"a": [1, math.inf]}))


LISTS = '"comparisons": [], "warnings": []'


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", f'{{"cells": [], "estimates": [{{}}], {LISTS}}}', f'{{"cells": [3], "estimates": [], {LISTS}}}'],
)
def test_anything_else_is_refused_with_the_files_name(text: str) -> None:
    with pytest.raises(ParseError, match=r"summary\.json: not a summary"):
        from_json(text)


def method_of(summary: Summary) -> str:
    assert summary.method is not None
    return method(summary.method)


def test_the_method_says_what_was_done_and_nothing_that_was_not() -> None:
    trials, metrics, asked = study()
    how = method_of(summarise(trials, metrics, asked))
    assert how.startswith("Levels are compared by round") and "each of its 3 comparisons" in how
    one_side = metrics.filter(pl.col("cell").is_in([1, 2]))
    assert method_of(summarise(trials, one_side, asked)).startswith("Nothing was compared.")
    assert summarise(trials, metrics.clear(), asked).method is None


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (12, "Nothing was compared. Means are over rounds; their intervals are anytime-valid t intervals"),
        (1, "Nothing was compared. Each number is of one round, which has no interval."),
    ],
)
def test_where_nothing_is_compared_it_speaks_of_no_verdict(rounds: int, said: str) -> None:
    trials, metrics, asked = study()
    done = trials.filter(pl.col("round") <= rounds), metrics.filter(pl.col("round") <= rounds)
    how = method_of(summarise(*done, replace(asked, compared=False)))
    assert how.startswith(said)
    assert "verdict" not in how and "compared by round" not in how
    assert how.endswith("Samples within a trial are not repeats and never count as such.")
