"""Questions in tables: values beside ratios, and many questions as a matrix."""

from __future__ import annotations

from dataclasses import replace

from storlab.report.formats.terminal import render_text
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
