"""fio's logs, packed or not: series, histograms and gaps; single operations cut at the turns in which fio worked."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.measurements import SERIES_COLUMNS
from storlab.tools.fio import histogram, log_lines
from storlab.tools.fio.log_lines import Phases, packed_logs
from storlab.tools.fio.logs import find_logs, read_series
from storlab.tools.fio.operations import Cut, Gaps, added, cut, longest_gap, read_operations

from .samples import ANY_FOLDER, counts, histogram_frame, lines_frame, read_lines, series


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_values_are_in_base_units_on_a_common_grid_and_an_interval_without_a_line_is_0(tmp_path: Path) -> None:
    write(tmp_path, "x_bw.1.log", "1001, 100, 0, 0, 0", "2003, 200, 0, 0, 0")
    write(tmp_path, "x_bw.2.log", "999, 10, 0, 0, 0", "1999, 20, 0, 0, 0")
    found = read_series(tmp_path, "x", 1.0, ["a", "b"])
    assert (dict(found.schema), series(found, "read.bandwidth", "a")) == (SERIES_COLUMNS, {1: 102400, 2: 204800})
    assert series(found, "read.bandwidth") == series(found, "bandwidth") == {1: 112640, 2: 225280}
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


def test_jobs_merged_by_fio_give_only_the_series_of_all_and_without_lines_there_is_none(tmp_path: Path) -> None:
    assert read_series(tmp_path, "x", 1.0).is_empty()
    write(tmp_path, "x_bw.1.log")
    assert read_series(tmp_path, "x", 1.0, ["a"]).is_empty()
    for number in (1, 2, 10):
        write(tmp_path, f"x_bw.{number}.log", "1000, 1, 2, 0, 0")
    assert list(find_logs(tmp_path, "x", "bw")) == [1, 2, 10]
    found = read_series(tmp_path, "x", 1.0, ["group"])
    assert (found["job"].unique().to_list(), series(found, "trim.bandwidth")) == ([None], {1: 3072})


NO_LINES = ["", "{", "1, 2", "1, 2, 0", "1, x, 0, 0, 0", "1, 2, 7, 0, 0", "1, 2, 0, , 0", "1, -2, 0, 0, 0"]
NO_LINES += ["1,, 0, 0, 0", "1,  2, 0, 0, 0", "1, 2, 0, 0x4, 0", f"1, {10**18}, 0, 0", "1 , 2, 0, 0", "1, 2, 0, :"]


@pytest.mark.parametrize("line", NO_LINES)
def test_a_line_that_is_none_is_refused_with_file_and_number(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "x_bw.1.log", "1, 2, 0, 0, 0", "2, 2, 0, 0, 0", line, "3, 3, 0, 0, 0")
    with pytest.raises(ParseError, match="not a line of a fio log") as caught:
        read_series(tmp_path, "x", 1.0)
    assert (caught.value.source, caught.value.line) == (str(path), 3)


def test_a_line_number_counts_from_the_start_of_the_file_and_a_last_line_cut_off_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "x_bw.1.log", *["1, 2, 0, 0, 0"] * 100, "1, 2, 9, 0, 0")
    with pytest.raises(ParseError) as caught:
        list(log_lines.map_chunks(path, lines_frame, 64))
    assert caught.value.line == 101
    path = tmp_path / "x_bw.1.log"
    path.write_text("1000, 5, 0, 0, 0\n2000, 7, 0, 0, 0\n3000, 1")
    assert read_lines(path)["value"].to_list() == [5, 7]
    path.write_text("1000, 5, 0, 0, 0\n" + "2" * 65537)
    with pytest.raises(ParseError, match="it has more than 65536 bytes"):
        read_lines(path)


NUMBER = st.integers(0, 10**18 - 1) | st.integers(0, 99)


@ANY_FOLDER
@given(rows=st.lists(st.tuples(st.integers(0, 10**9), NUMBER, st.integers(0, 2), NUMBER), min_size=1), data=st.data())
def test_numbers_of_any_length_are_read_and_offset_and_priority_may_follow(
    rows: list[tuple[int, ...]], data: st.DataObject, tmp_path: Path
) -> None:
    more = data.draw(st.sampled_from(["", ", 0", ", 0x0004", ", 4096, 0", ", 4096, 0x0004"]))
    path = write(tmp_path, "x_clat.1.log", *(", ".join(map(str, row)) + more for row in rows))
    assert read_lines(path).rows() == rows


LINE = st.tuples(st.integers(0, 5000), st.integers(0, 1 << 34), st.integers(0, 2), st.sampled_from([512, 4096]))
LINES = st.lists(LINE, min_size=1, max_size=60).map(lambda lines: sorted(lines, key=lambda line: line[0]))


@ANY_FOLDER
@given(lines=LINES, size=st.integers(20, 4000))
def test_operations_give_the_same_in_chunks_of_any_size(
    lines: list[tuple[int, ...]], size: int, tmp_path: Path
) -> None:
    path = write(tmp_path, "x_clat.1.log", *(f"{t}, {v}, {d}, {s}, 0" for t, v, d, s in lines))
    whole = read_lines(path)
    assert whole.rows() == lines and pl.concat(log_lines.map_chunks(path, lines_frame, size)).equals(whole)

    measured = read_operations({1: path}, jobs=["a"])
    latencies = np.array([line[1] for line in lines])
    bins = np.bincount(histogram.bin_index(latencies), minlength=histogram.BINS).astype(np.int64)
    expected = dict(histogram_frame(bins).select("lower", "count").iter_rows())
    assert counts(measured, "latency") == counts(measured, "latency", "a") == expected
    reads = [line for line in lines if line[2] == 0]
    assert sum(counts(measured, "read.latency").values()) == len(reads)
    in_second = [line for line in lines if line[0] // 1000 == 0 and line[2] == 1]
    found = series(measured.series, "write.iops")
    assert (found.get(1.0, 0), sum(found.values())) == (len(in_second), len([line for line in lines if line[2] == 1]))
    written = series(measured.series, "write.bandwidth")
    assert sum(written.values()) == sum(line[3] for line in lines if line[2] == 1)


def test_a_gap_is_one_of_all_jobs_never_overstated_and_those_of_phases_are_added(tmp_path: Path) -> None:
    one = write(tmp_path, "x_clat.1.log", "100, 1, 0, 4096, 0", "2000, 1, 0, 4096, 0", "2100, 1, 1, 4096, 0")
    two = write(tmp_path, "x_clat.2.log", "1500, 1, 0, 4096, 0")
    gaps = longest_gap([one, two], threshold=0.45, duration=3.0)
    assert [gaps.longest, gaps.total] == pytest.approx([1.4, 1.4 + 0.5 + 0.9]) and gaps.count == 3
    assert longest_gap([one], threshold=10).longest == pytest.approx(1.9)
    log = write(tmp_path, "x_iops.1.log", "100, 9, 0, 0, 0", "200, 9, 0, 0, 0", "900, 9, 0, 0, 0")
    gaps = longest_gap([log], threshold=0.2, interval=0.1, duration=0.9)
    assert gaps.longest == pytest.approx(0.6) and gaps.count == 1
    assert added([Gaps(2.0, 3.5, 2), Gaps(1.5, 1.5, 1)]) == Gaps(2.0, 5.0, 3)
    assert (longest_gap([], threshold=1, duration=5).longest, longest_gap([], threshold=1).longest) == (5, 0)


def test_logs_that_fio_packed_are_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "x_clat.1.log.fz").write_bytes(b"rubbish")
    assert read_series(tmp_path, "x", 0.1).is_empty()
    assert packed_logs(tmp_path, "x") == [tmp_path / "x_clat.1.log.fz"]


Operation = tuple[float, float, int]  # ends at s, took s, direction


def cut_at(operations: list[Operation], turns: list[tuple[float, float]]) -> Cut:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "operations_clat.1.log"
        lines = [f"{int(end * 1000)}, {round(took * 1e9)}, {way}, 4096, 0\n" for end, took, way in sorted(operations)]
        path.write_text("".join(lines))
        return cut(path, turns)


TURNS = [(10.0, 10.25), (10.75, 11.0)]


def test_what_began_and_ended_within_a_turn_is_counted_in_it() -> None:
    found = cut_at([(10.1, 0.01, 0), (10.2, 0.02, 1), (10.8, 0.001, 1)], TURNS)
    assert (found.ios.tolist(), found.bytes.tolist()) == ([[1, 1, 0], [0, 1, 0]], [[4096, 4096, 0], [0, 4096, 0]])
    assert ((found.straddling, found.outside, found.lines), found.latency(0).mean) == ((0, 0, 3), 0.01e9)
    assert (found.latency(1).minimum, found.latency(1).maximum, found.latency(1).n) == (1_000_000, 20_000_000, 2)


def test_what_was_in_flight_is_left_out_and_what_is_completed_while_it_should_stand_still_is_told() -> None:
    found = cut_at([(10.751, 0.51, 1), (10.752, 0.0005, 1)], TURNS)
    assert (found.ios.tolist(), found.straddling, found.latency(1).maximum) == ([[0, 0, 0], [0, 1, 0]], 1, 500_000)
    found = cut_at([(9.0, 0.001, 0), (11.5, 0.001, 0)], TURNS)
    assert (int(found.ios.sum()), found.outside, found.lines) == (0, 0, 2)
    assert cut_at([(10.5, 0.001, 0)], TURNS).outside == 1
    years = 5 * 365 * 86_400.0
    found = cut_at([(years + 0.1, 0.001, 0)], [(years, years + 0.25)])
    assert found.ios.tolist() == [[1, 0, 0]]


@given(
    st.lists(st.tuples(st.floats(5.0, 15.0), st.floats(1e-6, 3.0), st.integers(0, 2)), max_size=60),
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=12),
)
def test_every_operation_is_counted_once_or_left_out_for_a_reason(
    operations: list[Operation], steps: list[float]
) -> None:
    edges = [6.0]
    for step in steps:
        edges.append(edges[-1] + step)
    turns = list(zip(edges[0::2], edges[1::2], strict=False))
    found = cut_at(operations, turns)
    counted = int(found.ios.sum())
    assert found.lines == len(operations) and counted + found.straddling + found.outside <= len(operations)
    assert counted == int(found.counts.sum()) and all(value >= 0 for value in (found.straddling, found.outside))
