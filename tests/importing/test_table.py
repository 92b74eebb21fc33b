"""Tables of any origin: what their columns are is said by their user."""

import csv
import io
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab.base.errors import ParseError
from storlab.tools.cells import primary_of
from storlab.tools.importer import Part
from storlab.tools.kinds import signatures_of
from storlab.tools.table.importer import TableImporter
from storlab.tools.table.suggest import suggestion_for

HERE = Path(__file__).parent
SUGGESTED = tomllib.loads((HERE / "suggested.toml").read_text())

WIDE = b"fs,rep,IOPS,lat\nxfs,1,1000,1.5\next4,1,900,1.7\nxfs,2,1010,\next4,2,930,1.6\n"
TWO = {"value": ["IOPS:1/s:higher", "lat:ms:lower"], "factor_column": ["fs"]}


def parts(text: bytes, **options: Any) -> list[Part]:
    return list(TableImporter().read(text, "x.csv", options))


def rows(part: Part) -> list[tuple[str, float, str, str]]:
    return list(part.measured.metrics.select("metric", "value", "unit", "better").iter_rows())


def test_a_wide_table_has_a_metric_for_each_column_and_a_last_line_that_was_cut_is_left_out() -> None:
    found = parts(WIDE, **TWO)
    assert [part.levels["fs"] for part in found] == ["xfs", "ext4", "xfs", "ext4"]
    assert rows(found[0]) == [("IOPS", 1000, "1/s", "higher"), ("lat", 0.0015, "s", "lower")]
    assert rows(found[2]) == [("IOPS", 1010, "1/s", "higher")]  # an empty field is no 0
    assert [part.round for part in parts(WIDE, **TWO, round_column="rep")] == [1, 1, 2, 2]
    found = parts(WIDE[:-10].replace(b"2,1010,", b"2,1010,2"), **TWO)
    assert (len(found), found[0].measured.warnings) == (3, ("line 5 is cut short and left out",))


def test_rows_with_times_are_a_series_and_its_mean_and_a_long_table_names_the_metric_in_a_column() -> None:
    text = b"fs;metric;number\nxfs;iops;1000\nxfs;lat;2\next4;iops;900\next4;lat;3\nxfs;iops;1100\n"
    found = parts(text, value=["number"], factor_column=["fs"], metric_column="metric")
    assert [(part.levels["fs"], [name for name, *_ in rows(part)]) for part in found] == [
        ("xfs", ["iops", "lat"]),
        ("ext4", ["iops", "lat"]),
        ("xfs", ["iops"]),
    ]
    assert primary_of(TableImporter(), [found]) == "iops"
    text = b"ms\tfs\tMB\n0\txfs\t1\n500\txfs\t3\n0\text4\t7\n"
    xfs, ext4 = parts(text, value=["MB:MB/s:higher"], factor_column=["fs"], time_column="ms:ms")
    assert xfs.measured.series.select("t", "value").rows() == [(0.0, 1e6), (0.5, 3e6)]
    assert (rows(xfs), rows(ext4)) == ([("MB", 2e6, "B/s", "higher")], [("MB", 7e6, "B/s", "higher")])


@pytest.mark.parametrize(
    ("text", "options", "says"), [json.loads(line) for line in sample(__file__, "cases/csv-faults.jsonl").splitlines()]
)
def test_a_fault_is_named_with_line_and_column(text: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ParseError) as refused:
        parts(text.encode("latin-1"), **options)
    assert str(refused.value).startswith(f"x.csv:{says}")


