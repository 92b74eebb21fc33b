"""Tables: questions with values beside ratios, many cells as a grid, and the factors and units that they show."""

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.analysis.summary import CellState, Estimate, Summary
from storlab.report.document import Document, Group, Table
from storlab.report.formats.csv import render_csv
from storlab.report.formats.terminal import Shown, in_columns, parts_of
from storlab.report.model.input import ReportInput, split
from storlab.report.model.questions import Values, matrix_tables
from storlab.report.model.tables import MANY, further_tables, grid_table, measured_tables

from ..sample import sample
from ..shown import lines, questions, section, tables, text_of
from ..vm_sample import vm_sample

NOTHING = Summary("", "", 0.95, 0, None)


def test_a_question_has_a_row_a_comparison_and_more_than_three_are_a_matrix() -> None:
    run = sample()
    first = tuple(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    one = replace(run, summary=replace(run.summary, comparisons=first))
    assert "matrix" not in [table.title for table in tables(section(one, "comparisons").blocks)]
    table, each = tables(questions(one)[0].blocks)
    assert table.columns == ("filesystem", "mean", "against", "mean", "ratio")
    assert table.rows[0] == ("ext4", "47.3 ±1.6 MiB/s", "xfs", "33.0 ±0.8 MiB/s", "▲ 1.43× (1.35 to 1.52)")
    assert table.plot is not None and table.plot.title == "first ÷ second" and None not in table.plot.spans
    assert each.columns == ("filesystem", "mean", "95 % interval", "spread", "rounds"), "with how much each varies"
    (matrix, *_) = tables(section(run, "comparisons").blocks)
    assert matrix.rows[0][0] == "write.bandwidth: random-write"
    assert matrix.rows[0][-6:] == ("47.3 MiB/s", "33.0 MiB/s", "9.1 MiB/s", "▲ 1.43×", "▲ 5.21×", "▲ 3.64×")


def test_the_better_side_is_first_and_its_ratio_above_1_whether_more_is_better_or_less() -> None:
    run = sample()
    one = next(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    worse = replace(one, a=one.b, b=one.a, ratio=1 / one.ratio, low=1 / one.high, high=1 / one.low, verdict="worse")  # type: ignore[operator]
    less = replace(worse, better="lower", verdict="better")
    for each, title in ((one, "ext4 ÷ xfs"), (worse, "ext4 ÷ xfs"), (less, "ext4 ÷ xfs")):
        (group,) = questions(replace(run, summary=replace(run.summary, comparisons=(each,))))
        (row,) = tables(group.blocks)[0].rows
        plot = tables(group.blocks)[0].plot
        assert plot is not None and plot.title == title and plot.spans[0] is not None
        assert row[-1] == "▲ 1.43× (1.35 to 1.52)" and plot.spans[0].low == pytest.approx(one.low)
        assert (row[0], row[2]) == (("xfs", "ext4") if each is less else ("ext4", "xfs"))


def test_what_is_undecided_is_folded_below_what_is_decided() -> None:
    run = sample()
    first = [c for c in run.summary.comparisons if c.metric == "write.bandwidth"]
    open_ = replace(first[1], verdict="undecided", rounds_to_decide=4)
    (group,) = questions(replace(run, summary=replace(run.summary, comparisons=(first[0], open_))))
    assert [len(table.rows) for table in tables(group.blocks)[:2]] == [1, 1]
    assert next(block.title for block in group.blocks if isinstance(block, Group)) == "1 undecided"
    assert lines(group.blocks)[0].startswith(f"? ext4 against {open_.b}: undecided. About 4 more rounds")


def test_the_terminal_shows_two_screens_and_breaks_headings_at_hyphens() -> None:
    brief, full = text_of(vm_sample(), 100), text_of(vm_sample(), 100, full=True)
    assert brief.count("\n") <= 100 < full.count("\n") and "--full" in brief
    assert "--full" not in full
    lines = drawn(grid(cells()), 56).splitlines()
    assert "continued" not in "".join(lines)
    assert any(line.endswith("fast-but-") for line in lines)


def test_rows_of_pooled_comparisons_have_no_values() -> None:
    run = sample()
    each = tuple(replace(c, pooled=True) for c in run.summary.comparisons if c.metric == "write.bandwidth")
    (table,) = tables(questions(replace(run, summary=replace(run.summary, comparisons=each)))[0].blocks)
    assert table.columns == ("filesystem", "against", "ratio")
    assert [row[:2] for row in table.rows] == [("ext4", "xfs"), ("ext4", "btrfs"), ("xfs", "btrfs")]
    assert table.plot is not None and len(table.plot.spans) == len(each) and None not in table.plot.spans


def test_a_matrix_names_what_tells_its_rows_apart_and_what_they_share() -> None:
    run = sample()
    first = next(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    single = [replace(first, within={"bs": bs, "rw": rw}) for bs in ("4k", "64k") for rw in ("read", "write")]
    pooled = [replace(first, pooled=True, within=within) for within in ({"bs": "4k"}, {})]
    (matrix,) = matrix_tables([[c] for c in (*pooled, *single)], Values(NOTHING))
    assert matrix.columns[:2] == ("bs", "rw")
    assert [row[:2] for row in matrix.rows[:3]] == [("4k", "all"), ("all", "all"), ("4k", "read")]
    withins: tuple[dict[str, str], ...] = ({"bs": "4k"}, {"bs": "64k"}, {"bs": "4k", "rw": "read"}, {})
    (matrix,) = matrix_tables([[replace(first, pooled=True, within=within)] for within in withins], Values(NOTHING))
    assert matrix.columns[:2] == ("bs", "rw")
    assert [row[:2] for row in matrix.rows] == [("4k", "all"), ("64k", "all"), ("4k", "read"), ("all", "all")]
    few: list[tuple[bool, dict[str, str]]] = [
        *((False, {"bs": "4k", "rw": rw}) for rw in ("read", "write")),
        (True, {}),
    ]
    questions = [[replace(first, pooled=is_pooled, within=within)] for is_pooled, within in few]
    (matrix,) = matrix_tables(questions, Values(NOTHING))
    assert "bs=4k" not in matrix.title and matrix.columns[:2] == ("bs", "rw")
    pooled = [replace(c, pooled=True, within={"bs": "4k"}) for c in run.summary.comparisons]
    (matrix,) = matrix_tables([[c] for c in pooled], Values(NOTHING))
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
    assert sum("[1]" in cell for row in table.texts()[1] for cell in row) == 1


def test_a_grid_has_the_factor_with_fewest_levels_side_by_side_in_the_runs_order() -> None:
    found = grid(cells())
    assert found.columns == ("workload", *TESTS) and found.texts()[0][1] == "workload [1]"
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
    one = estimates(cells(), warnings=(FEW, "Round 2 is odd."))[0]
    noted = grid_table([one, *every[1:]], cells())
    assert noted is not None and noted.texts()[1][0][1].endswith("[2]") and not noted.texts()[1][1][1].endswith("]")


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
    return in_columns(Shown(Document("", (table,))), width)


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
    shown = text_of(with_one_level(sample()), 100, full=True)
    assert shown.replace(" · everywhere scheduler=kyber", "") == text_of(sample(), 100, full=True)
    run = with_one_level(sample())
    first = run.summary.cells[0].cell
    found = replace(
        run.summary, cells=run.summary.cells[:1], estimates=tuple(e for e in run.summary.estimates if e.cell == first),
        comparisons=(), by_node=(),
    )  # fmt: skip
    assert "kyber" in text_of(replace(run, summary=found), 100)
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
