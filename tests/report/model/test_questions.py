"""Questions in tables: values beside ratios, and many questions as a matrix."""

from __future__ import annotations

from dataclasses import replace

from storlab.report.formats.terminal import render_text
from storlab.report.model.questions import Values, matrix_tables
from storlab.report.model.view import View

from ..sample import sample
from ..vm_sample import vm_sample


def test_a_question_has_values_and_ratios_in_one_table() -> None:
    table = View(sample()).verdicts[0].table
    assert table.columns == ("filesystem", "mean", "spread", "rounds", "vs xfs", "vs btrfs")
    assert table.rows[0][:2] == ("ext4", "47.3 ±1.6 MiB/s")
    assert table.rows[0][4].startswith("▲ 1.43× (1.35 to 1.52)")


def test_more_than_three_questions_are_one_matrix_and_every_number_of_it_is_in_one_unit() -> None:
    (matrix,) = View(sample()).matrix
    assert matrix.rows[0][0] == "write.bandwidth: random-write"
    assert matrix.rows[0][-6:] == ("47.3 MiB/s", "33.0 MiB/s", "9.1 MiB/s", "▲ 1.43×", "▲ 5.21×", "▲ 3.64×")


def test_few_questions_need_no_matrix() -> None:
    run = sample()
    first = tuple(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    assert View(replace(run, summary=replace(run.summary, comparisons=first))).matrix == []


def test_levels_that_nobody_compared_stand_beside_those_that_are() -> None:
    shown = View(vm_sample())
    assert {"raw", "qcow2"} <= {row[0] for row in shown.verdicts[0].table.rows}
    assert shown.measured == []


def test_the_terminal_shows_two_screens_and_names_what_it_leaves_out() -> None:
    brief, full = render_text(vm_sample(), 100), render_text(vm_sample(), 100, full=True)
    assert brief.count("\n") <= 100 < full.count("\n")
    assert "--full" in brief
    assert "--full" not in full


def test_pairs_that_have_nothing_in_common_are_named_beside_their_ratios() -> None:
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


def test_a_row_of_a_pooled_question_which_has_no_values_is_a_comparison() -> None:
    run = sample()
    pooled = tuple(replace(c, pooled=True) for c in run.summary.comparisons if c.metric == "write.bandwidth")
    table = View(replace(run, summary=replace(run.summary, comparisons=pooled))).verdicts[0].table
    assert table.columns == ("filesystem", "vs", "ratio")
    assert [row[:2] for row in table.rows] == [("ext4", "xfs"), ("ext4", "btrfs"), ("xfs", "btrfs")]
    assert len(table.spans) == len(pooled) and None not in table.spans


def test_a_row_that_pools_some_combinations_names_the_levels_that_it_does_not_pool() -> None:
    run = sample()
    first = next(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    single = [replace(first, within={"bs": bs, "rw": rw}) for bs in ("4k", "64k") for rw in ("read", "write")]
    pooled = [replace(first, pooled=True, within=within) for within in ({"bs": "4k"}, {})]
    (matrix,) = matrix_tables([[c] for c in (*pooled, *single)], Values(()))
    assert matrix.columns[:2] == ("bs", "rw")
    assert [row[:2] for row in matrix.rows[:3]] == [("4k", "all"), ("all", "all"), ("4k", "read")]


def test_a_matrix_of_pooled_rows_alone_names_what_tells_them_apart() -> None:
    run = sample()
    first = next(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    withins: tuple[dict[str, str], ...] = ({"bs": "4k"}, {"bs": "64k"}, {"bs": "4k", "rw": "read"}, {})
    (matrix,) = matrix_tables([[replace(first, pooled=True, within=within)] for within in withins], Values(()))
    assert matrix.columns[:2] == ("bs", "rw")
    assert [row[:2] for row in matrix.rows] == [("4k", "all"), ("64k", "all"), ("4k", "read"), ("all", "all")]


def test_a_level_that_a_pooled_row_leaves_open_does_not_stand_in_the_title() -> None:
    run = sample()
    first = next(c for c in run.summary.comparisons if c.metric == "write.bandwidth")
    withins = [(False, {"bs": "4k", "rw": rw}) for rw in ("read", "write")] + [(True, {})]
    questions = [[replace(first, pooled=pooled, within=within)] for pooled, within in withins]
    (matrix,) = matrix_tables(questions, Values(()))
    assert "bs=4k" not in matrix.title and matrix.columns[:2] == ("bs", "rw")


def test_a_matrix_of_several_metrics_names_the_levels_that_all_its_rows_share() -> None:
    run = sample()
    pooled = [replace(c, pooled=True, within={"bs": "4k"}) for c in run.summary.comparisons]
    (matrix,) = matrix_tables([[c] for c in pooled], Values(()))
    assert matrix.title == "By filesystem, bs=4k"
