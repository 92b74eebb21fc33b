"""Block requests summarised: ratios of sums within a round, means and ranges over rounds, and what goes below."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from storlab.analysis.block.shares import block_io, unit_of
from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import BlockIO, Share, from_json, to_json
from storlab.blockio.requests import UNITS
from storlab.measurements import HISTOGRAM_COLUMNS, METRIC_COLUMNS, REQUEST_COLUMNS
from storlab.metrics import Declarations
from storlab.probes.alignment.probe import AlignmentProbe

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
    assert (found.rounds, found.warnings) == (1, ("No write request in 1 round of 2: left out.",))
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
