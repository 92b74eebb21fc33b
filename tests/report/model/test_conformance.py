"""The table of what programs may rely on: a line a check, a column a set-up, the worst outcome in it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from storlab.report.formats import render
from storlab.report.model.conformance import conformance_tables, worst
from storlab.report.model.input import ReportInput

from ..sample import sample
from ..vm_sample import GUESTS, ROUNDS, vm_sample


@pytest.fixture(scope="module")
def given() -> ReportInput:
    return vm_sample()


def test_each_check_has_a_line_with_the_worst_outcome_and_how_often_it_was_so(given: ReportInput) -> None:
    (table,) = conformance_tables(given)
    assert [row[0] for row in table.rows] == ["fsync", "birth-time", "flock"]
    flock = dict(zip(table.columns, table.rows[2], strict=True))
    assert flock["raw, 4k"] == f"✗ fail (1 of {ROUNDS * len(GUESTS)}) [2]"
    assert flock["raw, bs=512"] == "✓ pass"
    assert table.notes[1].startswith("flock(LOCK_EX) beside LOCK_SH succeeds")


def test_a_factor_that_makes_no_difference_has_no_columns_of_its_own(given: ReportInput) -> None:
    (table,) = conformance_tables(replace(given, checks=given.checks.filter(check="birth-time")))
    assert table.columns == ("check", "zvol", "zvol-async", "zfs-file", "raw", "qcow2")
    assert table.rows[0][1:3] == ("− unsupported [1]",) * 2


def test_the_brief_one_has_in_one_line_what_passed_everywhere(given: ReportInput) -> None:
    (table,) = conformance_tables(given, brief=True)
    assert [row[0] for row in table.rows] == ["birth-time", "flock", "1 other check"]


def test_of_several_outcomes_the_worst_counts_and_only_its_reasons() -> None:
    found = worst([("pass", "a remark"), ("fail", "b"), ("unsupported", "c"), ("fail", "b")])
    assert (found.outcome, found.count, found.times, found.reasons) == ("fail", 2, 4, ("b",))


@pytest.mark.parametrize("name", ["text", "md", "html", "adoc"])
def test_every_report_that_is_read_has_it(given: ReportInput, name: str) -> None:
    assert "Conformance" in render(given, name)
    assert "statx gives no birth time" in render(given, name)
    assert "Conformance" not in render(sample(), name)


def test_json_and_csv_have_each_check_of_each_cell(given: ReportInput) -> None:
    entries = json.loads(render(given, "json"))["facts"]["checks"]
    rows = [row for row in csv.DictReader(io.StringIO(render(given, "csv"))) if row["kind"] == "check"]
    assert len(entries) == len(rows) == 3 * 10
    (failed,) = (entry for entry in entries if entry["outcome"] == "fail")
    assert (failed["check"], failed["count"], failed["times"]) == ("flock", 1, ROUNDS * len(GUESTS))
    (row,) = (row for row in rows if row["verdict"] == "fail")
    assert (row["metric"], row["factor.backing"], row["value"]) == ("flock", "raw", "1")
