"""Percentiles of several nodes' histograms: the true one of all operations lies within what is stated."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.measurements import merge_histograms
from storlab.metrics import PERCENTILES
from storlab.percentiles import bounded, percentiles

latencies = st.lists(st.integers(1, 1 << 33), min_size=1, max_size=60)
"""Of one node, in ns."""
schemes = st.sampled_from(["fio", "agent", "sysbench"])
nodes = st.lists(st.tuples(latencies, schemes), min_size=1, max_size=5)


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


@given(nodes)
def test_the_percentile_of_all_operations_lies_within_the_bounds_whatever_the_bins(
    those: list[tuple[list[int], str]],
) -> None:
    merged = merge_histograms(pl.concat([histogram(samples, scheme) for samples, scheme in those]))
    pooled = [latency for samples, _ in those for latency in samples]
    for p, found in bounded(merged, PERCENTILES).items():
        assert found.low <= true_percentile(pooled, p) < found.high
        assert found.low <= found.value < found.high


@given(st.lists(latencies, min_size=1, max_size=5), st.sampled_from([("fio", 64), ("agent", 16)]))
def test_bins_of_one_kind_are_merged_without_loss_the_bounds_are_those_of_one_bin(
    those: list[list[int]], scheme: tuple[str, int]
) -> None:
    name, parts = scheme
    merged = merge_histograms(pl.concat([histogram(samples, name) for samples in those]))
    pooled = [latency for samples in those for latency in samples]
    assert merged.equals(histogram(pooled, name))
    one_bin = set(merged.select("lower", "upper").iter_rows())
    for found in bounded(merged, PERCENTILES).values():
        assert (found.low, found.high) in one_bin
        assert found.high - found.low <= max(found.low / parts, 1e-9) * (1 + 1e-9)


@given(nodes, st.randoms())
def test_the_order_and_the_grouping_of_nodes_do_not_matter(those: list[tuple[list[int], str]], random: object) -> None:
    parts = [histogram(samples, scheme) for samples, scheme in those]
    at_once = merge_histograms(pl.concat(parts))
    random.shuffle(parts)  # type: ignore[attr-defined]
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = merge_histograms(pl.concat([part, one_by_one]))
    assert one_by_one.equals(at_once)
    assert percentiles(one_by_one) == percentiles(at_once)


def test_percentiles_are_no_means_of_percentiles() -> None:
    """Of two nodes, the slow one with a hundredth of the operations."""
    merged = pl.concat([histogram([1000] * 990, "fio"), histogram([9_000_000] * 10, "fio")])
    found = percentiles(merged, [50, 99, 99.9])
    assert found[50] == found[99] == pytest.approx(1e-6, rel=1 / 64)
    assert found[99.9] == pytest.approx(9e-3, rel=1 / 64)


def test_bins_of_several_widths_that_overlap_give_wider_bounds_than_each_alone() -> None:
    wide = pl.DataFrame({"lower": [0.0], "upper": [10.0], "count": [1]})
    narrow = pl.DataFrame({"lower": [4.0, 5.0], "upper": [5.0, 6.0], "count": [1, 1]})
    both = bounded(pl.concat([wide, narrow]), [50])[50]
    assert (both.low, both.high) == (4.0, 6.0), "the second of three is 4 to 5, or 5 to 6, or lies in between"


def test_nothing_has_no_percentiles() -> None:
    with pytest.raises(ValueError, match="without any operation"):
        bounded(histogram([1], "fio").clear())
