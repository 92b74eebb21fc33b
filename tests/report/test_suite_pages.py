"""The pages of a suite: two sides of its runs compared, and tests over many runs."""

from __future__ import annotations

import pytest

from analysis.suite_runs import run_of
from storlab.analysis.suite.comparing import Side, compare_runs
from storlab.analysis.suite.history import history_of
from storlab.report.suite.pages.changes import changes_page
from storlab.report.suite.pages.histories import history_page
from storlab.suite.observed import ObservedRun


@pytest.mark.parametrize(("before", "after"), [("PFFFFFFFFF", "FPPPPPPPPP"), ("FPPPPPPPPP", "PFFFFFFFFF")])
def test_groups_that_changed_one_way_are_as_unlikely_as_those_that_changed_the_other(before: str, after: str) -> None:
    sides = [
        Side(label, (run_of({f"group{at}/test": letter for at, letter in enumerate(letters)}, number),))
        for number, (label, letters) in enumerate((("A", before), ("B", after)))
    ]
    page = changes_page(compare_runs(sides[0], [], sides[1:]), [])
    (said,) = [note for note in page.notes if "one-sided" in note]
    assert said.endswith("flakiness alone would be as one-sided, either way, with a probability of 2.1 %.")


def last(*runs: ObservedRun) -> list[str]:
    """The column of what came of the last run."""
    (table,) = history_page(history_of(runs), everything=True).tables
    return [row[table.columns.index("last")] for row in table.rows]


def test_a_retry_of_an_earlier_run_is_none_of_the_last() -> None:
    assert last(run_of({"a": "FP"}), run_of({"a": "FF"}, 1)) == ["FAIL"]
    assert last(run_of({"a": "FF"}), run_of({"a": "FP"}, 1)) == ["FAIL, then PASS"]
    assert last(run_of({"a": "FP"}), run_of({"a": "P"}, 1)) == ["PASS"]
