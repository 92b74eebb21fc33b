"""Tables of any origin: what their columns are is said by their user."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.records.importers.base import Part
from storlab.records.importers.table import TableImporter

WIDE = b"fs,rep,IOPS,lat\nxfs,1,1000,1.5\next4,1,900,1.7\nxfs,2,1010,\next4,2,930,1.6\n"
TWO = {"value": ["IOPS:1/s:higher", "lat:ms:lower"], "factor_column": ["fs"]}


def parts(text: bytes, **options: Any) -> list[Part]:
    return list(TableImporter().read(text, "x.csv", options))


def rows(part: Part) -> list[tuple[str, float, str, str]]:
    return list(part.measured.metrics.select("metric", "value", "unit", "better").iter_rows())


def test_a_wide_table_has_a_metric_for_each_column() -> None:
    found = parts(WIDE, **TWO)
    assert [part.levels["fs"] for part in found] == ["xfs", "ext4", "xfs", "ext4"]
    assert rows(found[0]) == [("IOPS", 1000, "1/s", "higher"), ("lat", 0.0015, "s", "lower")]
    assert rows(found[2]) == [("IOPS", 1010, "1/s", "higher")]  # an empty field is no 0
    assert [part.round for part in parts(WIDE, **TWO, round_column="rep")] == [1, 1, 2, 2]


def test_a_long_table_has_a_column_that_names_the_metric() -> None:
    text = b"fs;metric;number\nxfs;iops;1000\nxfs;lat;2\next4;iops;900\next4;lat;3\nxfs;iops;1100\n"
    found = parts(text, value=["number"], factor_column=["fs"], metric_column="metric")
    assert [(part.levels["fs"], [name for name, *_ in rows(part)]) for part in found] == [
        ("xfs", ["iops", "lat"]),
        ("ext4", ["iops", "lat"]),
        ("xfs", ["iops"]),
    ]
    assert TableImporter().primary_of(found, {}) == "iops"


def test_rows_with_times_are_a_series_and_its_mean() -> None:
    text = b"ms\tfs\tMB\n0\txfs\t1\n500\txfs\t3\n0\text4\t7\n"
    xfs, ext4 = parts(text, value=["MB:MB/s:higher"], factor_column=["fs"], time_column="ms:ms")
    assert xfs.measured.series.select("t", "value").rows() == [(0.0, 1e6), (0.5, 3e6)]
    assert rows(xfs) == [("MB", 2e6, "B/s", "higher")]
    assert rows(ext4) == [("MB", 7e6, "B/s", "higher")]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (b"", TWO, 'x.csv:1: has no column "IOPS"; its first line names nothing'),
        (WIDE, {"value": ["iops"]}, 'x.csv:1: has no column "iops"; its first line names "fs", "rep", "IOPS", "lat"'),
        (WIDE.replace(b"930", b"9 30"), TWO, 'x.csv:5: column "IOPS": "9 30" is no number'),
        (WIDE.replace(b"930", b"nan"), TWO, 'x.csv:5: column "IOPS": "nan" is no number'),
        (WIDE.replace(b"ext4,1,900", b"ext4,900"), TWO, "x.csv:3: has 3 fields, and the first line 4"),
        (WIDE, {**TWO, "round_column": "lat"}, 'x.csv: the column "lat" was given twice'),
        (WIDE, {"value": ["IOPS"], "round_column": "fs"}, 'x.csv:2: column "fs": "xfs" is no round'),
        (WIDE.replace(b"xfs,2", b"xfs,1"), {**TWO, "round_column": "rep"}, 'x.csv:4: "IOPS" of round 1 comes twice'),
        (WIDE.replace(b"1.7", b'"1.7'), TWO, "x.csv:5: is no CSV"),
        (b"\xff\xfe\x00", TWO, "x.csv:1: is no text in UTF-8"),
        (bytes(256), TWO, "x.csv:1: "),
        (b"fs,IOPS,lat\n", TWO, "x.csv: has no row with a number"),
        (WIDE.replace(b"ext4,1", b"e" * 64 + b",1"), TWO, 'x.csv:3: column "fs"'),
        (WIDE, {}, "x.csv: --value is needed"),
        (WIDE, {"value": ["IOPS:furlong"]}, 'x.csv: --value "IOPS:furlong": write NAME:UNIT:BETTER'),
        (WIDE, {"value": ["IOPS:1/s:best"]}, 'x.csv: --value "IOPS:1/s:best": "best" is none of higher'),
        (WIDE, {"value": ["IOPS"], "time_column": "rep:B"}, 'x.csv: --time-column "rep:B"'),
        (WIDE, {"value": ["IOPS"], "factor_column": ["IOPS"]}, 'x.csv: the column "IOPS" was given twice'),
        (WIDE, {"value": ["IOPS", "lat"], "metric_column": "fs"}, "x.csv: with --metric-column"),
    ],
)
def test_a_fault_is_named_with_line_and_column(text: bytes, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ParseError) as refused:
        parts(text, **options)
    assert str(refused.value).startswith(says)


def test_a_last_line_that_was_cut_is_left_out_with_a_warning() -> None:
    found = parts(WIDE[:-10], **TWO)
    assert len(found) == 3
    assert found[0].measured.warnings == ("line 5 is cut short and left out",)


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


@given(st.binary(max_size=80), st.integers(0, len(WIDE)), st.integers(0, 20))
def test_damage_is_read_or_refused_and_never_fails_otherwise(new: bytes, at: int, length: int) -> None:
    try:
        found = parts(WIDE[:at] + new + WIDE[at + length :], **TWO)
    except ParseError:
        return
    assert all(part.measured.metrics["value"].is_finite().all() for part in found)
