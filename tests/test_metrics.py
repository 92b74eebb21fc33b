"""Metrics: as declared, saved and meant by a study; percentiles of merged histograms hold the true one."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import RecordsError
from storlab.measurements import merge_histograms
from storlab.metrics import PERCENTILES, Declarations, MetricSpec, Specs, latencies, named, percentiles_of
from storlab.percentiles import bounded, percentiles
from storlab.run.planning.metrics import metrics_of_study
from storlab.study.study import parse_study

DISK = MetricSpec("disk.{disk}.writes", "1", across="sum", of="disk.{disk}", statistic="count")
names = st.from_regex(r"[a-z][a-z.]{0,12}", fullmatch=True)
specs = st.builds(
    MetricSpec, names, st.sampled_from(["1", "s", "B/s"]), st.sampled_from(["higher", "lower", "neither"]),
    st.sampled_from(["sum", "max", "min", "mean", "merge", "none"]), series=st.booleans(),
    percentile=st.none() | st.floats(0, 100),
)  # fmt: skip


def test_families_have_members_with_units_and_percentiles_are_numbers() -> None:
    found = Specs([DISK]).find("disk.nvme0n1.writes")
    assert (found.name, found.unit, found.subject, found.of) == ("disk.nvme0n1.writes", "1", "nvme0n1", "disk.nvme0n1")
    assert DISK.member("disk.writes") is None
    family = MetricSpec("latency.p{percentile}", "s", of="latency", statistic="percentile")
    specs = Specs([family])
    assert specs.find("latency.p99.9").percentile == 99.9 and specs.find("latency.peak").unit == ""
    assert specs.statistic("latency", "percentile", 99.9) == "latency.p99.9"
    every = Specs([*latencies("latency", "ios", ()), *percentiles_of("latency", (99.0,))])
    assert [spec.name for spec in every.numbers()] == ["latency.mean", "latency.min", "latency.max", "latency.p99"]


def test_what_is_not_declared_is_never_guessed_from_its_name_and_of_two_declarations_the_first_holds() -> None:
    found = Specs([*latencies("write.latency", "write.ios")]).find("read.latency.p99")
    assert (found.unit, found.better, found.of, found.percentile) == ("", "neither", "", None)
    assert Specs([MetricSpec("iops", "1/s"), MetricSpec("iops", "B")]).find("iops").unit == "1/s"


KEYS = [
    ("log", "write.iops"), ("log", "read.iops"), ("db", "iops"), ("probe:stalls", "stall.longest"),
    ("probe:stalls@store", "stall.longest"), ("probe:backing@store", "backing.writes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("iops", [2, 0, 1]),  # "iops" where a source has it, else what ends so
        ("log:iops", [0, 1]),
        ("db:iops", [2]),
        ("stall.longest", [3]),  # at the load's own end
        ("probe:stalls@store:stall.longest", [4]),
        ("backing.writes", [5]),  # only another end has it
        ("ops", []),  # a part of a word is no name
        ("log:stall.longest", []),
    ],
)
def test_a_name_means_what_has_it_or_else_what_ends_in_it(wanted: str, meant: list[int]) -> None:
    assert named(wanted, KEYS) == [KEYS[at] for at in meant]


@given(st.dictionaries(st.sampled_from(["load", "probe:stalls"]), st.lists(specs, max_size=5)))
def test_declarations_that_were_saved_are_read_as_they_were(each: dict[str, list[MetricSpec]]) -> None:
    declared = Declarations({source: Specs(found) for source, found in each.items()})
    read = Declarations.from_json(declared.to_json(), "declared.json")
    assert {source: list(found) for source, found in read.items()} == {
        source: list(found) for source, found in declared.items()
    }


@pytest.mark.parametrize(
    "text",
    [*(b"", b"[]", b'{"load": 5}'),
     b'{"load": [{"name": "iops"}]}',
     b'{"load": [{"name": "iops", "unit": "1/s", "better": "sideways"}]}',
     b'{"load": [{"name": "iops", "unit": "1/s", "colour": "red"}]}'],
)  # fmt: skip
def test_damaged_declarations_are_refused_with_the_file(text: bytes) -> None:
    with pytest.raises(RecordsError, match=r"^cannot read run/declared\.json: [^\n]+$"):
        Declarations.from_json(text, "run/declared.json")


@pytest.mark.parametrize(
    ("source", "margin", "names"),
    [("storage", 0.01, ["write.amplification"]),
     ("probe:alignment", 0.01, ["write.aligned.16k", "write.unit.amplification.16k"]),
     ("probe:host-load", 0.01, ["disk.target.bytes_written"]),
     ("load", 0.01, ["write.bytes"]),
     ("load", 0.10, ["write.iops", "bandwidth", "write.latency.mean", "write.latency.p95", "write.iops.cv", "odd"]),
     ("load", 0.25, ["write.latency.p99", "write.latency.p99.9", "write.latency.max", "stall.longest"])],
)  # fmt: skip
def test_what_does_not_matter_goes_by_what_kind_of_number_it_is(source: str, margin: float, names: list[str]) -> None:
    text = """
