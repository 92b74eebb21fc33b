"""The page of two sides of a suite's runs, compared."""

from __future__ import annotations

import pytest

from analysis.suite.simulated import run_of
from storlab.analysis.suite.comparing import Side, compare_runs
from storlab.report.suite.pages.changes import changes_page


@pytest.mark.parametrize(("before", "after"), [("PFFFFFFFFF", "FPPPPPPPPP"), ("FPPPPPPPPP", "PFFFFFFFFF")])
def test_groups_that_changed_one_way_are_as_unlikely_as_those_that_changed_the_other(before: str, after: str) -> None:
    sides = [
        Side(label, (run_of({f"group{at}/test": letter for at, letter in enumerate(letters)}, number),))
        for number, (label, letters) in enumerate((("A", before), ("B", after)))
    ]
    page = changes_page(compare_runs(sides[0], [], sides[1:]), [])
    (said,) = [note for note in page.notes if "one-sided" in note]
    assert said.endswith("flakiness alone would be as one-sided, either way, with a probability of 2.1 %.")
