"""Bins and percentiles."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.formats.fio import histogram
from storlab.measurements import merge_histograms
from storlab.metrics import PERCENTILES
from storlab.percentiles import Ints, percentiles, ranked

from .samples import fio_percentiles, histogram_frame

RELATIVE_ERROR = 1 / 128

UNHURRIED = settings(deadline=None)  # the machine may be busy
LATENCY = st.one_of(st.integers(0, 300), st.integers(0, 1 << 36))
COUNTS = st.dictionaries(st.integers(0, histogram.BINS - 1), st.integers(1, 1 << 40), min_size=1, max_size=40)


def dense(counts: dict[int, int]) -> Ints:
    array = np.zeros(histogram.BINS, dtype=np.int64)
    array[list(counts)] = list(counts.values())
    return array


def test_bins_follow_each_other_without_gap_or_overlap() -> None:
    assert (histogram.UPPER_NS[:-1] == histogram.LOWER_NS[1:]).all()
    assert histogram.LOWER_NS[0] == 0
    assert histogram.UPPER_NS[-1] == 1 << 34


@pytest.mark.parametrize(
    ("printed", "edges"),
    [(0, (0, 1)), (127, (127, 128)), (129, (128, 130)), (19072, (18944, 19200)), (84410368, (83886080, 84934656))],
)
def test_a_printed_value_gives_the_edges_of_its_bin(printed: int, edges: tuple[int, int]) -> None:
    index = histogram.BIN_OF_VALUE[str(printed)]
    assert (histogram.LOWER_NS[index], histogram.UPPER_NS[index]) == edges


def test_a_value_that_fio_never_prints_is_none_of_a_bin() -> None:
    assert "128" not in histogram.BIN_OF_VALUE
    assert len(histogram.BIN_OF_VALUE) == histogram.BINS


@UNHURRIED
@given(LATENCY)
def test_a_latency_lies_within_its_bin_and_near_its_value(latency: int) -> None:
    index = int(histogram.bin_index([latency])[0])
    if index == histogram.BINS - 1:
        assert latency >= histogram.LOWER_NS[-1]
        return
    assert histogram.LOWER_NS[index] <= latency < histogram.UPPER_NS[index]
    assert abs(int(histogram.VALUE_NS[index]) - latency) <= latency * RELATIVE_ERROR


def test_the_index_of_every_edge_is_the_bin_that_it_begins() -> None:
    assert (histogram.bin_index(histogram.LOWER_NS) == np.arange(histogram.BINS)).all()
    assert (histogram.bin_index(histogram.UPPER_NS[:-1] - 1) == np.arange(histogram.BINS - 1)).all()


@UNHURRIED
@given(COUNTS)
def test_percentiles_never_fall(counts: dict[int, int]) -> None:
    found = list(percentiles(histogram_frame(dense(counts)), [1.0, 50.0, 90.0, 99.0, 99.9, 100.0]).values())
    assert found == sorted(found)


@UNHURRIED
@given(COUNTS)
def test_percentiles_of_a_frame_are_those_of_its_counts(counts: dict[int, int]) -> None:
    array = dense(counts)
    of_frame = percentiles(histogram_frame(array).reverse())
    of_counts = fio_percentiles(array) / 1e9
    assert list(of_frame.values()) == pytest.approx(of_counts.tolist(), rel=1e-9)


@UNHURRIED
@given(st.lists(LATENCY, min_size=1, max_size=200), st.floats(0.01, 100))
def test_a_percentile_is_near_the_operation_of_that_rank(latencies: list[int], percentile: float) -> None:
    latencies = [min(latency, int(histogram.LOWER_NS[-1]) - 1) for latency in latencies]
    counts = np.bincount(histogram.bin_index(latencies), minlength=histogram.BINS).astype(np.int64)
    rank = int(np.ceil(np.longdouble(percentile) / 100 * len(latencies)))
    exact = sorted(latencies)[rank - 1]
    found = int(fio_percentiles(counts, [percentile])[0])
    assert abs(found - exact) <= exact * RELATIVE_ERROR


@UNHURRIED
@given(st.lists(COUNTS, min_size=1, max_size=5))
def test_merging_is_exact_in_any_order_and_grouping(parts: list[dict[int, int]]) -> None:
    frames = [histogram_frame(dense(part)).with_columns(metric=pl.lit("latency")) for part in parts]
    together = merge_histograms(pl.concat(frames))
    assert together["count"].sum() == sum(sum(part.values()) for part in parts)
    assert merge_histograms(pl.concat(frames[::-1])).equals(together)
    stepwise = frames[0].select("metric", "lower", "upper", "count")
    for frame in frames[1:]:
        stepwise = merge_histograms(pl.concat([stepwise, frame.select(stepwise.columns)]))
    assert merge_histograms(stepwise).equals(together)


@UNHURRIED
@given(st.lists(COUNTS, max_size=5))
def test_percentiles_of_many_histograms_are_those_of_each(parts: list[dict[int, int]]) -> None:
    arrays = [dense(part) for part in parts]
    numbers = np.arange(len(parts)) * 2  # rows without a count may lie between
    rows = np.repeat(numbers, histogram.BINS)
    found, at = ranked(rows, np.concatenate([dense({})[:0], *arrays]), PERCENTILES)
    assert found.tolist() == numbers.tolist()
    for row, array in enumerate(arrays):
        assert (histogram.VALUE_NS[at[row] % histogram.BINS] == fio_percentiles(array)).all()


@pytest.mark.parametrize("wanted", [0.0, -1.0, 100.1, float("nan")])
def test_a_percentile_out_of_range_is_refused(wanted: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        percentiles(histogram_frame(dense({5: 1})), [wanted])


def test_an_empty_histogram_has_no_percentiles() -> None:
    with pytest.raises(ValueError, match="no percentiles"):
        percentiles(histogram_frame(dense({})))
