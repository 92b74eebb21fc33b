"""fio's histograms: bins, percentiles, and its histogram logs, with the same bins as its JSON."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, merge_histograms
from storlab.metrics import PERCENTILES
from storlab.percentiles import Ints, percentiles, ranked
from storlab.tools.fio import histogram
from storlab.tools.fio.histogram import read_histogram_logs, with_histogram_logs
from storlab.tools.fio.log_lines import Phases
from storlab.tools.fio.output import parse_fio

from .samples import ANY_FOLDER, counts, fio_percentiles, histogram_frame, run_fio, series, values

RELATIVE_ERROR = 1 / 128

LATENCY = st.one_of(st.integers(0, 300), st.integers(0, 1 << 36))
COUNTS = st.dictionaries(st.integers(0, histogram.BINS - 1), st.integers(1, 1 << 40), min_size=1, max_size=40)


def dense(counts: dict[int, int]) -> Ints:
    array = np.zeros(histogram.BINS, dtype=np.int64)
    array[list(counts)] = list(counts.values())
    return array


def test_bins_follow_each_other_and_a_printed_value_gives_the_edges_of_its_own() -> None:
    assert (histogram.UPPER_NS[:-1] == histogram.LOWER_NS[1:]).all()
    assert (histogram.LOWER_NS[0], histogram.UPPER_NS[-1]) == (0, 1 << 34)
    assert (histogram.bin_index(histogram.LOWER_NS) == np.arange(histogram.BINS)).all()
    assert (histogram.bin_index(histogram.UPPER_NS[:-1] - 1) == np.arange(histogram.BINS - 1)).all()
    for printed, edges in EDGES.items():
        index = histogram.BIN_OF_VALUE[str(printed)]
        assert (histogram.LOWER_NS[index], histogram.UPPER_NS[index]) == edges
    assert "128" not in histogram.BIN_OF_VALUE and len(histogram.BIN_OF_VALUE) == histogram.BINS


EDGES = {0: (0, 1), 127: (127, 128), 129: (128, 130), 19072: (18944, 19200), 84410368: (83886080, 84934656)}


@given(LATENCY)
def test_a_latency_lies_within_its_bin_and_near_its_value(latency: int) -> None:
    index = int(histogram.bin_index([latency])[0])
    if index == histogram.BINS - 1:
        assert latency >= histogram.LOWER_NS[-1]
        return
    assert histogram.LOWER_NS[index] <= latency < histogram.UPPER_NS[index]
    assert abs(int(histogram.VALUE_NS[index]) - latency) <= latency * RELATIVE_ERROR


@given(COUNTS)
def test_percentiles_never_fall_and_those_of_a_frame_are_those_of_its_counts(counts: dict[int, int]) -> None:
    found = list(percentiles(histogram_frame(dense(counts)), [1.0, 50.0, 90.0, 99.0, 99.9, 100.0]).values())
    assert found == sorted(found)
    array = dense(counts)
    of_frame = percentiles(histogram_frame(array).reverse())
    of_counts = fio_percentiles(array) / 1e9
    assert list(of_frame.values()) == pytest.approx(of_counts.tolist(), rel=1e-9)


@given(st.lists(LATENCY, min_size=1, max_size=200), st.floats(0.01, 100))
def test_a_percentile_is_near_the_operation_of_that_rank(latencies: list[int], percentile: float) -> None:
    latencies = [min(latency, int(histogram.LOWER_NS[-1]) - 1) for latency in latencies]
    counts = np.bincount(histogram.bin_index(latencies), minlength=histogram.BINS).astype(np.int64)
    rank = int(np.ceil(np.longdouble(percentile) / 100 * len(latencies)))
    exact = sorted(latencies)[rank - 1]
    found = int(fio_percentiles(counts, [percentile])[0])
    assert abs(found - exact) <= exact * RELATIVE_ERROR


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


@given(st.lists(COUNTS, max_size=5))
def test_percentiles_of_many_histograms_are_those_of_each(parts: list[dict[int, int]]) -> None:
    arrays = [dense(part) for part in parts]
    numbers = np.arange(len(parts)) * 2  # rows without a count may lie between
    rows = np.repeat(numbers, histogram.BINS)
    found, at = ranked(rows, np.concatenate([dense({})[:0], *arrays]), PERCENTILES)
    assert found.tolist() == numbers.tolist()
    for row, array in enumerate(arrays):
        assert (histogram.VALUE_NS[at[row] % histogram.BINS] == fio_percentiles(array)).all()


def test_a_percentile_out_of_range_is_refused_and_an_empty_histogram_has_none() -> None:
    for wanted in (0.0, -1.0, 100.1, float("nan")):
        with pytest.raises(ValueError, match="greater than 0"):
            percentiles(histogram_frame(dense({5: 1})), [wanted])
    with pytest.raises(ValueError, match="no percentiles"):
        percentiles(histogram_frame(dense({})))


def line(time: int, direction: int, found: dict[int, int], coarseness: int = 0) -> str:
    """A line of a log; ``found``: counts by the number of their bin."""
    bins = [found.get(at, 0) for at in range(histogram.BINS >> coarseness)]
    return ", ".join(map(str, [time, direction, 4096, *bins])) + "\n"


def middle(at: int) -> float:
    return float(histogram.VALUE_NS[at]) / 1e9


def test_a_line_is_an_interval_of_a_direction_and_jobs_are_merged_by_their_bins(tmp_path: Path) -> None:
    one, two = tmp_path / "h_clat_hist.1.log", tmp_path / "h_clat_hist.2.log"
    one.write_text(line(503, 0, {700: 98, 900: 2}) + line(506, 1, {800: 10}) + line(1790, 0, {710: 1}))
    two.write_text(line(500, 0, {1000: 300}))
    found = read_histogram_logs({1: one, 2: two}, 0.5, ["a", "b"])
    assert (dict(found.series.schema), dict(found.histograms.schema)) == (SERIES_COLUMNS, HISTOGRAM_COLUMNS)
    assert series(found.series, "read.latency.p50", "a") == pytest.approx({0.5: middle(700), 1.5: middle(710)})
    assert series(found.series, "read.latency.p99", "a") == pytest.approx({0.5: middle(900), 1.5: middle(710)})
    assert series(found.series, "read.latency.p50") == pytest.approx({0.5: middle(1000), 1.5: middle(710)})
    assert series(found.series, "write.latency.p50") == pytest.approx({0.5: middle(800)})
    assert counts(found, "read.latency") == {
        histogram.LOWER[at]: count for at, count in ((700, 98), (710, 1), (900, 2), (1000, 300))
    }
    assert (sum(counts(found, "latency").values()), found.warnings) == (411, ())


def test_phases_follow_each_other(tmp_path: Path) -> None:
    one, two = tmp_path / "h_clat_hist.1.log", tmp_path / "h_clat_hist.2.log"
    one.write_text(line(503, 0, {700: 98}))
    two.write_text(line(500, 0, {1000: 300}))
    found = read_histogram_logs({1: one, 2: two}, 0.5, ["a", "b"], Phases((0, 1), (1.001, 0.5)))
    assert series(found.series, "read.latency.p50") == pytest.approx({0.5: middle(700), 1.5: middle(1000)})
    assert series(found.series, "read.latency.p50", "b") == pytest.approx({1.5: middle(1000)})
    assert sum(counts(found, "latency").values()) == 398


def test_fio_s_own_bins_are_the_bounds_however_coarse_the_log(tmp_path: Path) -> None:
    """The same operations twice: in the JSON, and by the interval. Some ended after the last line."""
    pace = ["--time_based", "--runtime=1", "--rate_iops=3000", "--log_hist_msec=50"]
    for coarseness in (0, 3, 6):
        folder = tmp_path / str(coarseness)
        folder.mkdir()
        load = ["--name=x", "--ioengine=null", "--rw=randrw", "--bs=4k", "--size=8M", "--numjobs=2", *pace]
        log = ["--write_hist_log=h", f"--log_hist_coarseness={coarseness}"]
        ran = run_fio("--output-format=json+", *load, *log, cwd=folder)
        whole = parse_fio(ran.stdout, "x")
        read = read_histogram_logs({n: folder / f"h_clat_hist.{n}.log" for n in (1, 2)}, 0.05, ["x.1", "x.2"])
        for job, way in product((None, "x.1", "x.2"), ("read", "write")):
            of = pl.col("job").eq_missing(job), pl.col("metric") == f"{way}.latency"
            agrees(read.histograms.filter(*of), whole.histograms.filter(*of), values(whole, job), way)
        assert len(series(read.series, "write.latency.p99")) == pytest.approx(20, abs=6)
        assert bool(read.warnings) == (coarseness > 0)


def agrees(log: pl.DataFrame, whole: pl.DataFrame, metrics: dict[str, float], way: str) -> None:
    """Bin by bin what the log has lies in fio's, whose percentiles lie where those lacking in the log leave them."""
    lower, upper, count = (log.sort("lower")[name].to_numpy() for name in ("lower", "upper", "count"))
    for low, high, n in zip(lower, upper, count, strict=True):
        inside = whole.filter(pl.col("lower") >= low * (1 - 1e-12), pl.col("upper") <= high * (1 + 1e-12))
        assert n <= inside["count"].sum()
    n, lacking = int(count.sum()), int(whole["count"].sum() - count.sum())
    assert 0 <= lacking < n  # fio writes its last lines late on a machine that is busy
    running = np.cumsum(count)
    for percentile in (50.0, 90.0, 99.0):
        rank = math.ceil(percentile / 100 * (n + lacking))
        least = lower[np.searchsorted(running, max(rank - lacking, 1))]
        most = upper[np.searchsorted(running, min(rank, n))] if rank <= n else math.inf
        assert least <= metrics[f"{way}.latency.p{percentile:g}"] <= most


