"""What was found in series, as a table."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from storlab.records.columns import COLUMNS, PLACES
from storlab.records.tables import ExaminedSeries, findings_frame, said_of
from storlab.timeseries.findings import SeriesFindings, findings


def stepped() -> ExaminedSeries:
    values = np.random.default_rng(1).normal(100, 1, 400)
    values[200:] += 20
    found = findings(np.arange(1.0, 401.0), values)
    assert found is not None
    place = {"trial": 3, "round": 2, "cell": 1, "node": None, "source": "load"}
    return ExaminedSeries(place, "iops", "1/s", found)


def test_the_table_has_all_that_is_found() -> None:
    names = [field.name for field in fields(SeriesFindings)]
    assert set(COLUMNS["findings"]) == {*PLACES, "metric", "unit", *names}
    (row,) = findings_frame([stepped()]).iter_rows(named=True)
    assert {name: row[name] for name in names if name != "changes"} == {
        name: value for name, value in vars(stepped().found).items() if name != "changes"
    }
    assert (row["trial"], row["round"], row["node"], row["unit"]) == (3, 2, None, "1/s")


def test_changes_of_the_level_are_rows_within_the_row() -> None:
    (change,) = findings_frame([stepped()])["changes"][0].to_list()
    assert change["t"] == 201.0
    assert change["after"] - change["before"] > 19


def test_nothing_examined_is_a_table_without_rows() -> None:
    assert findings_frame([]).schema == COLUMNS["findings"]


def test_what_matters_is_said() -> None:
    sentences = said_of([stepped()], {})
    assert any(sentence.startswith("load, iops:") for sentence in sentences)
