"""Bonnie++'s CSV and its older table: every figure in its place, and none where there is none."""

from functools import partial

import pytest

from storlab.base.errors import ParseError

from . import GOLDEN, read

CSV = (GOLDEN / "bonnie-2.00a.csv").read_bytes()
TABLE = (GOLDEN / "bonnie-1.03.txt").read_bytes()
TERMINAL = (GOLDEN / "bonnie-2.00a-terminal.txt").read_bytes()  # tables with their CSV; the last run has no upper half
CONVERTED = (GOLDEN / "bonnie-2.00a-csv2txt.txt").read_bytes()  # three of these runs as bon_csv2txt prints them

parts = partial(read, "bonnie")


def test_pluses_are_no_figure_and_fields_that_the_header_does_not_name_shift_nothing() -> None:
    first, second = parts(CSV)
    assert (first.levels, second.levels) == ({"machine": "ours"}, {"machine": "ours"})
    assert (first.measured.facts["seek_count"], first.measured.facts["seek_processes"]) == ("8192", "5")
    found = first.measured.totals()
    assert (found["write.char.bandwidth"], found["write.char.cpu"]) == (2967 * 1024, 0.79)
    assert found["read.char.bandwidth"] == 4654 * 1024 and found["write.char.latency.max"] == pytest.approx(0.022311)
    assert found["random.delete.latency.max"] == pytest.approx(0.004677)
    assert second.measured.totals()["read.char.latency.max"] == pytest.approx(0.153)
    first, _ = parts(CSV)
    assert not {"write.block.bandwidth", "write.block.cpu", "seek.rate"} & first.measured.totals().keys()
    (warning,) = first.measured.warnings
    assert warning.startswith("ours, line 2: no figure for write.block, rewrite, read.block, seek,")
    assert warning.endswith("which ended in under 500 ms")


def without_csv(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"1.98,"))


def test_the_table_of_2_00_says_what_the_csv_below_it_says_but_rates_of_files() -> None:
    printed, exact = parts(without_csv(TERMINAL)), parts(TERMINAL)
    machines = ["ours", "ram", "a-long-machine-name-of-somebody", "chunk", "nofile"]
    assert [part.levels["machine"] for part in exact] == machines
    assert [part.levels["machine"] for part in printed] == ["ours", "ram", "a-long-machine-name", "chunk", "nofile"]
    for one, two in zip(printed, exact, strict=True):
        wanted = {name: value for name, value in two.measured.totals().items() if not name.startswith(("seq", "ran"))}
        got = {name: value for name, value in one.measured.totals().items() if not name.startswith(("seq", "ran"))}
        assert got == pytest.approx(wanted, rel=0.002)  # 399m has three digits
        assert not any(name.endswith(("create.rate", "delete.rate")) for name in one.measured.totals())
    (_, nofile) = printed[3:]
    assert nofile.measured.metrics.height == 6  # latencies: of an upper half there is none, and no 0
    assert (
        "line 9: its rates of files are left out, for Bonnie++ 2.00a prints how many" in printed[0].measured.warnings[0]
    )


def test_a_table_that_csv_was_made_into_has_all_rates_and_csv_of_1_03_is_read() -> None:
    exact = {part.levels["machine"]: part.measured.totals() for part in parts(TERMINAL)}
    ram, long, chunk = parts(CONVERTED)
    assert long.levels == {"machine": "a-long-"}  # it cuts off more
    for part, name in ((ram, "ram"), (long, "a-long-machine-name-of-somebody"), (chunk, "chunk")):
        assert part.measured.totals() == pytest.approx(exact[name], rel=0.002)  # 0k is no rate, but pluses
    assert chunk.traits["file_size"] == "64M"
    (part,) = parts(
        b"old,16G,42498,98,68708,9,25402,6,30040,66,50496,5,350.6,0,16,1619,5,+++++,+++,2708,7,1,2,3,4,5,6\n"
    )
    found = part.measured.totals()
    assert (found["write.block.bandwidth"], found["seek.rate"], found["random.delete.rate"]) == (68708 * 1024, 350.6, 5)
    assert "sequential.stat.rate" not in found


def test_rows_with_blanks_have_figures_in_their_own_columns() -> None:
    row = b"fast           700M            399m  56  1.5g  99           +++++ +++ 350.6   7\n"
    latency = b"Latency                         774us    4853us                20s   23288us\n"
    head = b"Version 2.00a       ------Sequential Output------ --Sequential Input- --Random-\n"
    (part,) = parts(head + row + latency)
    found = part.measured.totals()
    assert (found["write.block.bandwidth"], found["rewrite.bandwidth"]) == (399 * 1024**2, 1.5 * 1024**3)
    assert (found["seek.rate"], found["seek.cpu"], found["read.block.latency.max"]) == (350.6, 0.07, 20)
    assert not {"write.char.bandwidth", "read.char.latency.max", "read.block.bandwidth"} & found.keys()
    (part,) = parts(head + row + b"Latency                 774\n")
    assert "line 3 is left out: it isn't a row of latencies" in part.measured.warnings[0]
    with pytest.raises(ParseError):
        parts(head + row[:60] + b"\n")  # which columns are missing can't be told


def test_prose_around_the_table_is_skipped_and_a_line_far_longer_holds_nobody_up() -> None:
    text = b"MTU 1500 data (with 1 and 2 pages):\n\n" + TABLE + b"\nWhat happened is strange.\n"
    assert [part.measured.totals() for part in parts(text)] == [part.measured.totals() for part in parts(TABLE)]
    # To match it, expressions would take hours.
    long = b"ours            64M" + b" 1" * 500_000 + b"us\n"
    lines = TABLE.splitlines(keepends=True)
    (part, *_) = parts(b"".join([*lines[:3], long, *lines[3:]]))
    assert part.measured.totals() == parts(TABLE)[0].measured.totals()