def test_a_histogram_comes_from_the_log_where_the_json_has_none_and_says_what_it_lacks(tmp_path: Path) -> None:
    pace = ["--time_based", "--runtime=1", "--rate_iops=1000", "--log_hist_msec=300", "--write_hist_log=h"]
    load = ["--name=x", "--ioengine=null", "--rw=write", "--size=8M", *pace]
    ran = run_fio(*load, "--output-format=json", cwd=tmp_path)
    measured = parse_fio(ran.stdout, "x")
    assert measured.histograms.is_empty()
    joined = with_histogram_logs(measured, read_histogram_logs({1: tmp_path / "h_clat_hist.1.log"}, 0.3))
    counted = sum(counts(joined, "write.latency").values())
    ios = int(values(measured)["ios"])
    assert any(f"lacks {ios - counted} of {ios} operations" in warning for warning in joined.warnings)


@pytest.mark.parametrize(
    ("text", "number", "says"),
    [
        (line(1, 0, {}) + "rubbish\n", 2, "not a line of a histogram log"),
        (line(1, 0, {}) + line(1, 0, {}, 1), 2, "not a line of a histogram log"),
        (line(1, 3, {}), 1, "not a line of a histogram log"),
        (line(1, 0, {}).replace(", 0", ", -1", 1), 1, "not a line of a histogram log"),
        (line(1, 0, {}).replace("\n", ",\n"), 1, "not a line of a histogram log"),
        (line(1, 0, {5: (1 << 64) - 9}), 1, "not a line of a histogram log"),
        ("502, 93857911795328, 0, 4096, 0\n", 1, "not a line of a histogram log"),
        ("502, 1, 0, 4096, 0\n", 1, "has 2 counts, and no histogram log of fio 3 has so many"),
        (line(1_795_276_506_657, 0, {3: 1}), 1, "times are Unix time"),
        ("\n", 1, "not a line of a histogram log"),
    ],
)
def test_a_line_that_is_none_is_refused_with_file_and_number(tmp_path: Path, text: str, number: int, says: str) -> None:
    path = tmp_path / "h_clat_hist.1.log"
    path.write_text(text)
    with pytest.raises(ParseError, match=says) as caught:
        read_histogram_logs({1: path}, 0.5)
    assert (caught.value.source, caught.value.line) == (str(path), number)


