"""Many cells of two factors and more: a grid, whose rows and columns stand in the run's order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Group

from storlab.analysis.summary import CellState, Estimate, Summary
from storlab.report.formats import render
from storlab.report.formats.drawing import in_columns, parts_of, section
from storlab.report.formats.terminal import render_text
from storlab.report.model.grid import MANY, further_tables, grid_table, measured_tables
from storlab.report.model.input import ReportInput
from storlab.report.model.tables import Table

TESTS = ("plain", "patched", "fast-but-with-a-long-name")
WORKLOADS = tuple(f"workload-{n}" for n in range(12))
FEW = "Only 3 of at least 5 rounds."


def cells(*missing: int) -> list[CellState]:
    """Every test with every workload; ``missing`` ones are unsupported."""
    return [
        CellState(n, {"test": t, "workload": w}, "unsupported" if n in missing else "measured", 3)
        for n, (t, w) in enumerate(product(TESTS, WORKLOADS), start=1)
    ]


def estimates(states: list[CellState], **more: object) -> list[Estimate]:
    fixed: dict[str, object] = {
        "source": "load",
        "metric": "bandwidth",
        "unit": "B/s",
        "better": "higher",
        "rounds": 3,
        "median": 2e6,
        "mean": 2e6,
        "sd": 1e5,
        "cv": 0.05,
        "low": 1.9e6,
        "high": 2.1e6,
        "confidence": 0.95,
        "warnings": (FEW,),
        **more,
    }
    measured = [s for s in states if s.status == "measured"]
    return [Estimate(cell=s.cell, levels=s.levels, **fixed) for s in measured]  # type: ignore[arg-type]


def grid(states: list[CellState]) -> Table:
    found = grid_table(estimates(states), states)
    assert found is not None
    return found


GAPS = "A value in 6 of 20 rounds only: the mean is of these."


@pytest.mark.parametrize("count", [2, len(TESTS) * len(WORKLOADS)])
def test_a_mean_of_fewer_rounds_than_the_cell_has_says_so(count: int) -> None:
    states = [replace(state, rounds=20) for state in cells()[:count]]
    rare = estimates(states[:1], source="probe:disks", metric="writes", rounds=6, warnings=())
    often = estimates(states[1:], source="probe:disks", metric="writes", rounds=20, warnings=())
    (table,) = further_tables([*rare, *often], states)
    assert table.notes == (GAPS,)
    assert sum("[1]" in cell for row in table.rows for cell in row) == 1


@pytest.mark.parametrize("name", ["text", "html", "md"])
def test_gaps_of_a_probe_are_told_in_every_format(name: str) -> None:
    states = tuple(replace(state, rounds=20) for state in cells()[:2])
    found = estimates(list(states), source="probe:disks", metric="writes", rounds=6, warnings=())
    summary = Summary("t", "", 0.95, 20, "", cells=states, estimates=tuple(found))
    text = render_text(ReportInput(summary), full=True) if name == "text" else render(ReportInput(summary), name)
    assert GAPS in " ".join(text.split())


def test_the_factor_with_the_fewest_levels_stands_side_by_side() -> None:
    found = grid(cells())
    assert found.columns == ("workload [1]", *TESTS)
    assert [row[0] for row in found.rows] == list(WORKLOADS)
    assert found.notes == (FEW,), "what is said of all is said once, and not at each number"
    assert found.rows[0][1] == "1950 ±100"
    assert found.caption == "higher is better, in KiB/s, mean over 3 rounds ± half of its 95 % interval"


def test_numbers_of_different_sizes_have_each_their_unit() -> None:
    every = estimates(cells())
    small = [replace(every[0], mean=2e3, low=1.9e3, high=2.1e3), *every[1:]]
    found = grid_table([replace(e, mean=2e8, low=1.9e8, high=2.1e8) for e in small[1:]] + small[:1], cells())
    assert found is not None
    assert (found.rows[0][1], found.rows[1][1]) == ("2000 ±100 B/s", "191 ±10 MiB/s")
    assert "in MiB/s" not in found.caption


def test_a_missing_number_says_why_and_leaves_the_order_as_it_was() -> None:
    found = grid(cells(1, 14))
    assert [row[0] for row in found.rows] == list(WORKLOADS), "though the first test lacks the first workload"
    assert found.rows[0][1] == found.rows[1][2] == "unsupported"


def test_warnings_that_are_not_common_stand_at_their_number() -> None:
    every = estimates(cells())
    one = estimates(cells(), warnings=(FEW, "Round 2 is an outlier."))[0]
    found = grid_table([one, *every[1:]], cells())
    assert found is not None
    assert found.rows[0][1].endswith("[2]") and not found.rows[1][1].endswith("]")


def test_few_cells_stay_a_row_each() -> None:
    states = cells()[:MANY]
    (table,) = measured_tables(estimates(states), states)
    assert len(table.rows) == MANY


def test_many_cells_of_one_factor_stay_a_row_each() -> None:
    states = [CellState(n, {"file": f"{n}.txt"}, "measured", 3) for n in range(40)]
    (table,) = measured_tables(estimates(states), states)
    assert len(table.rows) == 40


def test_further_metrics_of_many_cells_are_a_grid_each() -> None:
    metrics = ("iops", "latency.mean")
    every = [e for metric in metrics for e in estimates(cells(), metric=metric)]
    assert [table.title for table in further_tables(every, cells())] == [f"{metric}: load" for metric in metrics]


@pytest.mark.parametrize("width", [80, 120])
def test_in_a_terminal_a_grid_is_shown_in_parts_that_fit(width: int) -> None:
    lines = drawn(grid(cells()), width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(any(name in line for line in lines) for name in (*TESTS, *WORKLOADS))


def drawn(table: Table, width: int) -> str:
    return in_columns(Group(*section("", [table], width)), width)


def test_long_headings_break_at_hyphens_before_a_grid_is_divided() -> None:
    lines = drawn(grid(cells()), 56).splitlines()
    assert "continued" not in "".join(lines)
    assert any(line.endswith("fast-but-") for line in lines)


name = st.text("abcdefghij-", min_size=1, max_size=10)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 6), st.booleans())
def test_no_part_of_a_table_breaks_a_word(data: st.DataObject, labels: int, numbers: int, divisible: bool) -> None:
    row = st.tuples(*[st.lists(name, min_size=1, max_size=3).map(" ".join)] * labels, *[name] * numbers)
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    columns = tuple(f"c{n}" for n in range(labels + numbers))
    table = Table("t", columns, tuple(rows), labels, divisible=divisible)
    parts = list(parts_of(table, 80))
    assert [c for part in parts for c in part.columns[labels:]] == list(columns[labels:]), "each number once"
    printed = drawn(table, 80)
    assert all(word in printed for each in rows for cell in each for word in cell.split())
