"""The page of tests over many runs."""

from __future__ import annotations

from analysis.suite.simulated import run_of
from storlab.analysis.suite.history import history_of
from storlab.report.suite.pages.histories import history_page
from storlab.suite.observed import ObservedRun


def last(*runs: ObservedRun) -> list[str]:
    """The column of what came of the last run."""
    (table,) = history_page(history_of(runs), everything=True).tables
    return [row[table.columns.index("last")] for row in table.rows]


def test_a_retry_of_an_earlier_run_is_none_of_the_last() -> None:
    assert last(run_of({"a": "FP"}), run_of({"a": "FF"}, 1)) == ["FAIL"]
    assert last(run_of({"a": "FF"}), run_of({"a": "FP"}, 1)) == ["FAIL, then PASS"]
    assert last(run_of({"a": "FP"}), run_of({"a": "P"}, 1)) == ["PASS"]