@pytest.mark.parametrize(
    ("heading", "value", "unit"),
    [
        ("read bw (MiB/s)", 1024.0**2, "B/s"), ("read bw [MB/sec]", 1e6, "B/s"), ("read bw(KiBps)", 1024.0, "B/s"),
        ("read bw (µs)", 1e-6, "s"), ("read bw (usec)", 1e-6, "s"), ("read bw (IOPS)", 1.0, "1/s"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", ["read bw", "{}", "{}::higher", "read bw::higher"])
def test_a_unit_in_a_heading_counts(heading: str, value: float, unit: str, named: str) -> None:
    (part,) = parts(f"{heading};x\n1;2\n".encode(), value=[named.format(heading)])
    ((metric, number, *said),) = rows(part)
    assert metric == "read bw" and number == pytest.approx(value)
    assert said == [unit, "higher" if "higher" in named else "neither"]


def test_a_heading_may_have_the_unit_of_times_or_something_else_in_brackets_and_columns_other_names() -> None:
    (part,) = parts(b"lat (p99),lat (ms)\n1,2\n", value=["lat (p99):us", "lat (ms)"])
    assert rows(part) == [("lat (p99)", 1e-6, "s", "neither"), ("lat", 2e-3, "s", "neither")]
    (part,) = parts(b"at (ms),x\n500,1\n", value=["x"], time_column="at")
    assert part.measured.series["t"].to_list() == [0.5]
    with pytest.raises(ParseError, match="has no unit of time in its heading"):
        parts(b"at (MB),x\n500,1\n", value=["x"], time_column="at")
    text = b"Bandwidth (MB/s),a=b\n1,2\n"
    (part,) = parts(text, value=["bandwidth=Bandwidth::higher", "a=b"])
    assert rows(part) == [("bandwidth", 1e6, "B/s", "higher"), ("a=b", 2, "1", "neither")]
    (part,) = parts(b'"a, b, c";d\n1;2\n', value=["a, b, c"])
    assert rows(part) == [("a, b, c", 1, "1", "neither")]


def test_what_says_that_there_is_no_figure_is_none_and_no_0_and_a_set_up_without_any_has_failed() -> None:
    for nothing in (b"NA", b"nan", b"-", b"N/A", b""):
        found = parts(WIDE.replace(b"930", nothing), **TWO)
        assert [name for name, *_ in rows(found[3])] == ["lat"]
        assert found[0].measured.warnings == (
            "fields that are empty, or such as NA, which count neither as a number nor as 0: 2",
        )
    text = b"fs,r,n,metric\nxfs,1,1,1\next4,1,,1\next4,2,,1\nxfs,1,,2\n"
    for options in ({}, {"round_column": "r"}, {"metric_column": "metric"}):
        found = parts(text, value=["n"], factor_column=["fs"], **options)
        failed = [(part.levels["fs"], part.reason) for part in found if part.status == "failed"]
        assert failed[0] == ("ext4", "line 3 of the table has no figure")
        assert {level for level, _ in failed} == {"ext4"} or not options


def test_columns_that_nobody_speaks_of_make_no_cells_one_and_may_hold_times_and_measured_figures() -> None:
    text = b"fs,at,other,cpu,note,IOPS\nxfs,2024-01-01 10:00:00,1.5 ms,1,a,5\nxfs,2024-01-01 11:00:00,,NA,b,6\n"
    assert len(parts(text, value=["IOPS"], ignore_column=["note"])) == 2
    assert len(parts(text, value=["IOPS"], factor_column=["note"])) == 2
    with pytest.raises(ParseError, match="--factor-column note if it tells set-ups apart, --ignore-column note if not"):
        parts(text, value=["IOPS"])


@pytest.mark.parametrize("name", SUGGESTED)
def test_a_suggestion_works_as_it_is_and_gives_what_the_table_has(name: str) -> None:
    text = (HERE / "golden" / name).read_bytes()
    assert [signature.kind for signature in signatures_of(text)] == ["csv"]
    suggestion = suggestion_for(text, name)
    assert suggestion is not None and (shlex.join(suggestion.words), suggestion.fault) == (SUGGESTED[name]["words"], "")
    for part, trial in zip(parts(text, **suggestion.options), SUGGESTED[name]["trials"], strict=True):
        figures = [f"{metric} {value:.6g} {unit}" for metric, value, unit, _ in rows(part)]
        assert [*part.levels.values(), part.round or 0, *figures] == trial


def test_what_a_suggestion_can_not_help_with_is_named_at_once() -> None:
    faults = {b"fs;IOPS\nx;98,400\n": "say --decimal ,", b"fs;IOPS\nx;1\n\xb5;2\n": "is no text in UTF-8"}
    for text, fault in faults.items():
        suggestion = suggestion_for(text, "x")
        assert suggestion is not None and fault in suggestion.fault
    assert suggestion_for(b"a,b\nx,y\n", "x") is None
    assert signatures_of(b"\tIozone: File I/O\n\tVersion 3.489\n") == []


def test_rows_that_are_equal_are_repeats_and_numbered_rounds_their_rounds_also_with_empty_fields() -> None:
    twice = parts(b"fs,IOPS\nxfs,1\nxfs,1\n", value=["IOPS"], factor_column=["fs"])
    assert [(part.levels["fs"], part.round) for part in twice] == [("xfs", None), ("xfs", None)]
    numbered = parts(b"fs,r,IOPS\nxfs,2,1\next4,2,1\nxfs,5,1\n", value=["IOPS"], factor_column=["fs"], round_column="r")
    assert [(part.levels["fs"], part.round) for part in numbered] == [("xfs", 2), ("ext4", 2), ("xfs", 5)]
    text = b"fs,read,write\next4,100,NA\nxfs,90,50\nxfs,91,51\next4,NA,61\n"
    found = parts(text, value=["read::higher", "write::higher"], factor_column=["fs"])
    assert [(part.levels["fs"], [value for _, value, *_ in rows(part)]) for part in found] == [
        ("ext4", [100]),
        ("xfs", [90, 50]),
        ("xfs", [91, 51]),
        ("ext4", [61]),
    ]


names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=8).filter(
    lambda text: text.isprintable()
)


@given(
    st.lists(st.tuples(names, st.floats(-1e12, 1e12), st.floats(-1e12, 1e12)), min_size=1, max_size=12),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_was_written_is_read_back(table: list[tuple[str, float, float]], delimiter: str, end: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([("set up", "a", "b"), *table])
    found = parts(text.getvalue().encode(), value=["a", "b:%:lower"], factor_column=["set up"])
    assert [(part.levels["set up"], *(value for _, value, *_ in rows(part))) for part in found] == [
        (name, a, b * 0.01) for name, a, b in table
    ]
