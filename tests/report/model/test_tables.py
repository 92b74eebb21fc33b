"""Tables: questions with values beside ratios, many cells as a grid, and the factors and units that they show."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Group

from storlab.analysis.summary import CellState, Estimate
from storlab.report.formats.csv import render_csv
from storlab.report.formats.drawing import in_columns, parts_of, section
from storlab.report.formats.terminal import render_text
from storlab.report.model.grid import MANY, further_tables, grid_table, measured_tables
from storlab.report.model.input import ReportInput, split
from storlab.report.model.questions import Values, matrix_tables
from storlab.report.model.tables import Table
from storlab.report.model.view import View

from ..sample import sample
from ..vm_sample import vm_sample


def test_a_question_is_a_table_of_values_and_ratios_and_more_than_three_are_a_matrix() -> None:
    table = View(sample()).verdicts[0].table
    assert table.columns == ("filesystem", "mean", "spread", "rounds", "vs xfs", "vs btrfs")
    assert table.rows[0][:2] == ("ext4", "47.3 ±1.6 MiB/s")
    assert table.rows[0][4].startswith("▲ 1.43× (1.35 to 1.52)")
    (matrix,) = View(sample()).matrix
    assert matrix.rows[0][0] == "write.bandwidth: random-write"
    assert matrix.rows[0][-6:] == ("47.3 MiB/s", "33.0 MiB/s", "9.1 MiB/s", "▲ 1.43×", "▲ 5.21×", "▲ 3.64×")
    run = sample()
    first = tuple(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    assert View(replace(run, summary=replace(run.summary, comparisons=first))).matrix == []
    shown = View(vm_sample())
    assert {"raw", "qcow2"} <= {row[0] for row in shown.verdicts[0].table.rows}
    assert shown.measured == []


def test_the_terminal_shows_two_screens_and_breaks_headings_at_hyphens() -> None:
    brief, full = render_text(vm_sample(), 100), render_text(vm_sample(), 100, full=True)
    assert brief.count("\n") <= 100 < full.count("\n")
    assert "--full" in brief
    assert "--full" not in full
    lines = drawn(grid(cells()), 56).splitlines()
    assert "continued" not in "".join(lines)
    assert any(line.endswith("fast-but-") for line in lines)


def test_pairs_are_rows_where_they_have_nothing_in_common_or_are_pooled() -> None:
    run = sample()
    first = [c for c in run.summary.comparisons if c.metric == "write.bandwidth"]
    (one, *_), (other, *_) = ([c for c in first if c.a == a] for a in ("ext4", "xfs"))
    assert one.b != other.b
    summary = replace(run.summary, comparisons=(one, other))
    table = View(replace(run, summary=summary)).verdicts[0].table
    assert table.columns[-2:] == ("vs", "ratio")
    told = {row[0]: row[-2:] for row in table.rows}
    assert told["ext4"][0] == one.b and told["ext4"][1].startswith("▲") and told["xfs"][0] == other.b
    assert told["btrfs"] == ("", "") and sum(span is not None for span in table.spans) == 2
    pooled = replace(run, summary=replace(summary, comparisons=tuple(replace(c, pooled=True) for c in (one, other))))
    table = View(pooled).verdicts[0].table
    assert [row[0] for row in table.rows] == ["ext4", "xfs"] and table.columns == ("filesystem", "vs", "ratio")
    each = tuple(replace(c, pooled=True) for c in run.summary.comparisons if c.metric == "write.bandwidth")
    table = View(replace(run, summary=replace(run.summary, comparisons=each))).verdicts[0].table
    assert table.columns == ("filesystem", "vs", "ratio")
    assert [row[:2] for row in table.rows] == [("ext4", "xfs"), ("ext4", "btrfs"), ("xfs", "btrfs")]
    assert len(table.spans) == len(each) and None not in table.spans


def test_a_matrix_names_what_tells_its_rows_apart_and_what_they_share() -> None:
    run = sample()
    first = next(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    single = [replace(first, within={"bs": bs, "rw": rw}) for bs in ("4k", "64k") for rw in ("read", "write")]
    pooled = [replace(first, pooled=True, within=within) for within in ({"bs": "4k"}, {})]
    (matrix,) = matrix_tables([[c] for c in (*pooled, *single)], Values(()))
    assert matrix.columns[:2] == ("bs", "rw")
    assert [row[:2] for row in matrix.rows[:3]] == [("4k", "all"), ("all", "all"), ("4k", "read")]
    withins: tuple[dict[str, str], ...] = ({"bs": "4k"}, {"bs": "64k"}, {"bs": "4k", "rw": "read"}, {})
    (matrix,) = matrix_tables([[replace(first, pooled=True, within=within)] for within in withins], Values(()))
    assert matrix.columns[:2] == ("bs", "rw")
    assert [row[:2] for row in matrix.rows] == [("4k", "all"), ("64k", "all"), ("4k", "read"), ("all", "all")]
    few: list[tuple[bool, dict[str, str]]] = [
        *((False, {"bs": "4k", "rw": rw}) for rw in ("read", "write")),
        (True, {}),
    ]
    questions = [[replace(first, pooled=is_pooled, within=within)] for is_pooled, within in few]
    (matrix,) = matrix_tables(questions, Values(()))
    assert "bs=4k" not in matrix.title and matrix.columns[:2] == ("bs", "rw")
    pooled = [replace(c, pooled=True, within={"bs": "4k"}) for c in run.summary.comparisons]
    (matrix,) = matrix_tables([[c] for c in pooled], Values(()))
    assert matrix.title == "By filesystem, bs=4k"


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
        "source": "load", "metric": "bandwidth", "unit": "B/s", "better": "higher", "rounds": 3, "median": 2e6,
        "mean": 2e6, "sd": 1e5, "cv": 0.05, "low": 1.9e6, "high": 2.1e6, "confidence": 0.95, "warnings": (FEW,),
        **more,
    }  # fmt: skip
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


def test_a_grid_has_the_factor_with_fewest_levels_side_by_side_in_the_runs_order() -> None:
    found = grid(cells())
    assert found.columns == ("workload [1]", *TESTS)
    assert [row[0] for row in found.rows] == list(WORKLOADS)
    assert found.notes == (FEW,), "what is said of all is said once, and not at each number"
    assert found.rows[0][1] == "1950 ±100"
    assert found.caption == "higher is better, in KiB/s, mean over 3 rounds ± half of its 95 % interval"
    found = grid(cells(1, 14))
    assert [row[0] for row in found.rows] == list(WORKLOADS), "though the first test lacks the first workload"
    assert found.rows[0][1] == found.rows[1][2] == "unsupported"
    every = estimates(cells())
    small = [replace(every[0], mean=2e3, low=1.9e3, high=2.1e3), *every[1:]]
    mixed = grid_table([replace(e, mean=2e8, low=1.9e8, high=2.1e8) for e in small[1:]] + small[:1], cells())
    assert mixed is not None and (mixed.rows[0][1], mixed.rows[1][1]) == ("2000 ±100 B/s", "191 ±10 MiB/s")
    assert "in MiB/s" not in mixed.caption
    one = estimates(cells(), warnings=(FEW, "Round 2 is an outlier."))[0]
    noted = grid_table([one, *every[1:]], cells())
    assert noted is not None
    assert noted.rows[0][1].endswith("[2]") and not noted.rows[1][1].endswith("]")


def test_few_cells_and_those_of_one_factor_stay_a_row_each_and_further_metrics_a_grid() -> None:
    states = cells()[:MANY]
    (table,) = measured_tables(estimates(states), states)
    assert len(table.rows) == MANY
    states = [CellState(n, {"file": f"{n}.txt"}, "measured", 3) for n in range(40)]
    (table,) = measured_tables(estimates(states), states)
    assert len(table.rows) == 40
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


MORE = {"scheduler": "kyber"}


def with_one_level(given: ReportInput) -> ReportInput:
    """The same run of a study that has one more factor, of one level."""

    def more(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(row, levels=row.levels | MORE) for row in rows)

    found = given.summary
    summary = replace(
        found, cells=more(found.cells), estimates=more(found.estimates), by_node=more(found.by_node),
        comparisons=tuple(replace(c, within=c.within | ({} if c.pooled else MORE)) for c in found.comparisons),
    )  # fmt: skip
    return replace(given, summary=summary)


def test_one_level_is_told_only_of_a_run_with_one_cell_and_to_programs() -> None:
    shown = render_text(with_one_level(sample()), 100, full=True)
    assert shown.replace(" · everywhere scheduler=kyber", "") == render_text(sample(), 100, full=True)
    run = with_one_level(sample())
    first = run.summary.cells[0].cell
    found = replace(
        run.summary, cells=run.summary.cells[:1], estimates=tuple(e for e in run.summary.estimates if e.cell == first),
        comparisons=(), by_node=(),
    )  # fmt: skip
    assert "kyber" in render_text(replace(run, summary=found), 100)
    assert "kyber" in render_csv(with_one_level(sample()))


class One(NamedTuple):
    source: str
    metric: str


HAVE = [
    One("probe:alignment@store", "write.requests"), One("probe:alignment", "write.requests"),
    One("backing@store", "backing.drain"), One("load", "read.bandwidth"), One("load", "write.bandwidth"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("primary", "named"),
    [("bandwidth", HAVE[3:]), ("load:write.bandwidth", HAVE[4:]), ("write.requests", HAVE[1:2]),
     ("probe:alignment:write.requests", HAVE[1:2]), ("probe:alignment@store:write.requests", HAVE[:1]),
     ("drain", HAVE[2:3]), ("backing:backing.drain", HAVE[2:3])],
)  # fmt: skip
def test_the_loads_end_comes_first_and_another_where_only_that_has_the_metric(primary: str, named: list[One]) -> None:
    others = [one for one in HAVE if one not in named]
    assert split(primary, HAVE) == (named, others)


def test_where_it_names_nothing_all_are_as_good() -> None:
    assert split("tps", HAVE) == (HAVE, [])
