"""Series, histograms and gaps from fio's logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.formats.fio import histogram, log_lines
from storlab.formats.fio.logs import find_logs, read_series
from storlab.formats.fio.operations import Gaps, added, longest_gap, read_operations
from storlab.formats.fio.phases import Phases
from storlab.measurements import SERIES_COLUMNS

from .samples import counts, histogram_frame, lines_frame, read_lines


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def series(frame: pl.DataFrame, metric: str, job: str | None = None) -> dict[float, float]:
    mine = frame.filter(pl.col("metric") == metric, pl.col("job").eq_missing(job))
    return {round(t, 6): value for t, value in zip(mine["t"], mine["value"], strict=True)}


def test_values_are_in_base_units_on_a_common_grid(tmp_path: Path) -> None:
    write(tmp_path, "x_bw.1.log", "1001, 100, 0, 0, 0", "2003, 200, 0, 0, 0")
    write(tmp_path, "x_bw.2.log", "999, 10, 0, 0, 0", "1999, 20, 0, 0, 0")
    found = read_series(tmp_path, "x", 1.0, ["a", "b"])
    assert dict(found.schema) == SERIES_COLUMNS
    assert series(found, "read.bandwidth", "a") == {1: 102400, 2: 204800}
    assert series(found, "read.bandwidth") == series(found, "bandwidth") == {1: 112640, 2: 225280}


def test_an_interval_without_a_line_is_0(tmp_path: Path) -> None:
    write(tmp_path, "x_iops.1.log", "1000, 50, 1, 0, 0", "4001, 70, 1, 0, 0")
    write(tmp_path, "x_iops.2.log", "1000, 5, 0, 0, 0", "6000, 7, 0, 0, 0")
    found = read_series(tmp_path, "x", 1.0, ["a", "b"])
    assert series(found, "write.iops", "a") == {1: 50, 2: 0, 3: 0, 4: 70, 5: 0, 6: 0}
    assert series(found, "iops") == {1: 55, 2: 0, 3: 0, 4: 70, 5: 0, 6: 7}


def test_latency_is_weighted_by_operations_and_absent_where_there_were_none(tmp_path: Path) -> None:
    write(tmp_path, "x_iops.1.log", "1000, 300, 0, 0, 0", "4000, 1, 0, 0, 0")
    write(tmp_path, "x_iops.2.log", "1000, 100, 0, 0, 0")
    # The line of the first second comes with the first completion after the stall.
    write(tmp_path, "x_clat.1.log", "3600, 1000, 0, 0, 0", "4200, 9000, 0, 0, 0")
    write(tmp_path, "x_clat.2.log", "1000, 5000, 0, 0, 0")
    found = read_series(tmp_path, "x", 1.0, ["a", "b"])
    assert series(found, "read.latency", "a") == pytest.approx({1: 1e-6, 4: 9e-6})
    assert series(found, "read.latency") == pytest.approx({1: 2e-6, 4: 9e-6})


def test_phases_follow_each_other_and_a_job_and_a_direction_have_rows_in_their_own(tmp_path: Path) -> None:
    write(tmp_path, "x_iops.1.log", "1000, 100, 1, 0, 0", "2000, 90, 1, 0, 0")
    write(tmp_path, "x_iops.2.log", "1000, 50, 1, 0, 0", "3001, 40, 1, 0, 0")
    write(tmp_path, "x_iops.3.log", "1000, 7, 0, 0, 0")
    write(tmp_path, "x_clat.3.log", "1000, 9000, 0, 0, 0")
    found = read_series(tmp_path, "x", 1.0, ["a", "b", "c"], phases=Phases((0, 1, 2), (2.001, 3.001, 1.0)))
    assert series(found, "iops") == {1: 100, 2: 90, 3: 50, 4: 0, 5: 40, 6: 7}
    assert series(found, "write.iops") == {1: 100, 2: 90, 3: 50, 4: 0, 5: 40}
    assert series(found, "iops", "b") == series(found, "write.iops", "b") == {3: 50, 4: 0, 5: 40}
    assert series(found, "read.iops") == {6: 7}
    assert series(found, "read.latency", "c") == series(found, "read.latency") == pytest.approx({6: 9e-6})


def test_a_phase_ends_in_a_stall_but_not_for_a_line_that_fio_did_not_get_to_write(tmp_path: Path) -> None:
    write(tmp_path, "x_iops.1.log", "1000, 100, 1, 0, 0")
    write(tmp_path, "x_iops.2.log", "1000, 50, 1, 0, 0", "2000, 50, 1, 0, 0")
    write(tmp_path, "x_iops.3.log", "1000, 7, 1, 0, 0")
    found = read_series(tmp_path, "x", 1.0, phases=Phases((0, 1, 2), (4.0, 3.0, 1.0)))
    assert series(found, "iops") == {1: 100, 2: 0, 3: 0, 5: 50, 6: 50, 8: 7}


def test_jobs_merged_by_fio_give_only_the_series_of_all(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        write(tmp_path, f"x_bw.{number}.log", "1000, 1, 2, 0, 0")
    assert list(find_logs(tmp_path, "x", "bw")) == [1, 2, 10]
    found = read_series(tmp_path, "x", 1.0, ["group"])
    assert found["job"].unique().to_list() == [None]
    assert series(found, "trim.bandwidth") == {1: 3072}


def test_no_logs_and_empty_logs_give_no_series(tmp_path: Path) -> None:
    assert read_series(tmp_path, "x", 1.0).is_empty()
    write(tmp_path, "x_bw.1.log")
    assert read_series(tmp_path, "x", 1.0, ["a"]).is_empty()


ODD = [
    "",
    "1, 2, 0",
    "1,, 0, 0, 0",
    "1,  2, 0, 0, 0",
    "1, 2, 0, 0x4, 0",
    f"1, {10**18}, 0, 0",
    "1 , 2, 0, 0",
    "1, 2, 0, :",
]


@pytest.mark.parametrize(
    "line", ["1, 2", "1, x, 0, 0, 0", "1, 2, 7, 0, 0", "1, 2, 0, , 0", "{", "1, -2, 0, 0, 0", *ODD]
)
def test_a_line_that_is_none_is_refused_with_file_and_number(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "x_bw.1.log", "1, 2, 0, 0, 0", "2, 2, 0, 0, 0", line, "3, 3, 0, 0, 0")
    with pytest.raises(ParseError, match="not a line of a fio log") as caught:
        read_series(tmp_path, "x", 1.0)
    assert (caught.value.source, caught.value.line) == (str(path), 3)


def test_a_line_number_counts_from_the_start_of_the_file_in_every_chunk(tmp_path: Path) -> None:
    path = write(tmp_path, "x_bw.1.log", *["1, 2, 0, 0, 0"] * 100, "1, 2, 9, 0, 0")
    with pytest.raises(ParseError) as caught:
        list(log_lines.map_chunks(path, lines_frame, 64))
    assert caught.value.line == 101


def test_a_last_line_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x_bw.1.log"
    path.write_text("1000, 5, 0, 0, 0\n2000, 7, 0, 0, 0\n3000, 1")
    assert read_lines(path)["value"].to_list() == [5, 7]


@pytest.mark.parametrize("extra", ["0", "0x0004", "4096, 0", "4096, 0x0004"])
def test_offset_and_priority_may_follow(tmp_path: Path, extra: str) -> None:
    path = write(tmp_path, "x_clat.1.log", f"0, 10801, 1, 4096, {extra}")
    assert read_lines(path).row(0) == (0, 10801, 1, 4096)


NUMBER = st.integers(0, 10**18 - 1) | st.integers(0, 99)
TEXTS = st.binary(max_size=40).map(lambda text: text + b"\n") | st.sampled_from([b"1, 2, 0, 4\n", b"3,4,2,5,6,7\n"])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.integers(0, 10**9), NUMBER, st.integers(0, 2), NUMBER), min_size=1), data=st.data())
def test_numbers_of_any_length_are_read(rows: list[tuple[int, ...]], data: st.DataObject, tmp_path: Path) -> None:
    more = data.draw(st.sampled_from(["", ", 0", ", 4096, 0x0004"]))
    path = write(tmp_path, "x_clat.1.log", *(", ".join(map(str, row)) + more for row in rows))
    assert read_lines(path).rows() == rows


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, max_size=5).map(b"".join))
def test_any_bytes_are_read_or_refused_by_line(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x_clat.1.log"
    path.write_bytes(text)
    try:
        assert read_lines(path).height == text.count(b"\n")
    except ParseError as error:
        assert error.line is not None and 1 <= error.line <= text.count(b"\n") + 1


LINE = st.tuples(st.integers(0, 5000), st.integers(0, 1 << 34), st.integers(0, 2), st.sampled_from([512, 4096]))
LINES = st.lists(LINE, min_size=1, max_size=60).map(lambda lines: sorted(lines, key=lambda line: line[0]))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, size=st.integers(20, 4000))
def test_operations_give_the_same_in_chunks_of_any_size(
    lines: list[tuple[int, ...]], size: int, tmp_path: Path
) -> None:
    path = write(tmp_path, "x_clat.1.log", *(f"{t}, {v}, {d}, {s}, 0" for t, v, d, s in lines))
    whole = read_lines(path)
    assert whole.rows() == lines
    assert pl.concat(log_lines.map_chunks(path, lines_frame, size)).equals(whole)

    measured = read_operations({1: path}, jobs=["a"])
    latencies = np.array([line[1] for line in lines])
    bins = np.bincount(histogram.bin_index(latencies), minlength=histogram.BINS).astype(np.int64)
    expected = dict(histogram_frame(bins).select("lower", "count").iter_rows())
    assert counts(measured, "latency") == counts(measured, "latency", "a") == expected
    reads = [line for line in lines if line[2] == 0]
    assert sum(counts(measured, "read.latency").values()) == len(reads)
    in_second = [line for line in lines if line[0] // 1000 == 0 and line[2] == 1]
    found = series(measured.series, "write.iops")
    assert found.get(1.0, 0) == len(in_second)
    assert sum(found.values()) == len([line for line in lines if line[2] == 1])
    written = series(measured.series, "write.bandwidth")
    assert sum(written.values()) == sum(line[3] for line in lines if line[2] == 1)


def test_a_gap_is_one_of_all_jobs_together(tmp_path: Path) -> None:
    one = write(tmp_path, "x_clat.1.log", "100, 1, 0, 4096, 0", "2000, 1, 0, 4096, 0", "2100, 1, 1, 4096, 0")
    two = write(tmp_path, "x_clat.2.log", "1500, 1, 0, 4096, 0")
    gaps = longest_gap([one, two], threshold=0.45, duration=3.0)
    assert [gaps.longest, gaps.total] == pytest.approx([1.4, 1.4 + 0.5 + 0.9])
    assert gaps.count == 3
    assert longest_gap([one], threshold=10).longest == pytest.approx(1.9)


def test_gaps_in_averaged_logs_are_never_overstated(tmp_path: Path) -> None:
    log = write(tmp_path, "x_iops.1.log", "100, 9, 0, 0, 0", "200, 9, 0, 0, 0", "900, 9, 0, 0, 0")
    gaps = longest_gap([log], threshold=0.2, interval=0.1, duration=0.9)
    assert gaps.longest == pytest.approx(0.6)
    assert gaps.count == 1


def test_gaps_of_phases_are_added_and_the_longest_is_one_of_them() -> None:
    assert added([Gaps(2.0, 3.5, 2), Gaps(1.5, 1.5, 1)]) == Gaps(2.0, 5.0, 3)


def test_no_completion_at_all_is_one_gap() -> None:
    assert longest_gap([], threshold=1, duration=5).longest == 5
    assert longest_gap([], threshold=1).longest == 0
