"""Tables in the form of the BPF tools: golden files, and what no table may do."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storlab.blockio.requests import by_disk, request_frame
from storlab.blockio.text import linear_histogram, log2_histogram, percent, share_table, tables
from storlab.formats.blkalgn.file import blkalgn_json

GOLDEN = Path(__file__).parent / "golden"


def requests() -> pl.DataFrame:
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
    [
        ("tables.txt", tables(requests())),
        ("blkalgn.json", blkalgn_json(by_disk(requests())).decode()),
    ],
)
def test_output_is_as_the_golden_file_has_it(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


def test_the_rows_are_those_of_the_tools() -> None:
    assert linear_histogram({4096: 40, 512: 1})[2] == f"        4096       : 40       |{'*' * 40}|"
    assert log2_histogram({512: 1})[-1] == f"       512 -> 1023       : 1        |{'*' * 40}|"
    assert log2_histogram({512: 1})[1] == f"         0 -> 1          : 0        |{' ' * 40}|"


@pytest.mark.parametrize("operation", ["read", "write_zeroes", "zone_reset_all"])
def test_shares_stand_below_their_units_whatever_the_operation_is_called(operation: str) -> None:
    row = ("vda", operation, "", 4096, 4096, None, 1, 1, 1, 1, 1, 1)
    head, *rows = share_table(request_frame([row])).splitlines()
    assert {len(row) for row in rows} == {len(head)}


def test_nothing_seen_is_no_table() -> None:
    assert tables(request_frame([])) == ""
    assert (linear_histogram({}), log2_histogram({})) == ([], [])


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.99999, ">99.9 %"), (0.00001, "<0.1 %"), (0.5, "50.0 %"), (2 / 3, "66.6 %")],
)
def test_only_all_is_100_percent_and_only_none_is_0(share: float, text: str) -> None:
    assert percent(share) == text