title = "All kinds"
stack = [{ layer = "directory" }]
probes = { alignment = {}, host-load = {} }
workload.load.fio = { rw = "randrw", size = "1M" }
"""
    found = metrics_of_study(parse_study(text.encode(), "study.toml", lambda name: ""))[source]
    assert {name: found.find(name).margin for name in names} == dict.fromkeys(names, margin)


nanoseconds = st.lists(st.integers(1, 1 << 33), min_size=1, max_size=60)
"""Latencies on one node."""
schemes = st.sampled_from(["fio", "agent", "sysbench"])
of_nodes = st.lists(st.tuples(nanoseconds, schemes), min_size=1, max_size=5)


def edges(latency: int, scheme: str) -> tuple[float, float]:
    """Of the bin in ns: 64 or 16 equal ones to every power of two, or 1024 over eight powers of ten."""
    if scheme == "sysbench":
        step = 8 / 1024
        at = math.floor(math.log10(latency) / step)
        low, high = 10 ** (at * step), 10 ** ((at + 1) * step)
        return (low, high) if low <= latency < high else (min(low, latency), max(high, latency + 1))
    parts = 64 if scheme == "fio" else 16
    width = max(1, (1 << (latency.bit_length() - 1)) // parts)
    low = latency // width * width
    return low, low + width


def histogram(samples: list[int], scheme: str) -> pl.DataFrame:
    of = [(*edges(latency, scheme), 1) for latency in samples]
    rows = [("latency", low / 1e9, high / 1e9, count) for low, high, count in of]
    columns = {"metric": pl.String, "lower": pl.Float64, "upper": pl.Float64, "count": pl.Int64}
    return merge_histograms(pl.DataFrame(rows, schema=columns, orient="row"))


def true_percentile(samples: list[int], p: float) -> float:
    """In s: the nearest rank."""
    rank = int(np.ceil(np.longdouble(p) / 100 * len(samples)))
    return sorted(samples)[rank - 1] / 1e9


@given(of_nodes)
def test_a_percentile_of_all_operations_lies_within_its_bounds(those: list[tuple[list[int], str]]) -> None:
    merged = merge_histograms(pl.concat([histogram(samples, scheme) for samples, scheme in those]))
    pooled = [latency for samples, _ in those for latency in samples]
    for p, found in bounded(merged, PERCENTILES).items():
        assert found.low <= true_percentile(pooled, p) < found.high and found.low <= found.value < found.high


@given(st.lists(nanoseconds, min_size=1, max_size=5), st.sampled_from([("fio", 64), ("agent", 16)]))
def test_bins_of_one_kind_are_merged_without_loss(those: list[list[int]], scheme: tuple[str, int]) -> None:
    name, parts = scheme
    merged = merge_histograms(pl.concat([histogram(samples, name) for samples in those]))
    pooled = [latency for samples in those for latency in samples]
    assert merged.equals(histogram(pooled, name))
    one_bin = set(merged.select("lower", "upper").iter_rows())
    for found in bounded(merged, PERCENTILES).values():
        assert (found.low, found.high) in one_bin
        assert found.high - found.low <= max(found.low / parts, 1e-9) * (1 + 1e-9)


@given(of_nodes, st.randoms())
def test_the_order_and_the_grouping_of_nodes_do_not_matter(those: list[tuple[list[int], str]], random: object) -> None:
    parts = [histogram(samples, scheme) for samples, scheme in those]
    at_once = merge_histograms(pl.concat(parts))
    random.shuffle(parts)  # type: ignore[attr-defined]
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = merge_histograms(pl.concat([part, one_by_one]))
    assert one_by_one.equals(at_once) and percentiles(one_by_one) == percentiles(at_once)


def test_percentiles_are_of_all_operations_within_bounds_as_wide_as_the_bins_that_overlap() -> None:
    """Of two of_nodes, the slow one with a hundredth of the operations."""
    merged = pl.concat([histogram([1000] * 990, "fio"), histogram([9_000_000] * 10, "fio")])
    found = percentiles(merged, [50, 99, 99.9])
    assert found[50] == found[99] == pytest.approx(1e-6, rel=1 / 64)
    assert found[99.9] == pytest.approx(9e-3, rel=1 / 64)
    wide = pl.DataFrame({"lower": [0.0], "upper": [10.0], "count": [1]})
    narrow = pl.DataFrame({"lower": [4.0, 5.0], "upper": [5.0, 6.0], "count": [1, 1]})
    both = bounded(pl.concat([wide, narrow]), [50])[50]
    assert (both.low, both.high) == (4.0, 6.0), "the second of three is 4 to 5, or 5 to 6, or lies in between"
    with pytest.raises(ValueError, match="without any operation"):
        bounded(histogram([1], "fio").clear())
