"""Counts: block requests as ratios of sums, and what may not happen at all, whose 0 is compared like any other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from storlab.analysis.block import block_io, unit_of
from storlab.analysis.compare import compare, describe
from storlab.analysis.data import Claim
from storlab.analysis.design import ClaimSpec, CompareSpec, Design
from storlab.analysis.judging import apply, parse_gate
from storlab.analysis.runs.across_runs import compare_runs
from storlab.analysis.runs.sides import Sample, pooled, sides
from storlab.analysis.stats.pairing import Side, pair, pool
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import BlockIO, Comparison, Share, Summary, from_json, to_json
from storlab.analysis.verdict import Rules, beyond
from storlab.blockio.requests import UNITS
from storlab.measurements import HISTOGRAM_COLUMNS, METRIC_COLUMNS, REQUEST_COLUMNS
from storlab.metrics import Declarations, MetricSpec, Specs
from storlab.probes.alignment import AlignmentProbe
from storlab.report.language.say import said, say
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
    assert "½ added to each" in said(found.warnings)[0] and "never equivalent" in said(found.warnings)[0]
    assert say(found.reason).startswith("xfs is higher than ext4 in 9 of 10 rounds")


def test_half_is_added_whether_there_is_a_0_or_not_and_never_makes_a_ratio_larger() -> None:
    without, some = pair(counts("a", 4, 9), counts("b", 2, 3)), pair(counts("a", 4, 0), counts("b", 2, 3))
    assert without.log_ratios[0] == some.log_ratios[0] == pytest.approx(np.log(4.5 / 2.5))
    assert (without.counts, without.zeros, some.zeros) == (True, False, True)
    assert without.shrunk == pytest.approx(np.log(2) - np.log(4.5 / 2.5)), "4 ÷ 2 is 2"
    assert pool([without, some], ["x", "y"]).zeros
    assert "½" in say(compare(question(), without, 0.05).warnings[0])
    assert not pair(Side("a", np.array([1]), np.array([2.0])), Side("b", np.array([1]), np.array([0.0]))).counts


def test_none_in_any_round_is_no_equivalence_and_large_counts_may_be_equivalent() -> None:
    none = compared([0.0] * 20, [0.0] * 20)
    assert (none.verdict, none.ratio, none.settled) == ("undecided", 1.0, False)
    assert "zeros are no evidence of that" in say(none.reason)
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
    (found,) = apply([parse_gate("worse>30%")], compare(question("lower"), pairs, 0.05), pairs, rules)
    assert found.outcome == "undecided"


def test_small_counts_are_not_called_alike_by_the_half() -> None:
    """4 ÷ 3 is beyond a margin of 30 %, and 4.5 ÷ 3.5 within."""
    found = compared([4.0] * 20, [3.0] * 20, margin=0.3)
    assert (found.verdict, found.settled) == ("undecided", False)
    assert "counts so small are no evidence of that" in say(found.reason)
    assert compared([4.0] * 20, [3.0] * 20, margin=0.4).verdict == "equivalent"
    pairs = pair(counts("xfs", *[4.0] * 20), counts("ext4", *[3.0] * 20))
    rules = Rules(0.05, 0.1, "lower", 5, 1, shrunk=pairs.shrunk)
    asked = [parse_gate(f"worse>{limit}%") for limit in (30, 40)]
    said = [apply([gate], compare(question("lower"), pairs, 0.05), pairs, rules)[0].outcome for gate in asked]
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


def test_a_metric_that_is_no_count_and_0_on_one_side_is_compared_and_survives_json() -> None:
    trials, metrics, cells = tables({("on",): [*[0.0] * 5, 0.1], ("off",): [1.0] * 6}, FACTORS)
    summary = summarise(trials, metrics, design(FACTORS, cells, (CompareSpec("doublewrite"),)))
    (found,) = summary.comparisons
    assert found.verdict == "worse" and said(found.warnings)[0].startswith("on is 0 in rounds 1")
    assert from_json(to_json(summary)) == summary


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
    assert apart.apart is not None
    found = describe(question("lower"), apart.a, apart.b, 0.05, apart.apart)
    assert found.ratio is not None and any("½" in warning for warning in said(found.warnings))
    together = pooled([apart, apart], ["x", "y"])
    assert not together.problem
    assert together.a.logged == pytest.approx(apart.a.logged), "described with the ½, and with the warning that says so"


PLACES: dict[str, Any] = {
    **dict.fromkeys(("trial", "round", "cell"), pl.Int64), **dict.fromkeys(("node", "source"), pl.String)
}  # fmt: skip
SOURCE = "probe:alignment"
DESIGN = Design(
    *("t", "write.aligned.16k", {"fs": ("a", "b")}, ((1, {"fs": "a"}), (2, {"fs": "b"}))),
    declared=Declarations.union([(SOURCE, AlignmentProbe().declares())]),
)
KIB = 1024


def requests(*rows: dict[str, Any]) -> pl.DataFrame:
    """Rows with what they have in common left out; units are those of one request at offset 0, times the count."""
    full = []
    for row in rows:
        common = {"trial": row.get("round", 1), "round": 1, "cell": 1, "node": "a", "source": SOURCE, "disk": "loop0"}
        each = {**common, "operation": "write", "flags": "", "offset_alignment": 0, "comm": None, "count": 1, **row}
        units = {f"units_{unit >> 10}k": each["count"] * max(1, -(-each["length"] // unit)) for unit in UNITS}
        full.append(units | each)
    return pl.DataFrame(full, schema=PLACES | REQUEST_COLUMNS)


def histogram(metric: str, bins: dict[tuple[int, int], int], round_: int = 1, node: str = "a") -> pl.DataFrame:
    rows = [
        (round_, round_, 1, node, SOURCE, None, metric, float(lower), float(upper), count)
        for (lower, upper), count in bins.items()
    ]
    return pl.DataFrame(rows, schema=PLACES | HISTOGRAM_COLUMNS, orient="row")


def done(*rounds: int, cell: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"trial": rounds, "cell": [cell] * len(rounds), "round": rounds})


def of_requests(*rows: dict[str, Any], rounds: tuple[int, ...] = (1,)) -> BlockIO:
    (found,) = block_io(requests(*rows), None, done(*rounds), DESIGN)
    return found


def test_what_became_of_requests_at_another_end_of_the_chain_is_not_added() -> None:
    below = {"node": "store", "length": 4 * KIB, "count": 7, "source": f"{SOURCE}@store"}
    host = {**below, "node": "host", "source": f"{SOURCE}@host"}
    assert of_requests(below, {"length": 16 * KIB, "count": 3}, host).requests == 3
    assert of_requests(below, host).requests == 7, "one end alone, where the load's was not watched"


def test_shares_are_of_sums_over_nodes_and_disks_and_not_means_of_their_shares() -> None:
    found = of_requests(
        {"length": 16 * KIB},
        {"node": "b", "length": 4 * KIB, "count": 98},
        {"node": "b", "disk": "loop1", "length": 4 * KIB},
    )
    at_16k = found.units[2]
    assert (at_16k.unit, at_16k.requests, found.requests) == (16 * KIB, Share(0.01, 0.01, 0.01), 100)
    assert at_16k.bytes is not None and at_16k.amplification is not None
    assert at_16k.bytes.mean == pytest.approx(16 / (16 + 99 * 4))
    assert at_16k.amplification.mean == pytest.approx(100 * 16 / (16 + 99 * 4))


def test_over_rounds_there_are_the_mean_the_least_and_the_most() -> None:
    found = of_requests(
        {"length": 4 * KIB},
        {"length": 16 * KIB, "count": 3},
        {"round": 2, "length": 16 * KIB, "count": 10},  # none of 4 KiB: that is 0, not unknown
        rounds=(1, 2),
    )
    assert [(each.size, each.requests) for each in found.lengths] == [
        (4 * KIB, Share(0.125, 0.0, 0.25)),
        (16 * KIB, Share(0.875, 0.75, 1.0)),
    ]
    assert found.below is not None
    assert [(kind.count, kind.requests) for kind in found.below] == [(0.5, Share(0.125, 0.0, 0.25))]


def test_lengths_belong_to_the_power_of_two_beneath_and_many_kinds_end_in_one() -> None:
    found = of_requests(*({"length": length} for length in (512, 20 * KIB, 1 << 20, 5 << 20)))
    sizes = [(each.size, each.requests.mean) for each in found.lengths]
    assert sizes == [(512, 0.25), (16 * KIB, 0.25), (1 << 20, 0.5)]
    found = of_requests(*({"comm": f"worker-{i}", "length": 4 * KIB, "count": i + 1} for i in range(14)))
    assert found.below is not None
    assert [kind.comm for kind in found.below] == [*(f"worker-{i}" for i in range(13, 3, -1)), None]
    assert (found.below[-1].flags, found.below[-1].why, found.below[-1].count) == (None, None, 10)


def test_what_goes_below_is_told_by_flags_by_why_and_by_its_lengths() -> None:
    found = of_requests(
        {"flags": "sync+meta", "length": 512, "count": 6},
        {"flags": "sync+meta", "length": 4 * KIB, "count": 3},
        {"length": 20 * KIB, "count": 2},
        {"length": 16 * KIB, "offset_alignment": 4 * KIB},
        {"length": 64 * KIB, "count": 88},
    )
    whole = found.units[2].requests
    assert found.below is not None and whole is not None
    told = [(kind.flags, kind.why, kind.count, kind.requests.mean) for kind in found.below]
    assert told == [("sync+meta", "shorter", 9, 0.09), ("", "uneven", 2, 0.02), ("", "across", 1, 0.01)]
    assert dict(found.below[0].lengths) == {512: pytest.approx(2 / 3), 4 * KIB: pytest.approx(1 / 3)}
    assert sum(kind.requests.mean for kind in found.below) == pytest.approx(1 - whole.mean)


def test_flushes_have_no_part_in_shares_and_each_operation_its_own() -> None:
    read, flush = {"operation": "read", "length": 4 * KIB}, {"operation": "flush", "length": 0}
    frame = requests({**flush, "count": 50}, {**read, "count": 7}, {"length": 16 * KIB, "count": 5})
    found = block_io(frame, None, done(1), DESIGN)
    assert [(row.operation, row.requests, row.units[2].requests) for row in found] == [
        ("write", 5, Share(1.0, 1.0, 1.0)),
        ("read", 7, Share(0.0, 0.0, 0.0)),
    ]
    assert found[0].below == ()


def test_rounds_without_a_request_are_left_out_and_unknown_units_give_no_amplification() -> None:
    found = of_requests({"round": 2, "length": 4 * KIB}, rounds=(1, 2))
    assert (found.rounds, said(found.warnings)) == (1, ("No write request in 1 round of 2: left out.",))
    found = of_requests({"length": 4 * KIB}, {"round": 2, "length": 16 * KIB}, rounds=(2,))
    assert found.lengths[0].size == 16 * KIB
    found = of_requests({"length": 4 * KIB, "units_16k": None})
    assert [found.units[at].amplification for at in (2, 0)] == [None, Share(1.0, 1.0, 1.0)]
    assert block_io(requests(), histogram("x.alignment", {}), done(1), DESIGN) == ()


def test_histograms_alone_give_shares_of_requests_and_of_bytes_where_lengths_are_exact() -> None:
    bins = [
        histogram("all.granularity", {(4096, 4608): 3, (16384, 16896): 1}),
        histogram("all.alignment", {(4096, 8192): 3, (16384, 32768): 1}),
        histogram("write.latency", {(0, 1): 9}),
    ]
    (found,) = block_io(None, pl.concat(bins), done(1), DESIGN)
    assert (found.operation, found.requests, found.bytes, found.below) == ("all", 4, 3 * 4096 + 16384, None)
    assert found.lengths[0].bytes == Share(*[3 * 4096 / (3 * 4096 + 16384)] * 3)
    assert found.alignments[0].bytes is None
    at_16k = found.units[2]
    assert (at_16k.requests, at_16k.shorter) == (Share(0.25, 0.25, 0.25), Share(0.75, 0.75, 0.75))
    assert (at_16k.bytes, at_16k.offsets, at_16k.amplification) == (None, None, None)


def test_histograms_of_inexact_lengths_give_no_bytes_and_all_survives_json() -> None:
    (found,) = block_io(None, histogram("write.granularity", {(4096, 8192): 3}), done(1), DESIGN)
    assert (found.bytes, found.lengths[0].bytes, found.units[0].requests) == (None, None, None)
    (found,) = block_io(requests({"length": 4096}), histogram("write.granularity", {(512, 1024): 3}), done(1), DESIGN)
    assert found.lengths[0].size == 4096
    trials = done(1).with_columns(status=pl.lit("done"), reason=pl.lit(None, pl.String))
    rows = {"length": 4 * KIB, "flags": "meta"}, {"length": 64 * KIB}, {"operation": "read", "length": 512}
    summary = summarise(trials, pl.DataFrame(schema=PLACES | METRIC_COLUMNS), DESIGN, requests=requests(*rows))
    assert len(summary.block_io) == 2
    assert from_json(to_json(summary)) == summary


def test_the_unit_is_the_one_that_the_study_asks_about() -> None:
    for primary, compared, unit in (
        ("write.aligned.64k", (), 65536),
        ("aligned.8k", (), 8192),
        ("bandwidth", ("write.unit.amplification.32k",), 32768),
        ("bandwidth", (), 16384),
        ("write.aligned.3k", (), 16384),
    ):
        specs = (CompareSpec("fs", metrics=compared),) if compared else ()
        assert unit_of(replace(DESIGN, primary=primary, comparisons=specs)) == unit