def test_a_log_whose_bins_become_others_is_refused_and_of_one_that_was_cut_off_whole_lines_count(
    tmp_path: Path,
) -> None:
    path = tmp_path / "h_clat_hist.1.log"
    for lines in (93, 100):
        path.write_text(line(1, 0, {5: 1}) * lines + line(2, 0, {5: 1}, 1) * lines)
        with pytest.raises(ParseError) as caught:
            read_histogram_logs({1: path}, 0.5)
        assert caught.value.line == lines + 1
    path = tmp_path / "h_clat_hist.1.log"
    path.write_text("")
    assert read_histogram_logs({1: path}, 0.5).series.is_empty()
    path.write_text(line(500, 0, {9: 1}) + line(1000, 0, {9: 1})[:-9])
    assert list(series(read_histogram_logs({1: path}, 0.5).series, "read.latency.p50")) == [0.5]


LINES = st.lists(
    st.tuples(
        st.integers(0, 10**7),
        st.integers(0, 2),
        st.dictionaries(st.integers(0, histogram.BINS - 1), st.integers(1, 10**9), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@ANY_FOLDER
@given(lines=LINES, coarseness=st.integers(0, 6))
def test_every_count_is_in_a_bin_that_holds_its_own(
    lines: list[tuple[int, int, dict[int, int]]], coarseness: int, tmp_path: Path
) -> None:
    path = tmp_path / "h_clat_hist.1.log"
    text = ""
    for time, way, found in lines:
        of = Counter[int]()
        for at, n in found.items():
            of[at >> coarseness] += n
        text += line(time, way, of, coarseness)
    path.write_text(text)
    read = read_histogram_logs({1: path}, 1.0)
    assert sum(counts(read, "latency").values()) == sum(sum(found.values()) for _, _, found in lines)
    bins = read.histograms.filter(pl.col("metric") == "latency")
    for at in {at for _, _, found in lines for at in found}:
        ns = float(histogram.LOWER[at])
        assert bins.filter(pl.col("lower") <= ns, pl.col("upper") > ns).height == 1
    for row in read.series.iter_rows(named=True):
        assert bins.filter(pl.col("lower") <= row["value"], pl.col("upper") > row["value"]).height == 1
