"""Requests by how they lie in units: against a definition by plain arithmetic, and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.blockio.requests import (
    UNITS,
    DiskHistograms,
    by_alignment,
    by_disk,
    by_length,
    joint_alignment,
    request_frame,
    shares,
    with_alignment,
)
from storlab.blockio.text import linear_histogram, log2_histogram, percent, share_table, tables
from storlab.measurements import REQUEST_COLUMNS
from storlab.tools.blkalgn import blkalgn_json

Request = tuple[str, int, int]  # operation, offset, length; bytes

SECTOR = 512
issued_requests = st.lists(
    st.tuples(st.sampled_from(["read", "write"]),
              st.integers(0, 1 << 20).map(lambda n: n * SECTOR),
              st.integers(1, 512).map(lambda n: n * SECTOR)),
    min_size=1,
    max_size=60,
)  # fmt: skip


def touched(offset: int, length: int, unit: int) -> int:
    return (offset + length - 1) // unit - offset // unit + 1


def frame_of(issued: Sequence[Request]) -> pl.DataFrame:
    rows = [
        ("vda", operation, "", length, offset & -offset, None, 1, *(touched(offset, length, unit) for unit in UNITS))
        for operation, offset, length in issued
    ]
    return request_frame(rows)


def test_each_key_is_once_in_a_frame_and_flushes_are_in_no_share() -> None:
    frame = frame_of([("write", 0, 4096), ("write", 0, 4096), ("read", 512, 512)])
    assert frame.schema == pl.Schema(REQUEST_COLUMNS)
    assert frame["count"].to_list() == [1, 2]
    assert frame["units_4k"].to_list() == [1, 2]
    frame = request_frame([("vda", "read", "", 4096, 4096, None, 0, 1, 1, 1, 1, 1)])
    assert frame.is_empty() and shares(frame).is_empty()
    flush = request_frame([("vda", "flush", "preflush", 0, 0, None, 7, 0, 0, 0, 0, 0)])
    assert with_alignment(flush)["alignment"].to_list() == [None]
    assert shares(flush).is_empty()
    assert by_length(flush).is_empty()


@given(issued_requests)
def test_each_request_is_as_aligned_as_the_largest_power_of_two_that_divides_both(issued: list[Request]) -> None:
    expected: dict[tuple[str, int], int] = {}
    for operation, offset, length in issued:
        power = max(p for p in (1 << n for n in range(9, 40)) if length % p == 0 and offset % p == 0)
        assert joint_alignment(length, offset) == power
        expected[operation, power] = expected.get((operation, power), 0) + 1
    assert {(row[0], row[1]): row[2] for row in by_alignment(frame_of(issued)).rows()} == expected


@given(issued_requests)
def test_shares_are_those_of_plain_counting(issued: list[Request]) -> None:
    found = {(row["operation"], row["unit"]): row for row in shares(frame_of(issued)).iter_rows(named=True)}
    for operation in {operation for operation, _, _ in issued}:
        mine = [(offset, length) for o, offset, length in issued if o == operation]
        total = sum(length for _, length in mine)
        for unit in UNITS:
            whole = [(o, n) for o, n in mine if o % unit == 0 and n % unit == 0]
            row = found[operation, unit]
            assert row["requests"] == len(mine)
            assert row["bytes"] == total
            assert row["share"] == len(whole) / len(mine)
            assert row["byte_share"] == sum(n for _, n in whole) / total
            assert row["offset_share"] == sum(o % unit == 0 for o, _ in mine) / len(mine)
            assert row["below"] == sum(n < unit for _, n in mine)
            assert row["amplification"] == pytest.approx(unit * sum(touched(o, n, unit) for o, n in mine) / total)
            assert row["amplification"] >= 1


def test_only_what_is_off_a_unit_is_amplified_and_unknown_units_make_nothing_up() -> None:
    row = shares(frame_of([("write", 16384, 16384), ("write", 0, 65536)]), units=[16384]).row(0, named=True)
    assert (row["share"], row["byte_share"], row["amplification"]) == (1, 1, 1)
    row = shares(frame_of([("write", 512, 512)]), units=[16384]).row(0, named=True)
    assert row["amplification"] == 32
    row = shares(frame_of([("write", 16384 - 512, 1024)]), units=[16384]).row(0, named=True)
    assert row["amplification"] == 32
    frame = request_frame(
        [("vda", "write", "", 4096, 4096, None, 3, *[None] * 5), ("vda", "write", "", 4096, 0, None, 1, *[1] * 5)]
    )
    found = shares(frame, units=[4096, 1 << 20])
    assert found["share"].to_list() == [1.0, 0.0]
    assert found["amplification"].to_list() == [None, None]


@pytest.mark.parametrize("operation", ["drv_in", "drv_out", "other"])
def test_a_command_that_only_the_driver_understands_has_a_length_and_no_alignment(operation: str) -> None:
    command = request_frame([("vda", operation, "", 20, 0, None, 7, 0, 0, 0, 0, 0)])
    assert with_alignment(command)["alignment"].to_list() == [None]
    assert shares(command).is_empty()
    assert by_disk(command)["vda"] == DiskHistograms(without_data=7)


GOLDEN = Path(__file__).parent / "golden"


def some_requests() -> pl.DataFrame:
    """A little of everything."""

    def units(count: int, *touched: int) -> tuple[int, ...]:
        return tuple(count * each for each in touched)

    return request_frame(
        [
            ("nvme0n1", "write", "sync", 4096, 4096, "mariadbd", 40, *units(40, 1, 1, 1, 1, 1)),
            ("nvme0n1", "write", "", 16384, 16384, "kworker/u8:2", 27, *units(27, 4, 2, 1, 1, 1)),
            ("nvme0n1", "write", "fua+sync", 512, 512, "kworker/u8:2", 2, *units(2, 1, 1, 1, 1, 1)),
            ("nvme0n1", "write", "", 1 << 20, 0, "mariadbd", 1, *units(1, 256, 128, 64, 32, 16)),
            ("nvme0n1", "read", "readahead", 131072, 131072, "mariadbd", 9, *units(9, 32, 16, 8, 4, 2)),
            ("nvme0n1", "flush", "preflush", 0, 0, "kworker/u8:2", 3, 0, 0, 0, 0, 0),
            ("vda", "discard", "", 3 << 30, 1 << 20, None, 1, *units(1, 786432, 393216, 196608, 98304, 49152)),
        ]
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [("tables.txt", tables(some_requests())), ("blkalgn.json", blkalgn_json(by_disk(some_requests())).decode())],
)
def test_output_is_as_the_golden_file_has_it(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


def test_the_rows_are_those_of_the_tools_and_nothing_seen_is_no_table() -> None:
    assert linear_histogram({4096: 40, 512: 1})[2] == f"        4096       : 40       |{'*' * 40}|"
    assert log2_histogram({512: 1})[-1] == f"       512 -> 1023       : 1        |{'*' * 40}|"
    assert log2_histogram({512: 1})[1] == f"         0 -> 1          : 0        |{' ' * 40}|"
    assert tables(request_frame([])) == ""
    assert (linear_histogram({}), log2_histogram({})) == ([], [])


@pytest.mark.parametrize("operation", ["read", "write_zeroes", "zone_reset_all"])
def test_shares_stand_below_their_units_whatever_the_operation_is_called(operation: str) -> None:
    row = ("vda", operation, "", 4096, 4096, None, 1, 1, 1, 1, 1, 1)
    head, *rows = share_table(request_frame([row])).splitlines()
    assert {len(row) for row in rows} == {len(head)}


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.99999, ">99.9 %"), (0.00001, "<0.1 %"), (0.5, "50.0 %"), (2 / 3, "66.6 %")],
)
def test_only_all_is_100_percent_and_only_none_is_0(share: float, text: str) -> None:
    assert percent(share) == text
