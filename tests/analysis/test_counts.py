"""Counts of what may not happen at all, such as outliers: 0 is compared like any other, and never called equivalent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from storlab.analysis.claims.data import Claim
from storlab.analysis.compare import compare, describe
from storlab.analysis.design import ClaimSpec, CompareSpec
from storlab.analysis.gates import apply, parse_gate
from storlab.analysis.runs.across_runs import compare_runs
from storlab.analysis.runs.sides import Sample, pooled, sides
from storlab.analysis.stats.pairing import Side, pair, pool
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, Summary
from storlab.analysis.verdict import Rules, beyond
from storlab.metrics import Declarations, MetricSpec, Specs
from storlab.timeseries.variability import declares

from .run_data import run
from .simulate import Factors, Values, design, tables
from .test_compare import question

OUTLIERS = Specs(declares(MetricSpec("tps", "1/s", "higher", quantity="throughput", series=True)))
METRIC = "tps.outliers"
FACTORS: Factors = {"doublewrite": ("on", "off")}


def counts(name: str, *numbers: float) -> Side:
    return Side(name, np.arange(1, len(numbers) + 1), np.array(numbers, dtype=np.float64), counts=True)


def compared(a: list[float], b: list[float], margin: float = 0.1) -> Comparison:
    return compare(question("lower", margin), pair(counts("xfs", *a), counts("ext4", *b)), 0.05)


def summarised(on: list[float], off: list[float], *claims: ClaimSpec) -> Summary:
    values: Values = {("on",): list(on), ("off",): list(off)}
    trials, metrics, cells = tables(values, FACTORS, metric="tps.outliers", better="lower")
    asked = design(FACTORS, cells, (CompareSpec("doublewrite"),))
    declared = Declarations({"load": OUTLIERS})
    return summarise(trials, metrics, replace(asked, primary="tps.outliers", claims=claims, declared=declared))


def test_rounds_without_any_have_a_ratio_and_a_clear_difference_is_a_verdict() -> None:
    found = compared([9, 12, 8, 0, 11, 10, 9, 13, 7, 12], [0, 1, 0, 0, 0, 2, 0, 1, 0, 0])
    assert (found.verdict, found.rounds) == ("worse", 10)
    assert found.ratio is not None and found.low is not None and found.low > 1
    assert "½ added to each" in found.warnings[0] and "never equivalent" in found.warnings[0]
    assert found.reason.startswith("xfs is higher than ext4 in 9 of 10 rounds")


def test_half_is_added_whether_there_is_a_0_or_not_and_never_makes_a_ratio_larger() -> None:
    without, some = pair(counts("a", 4, 9), counts("b", 2, 3)), pair(counts("a", 4, 0), counts("b", 2, 3))
    assert without.log_ratios[0] == some.log_ratios[0] == pytest.approx(np.log(4.5 / 2.5))
    assert (without.counts, without.zeros, some.zeros) == (True, False, True)
    assert without.shrunk == pytest.approx(np.log(2) - np.log(4.5 / 2.5)), "4 ÷ 2 is 2"
    assert pool([without, some], ["x", "y"]).zeros
    assert "½" in compare(question(), without, 0.05).warnings[0]
    assert not pair(Side("a", np.array([1]), np.array([2.0])), Side("b", np.array([1]), np.array([0.0]))).counts


def test_none_in_any_round_is_no_equivalence_and_large_counts_may_be_equivalent() -> None:
    none = compared([0.0] * 20, [0.0] * 20)
    assert (none.verdict, none.ratio, none.settled) == ("undecided", 1.0, False)
    assert "counts of 0 are no evidence of that" in none.reason
    assert compared([1000.0] * 20, [1010.0] * 20).verdict == "equivalent"
    assert compared([1000.0] * 19 + [0.0], [1010.0] * 19 + [0.0]).verdict == "undecided"


def test_zeros_are_evidence_away_from_1_only() -> None:
    rules = Rules(0.05, 0.1, "lower", 5, 1, shrunk=math.inf)
    small, large = np.full(20, np.log(1.1)), np.full(20, np.log(5))
    edge = float(np.log(1.3))
    assert [beyond(small, edge, -1, each) for each in (rules, replace(rules, shrunk=0.0))] == [False, True]
    assert beyond(large, edge, 1, rules) and beyond(-large, -edge, -1, rules)
    assert beyond(large, 0.0, 1, rules), "on which side of 1 a ratio lies, the order of counts says"


def test_a_gate_passes_by_no_zeros() -> None:
    pairs = pair(counts("xfs", *[0.0] * 20), counts("ext4", *[0.0] * 20))
    rules = Rules(0.05, 0.1, "lower", 5, 1, shrunk=math.inf)
    found = apply(parse_gate("worse>30%"), compare(question("lower"), pairs, 0.05), pairs, rules)
    assert found.outcome == "undecided"


def test_small_counts_are_not_called_alike_by_the_half() -> None:
    """4 ÷ 3 is beyond a margin of 30 %, and 4.5 ÷ 3.5 within."""
    found = compared([4.0] * 20, [3.0] * 20, margin=0.3)
    assert (found.verdict, found.settled) == ("undecided", False)
    assert "counts so small are no evidence of that" in found.reason
    assert compared([4.0] * 20, [3.0] * 20, margin=0.4).verdict == "equivalent"
    pairs = pair(counts("xfs", *[4.0] * 20), counts("ext4", *[3.0] * 20))
    rules = Rules(0.05, 0.1, "lower", 5, 1, shrunk=pairs.shrunk)
    asked = [parse_gate(f"worse>{limit}%") for limit in (30, 40)]
    said = [apply(gate, compare(question("lower"), pairs, 0.05), pairs, rules).outcome for gate in asked]
    assert said == ["undecided", "passed"]


@pytest.mark.parametrize(
    ("new", "gate", "outcome"),
    [
        ([0.0] * 6, "worse>30%", "undecided"),
        ([0.0] * 6, "differs>30%", "undecided"),
        ([20.0, 21, 19, 22, 20, 20], "worse>30%", "hit"),
        ([20.0, 21, 19, 22, 20, 20], "better>30%", "passed"),
    ],
)
def test_counts_of_0_pass_no_gate_of_runs_that_were_not_interleaved(new: list[float], gate: str, outcome: str) -> None:
    sides = {"old": [0.0] * 6, "new": new}
    runs = [run(name, {"x": each}, metric=METRIC, primary=METRIC, better="lower") for name, each in sides.items()]
    declared = Declarations({"load": OUTLIERS})
    whole = [replace(each, design=replace(each.design, declared=declared)) for each in runs]
    (found,) = compare_runs(whole, gates=[parse_gate(gate)]).comparisons
    assert (found.basis, found.gates[0].outcome) == ("not interleaved", outcome), found


MORE = ClaimSpec("more outliers", None, {"doublewrite": "on"}, {"doublewrite": "off"}, word="more", limit=1.3)


@pytest.mark.parametrize(
    ("on", "off", "claim", "verdict"),
    [
        ([8.0, 9, 12, 7, 10] * 3, [0.0, 1, 0, 2, 1] * 3, MORE, "holds"),
        ([0.0] * 15, [0.0] * 15, MORE, "undecided"),
        ([0.0] * 15, [0.0] * 15, replace(MORE, word="equivalent", limit=1.0), "undecided"),
        ([0.0, 1, 0, 2, 1] * 3, [8.0, 9, 12, 7, 10] * 3, replace(MORE, word="less", limit=1.0), "holds"),
    ],
)
def test_claims_on_outliers_are_answered_by_rounds_without_any_as_far_as_these_tell(
    on: list[float], off: list[float], claim: ClaimSpec, verdict: str
) -> None:
    found: tuple[Claim, ...] = summarised(on, off, claim).claims
    assert [each.verdict for each in found] == [verdict], found


def test_a_metric_that_is_no_count_has_no_ratio_where_it_is_0() -> None:
    trials, metrics, cells = tables({("on",): [0.0] * 6, ("off",): [1.0] * 6}, FACTORS)
    (found,) = summarise(trials, metrics, design(FACTORS, cells, (CompareSpec("doublewrite"),))).comparisons
    assert found.verdict == "missing" and "on is 0 in every round" in found.reason


def test_two_alike_are_called_different_no_more_often_than_is_allowed() -> None:
    """Poisson counts of which half are 0, of the same mean, looked at after each round."""
    rng = np.random.default_rng(5)
    false = 0
    for a, b in rng.poisson(0.7, size=(200, 2, 12)).astype(float):
        looks = (compared([*a[:n]], [*b[:n]]).verdict for n in range(6, 13))
        false += any(verdict in ("better", "worse", "equivalent") for verdict in looks)
    assert false <= 0.05 * 200 + 3 * (200 * 0.05 * 0.95) ** 0.5


def test_twice_as_many_are_never_equivalent_where_most_rounds_have_none() -> None:
    rng = np.random.default_rng(6)
    few, twice = (rng.poisson(mean, size=(60, 30)).astype(float) for mean in (0.1, 0.2))
    assert not any(compared([*a], [*b]).verdict == "equivalent" for a, b in zip(few, twice, strict=True))


def _samples(run: int, *numbers: float) -> list[Sample]:
    return [Sample(run, at, number, None, None, "m", True) for at, number in enumerate(numbers, start=1)]


def test_runs_are_compared_by_the_same_counts_as_pairs_and_apart() -> None:
    a, b = _samples(0, 3, 0, 4), _samples(0, 1, 0, 0)
    together = sides(("a", "b"), a, b, {}, counts=True)
    assert together.pairs is not None and together.pairs.zeros and not together.pairs.problem
    apart = sides(("a", "b"), _samples(0, 3, 0, 4), _samples(1, 1, 0, 0), {}, counts=True)
    assert apart.pairs is None and not apart.problem
    found = describe(question("lower"), apart.a, apart.b, 0.05, apart.apart)
    assert found.ratio is not None and any("½" in warning for warning in found.warnings)
    together = pooled([apart, apart], ["x", "y"])
    assert not together.problem
    assert together.a.logged == pytest.approx(apart.a.logged), "described with the ½, and with the warning that says so"
