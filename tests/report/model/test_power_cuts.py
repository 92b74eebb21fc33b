"""What power cuts left, beside what the rounds measured: with its interval, and never as safe."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from storlab.report.formats import render
from storlab.report.model.input import ReportInput
from storlab.report.model.power_cuts import PowerCuts, power_cut_tables

from ..sample import sample

CUTS = (
    PowerCuts(1, {"fs": "xfs"}, moments=30, at_risk=21, interval=(0.0, 0.1157)),
    PowerCuts(
        2, {"fs": "ext4"}, moments=30, at_risk=29, broken=27, kinds={"lost": 25, "torn": 2}, interval=(0.735, 0.979),
        notes=("first at moment 2: commit 7 is <lost>",),
    ),
    PowerCuts(3, {"fs": "btrfs"}, why="a control failed: cuts that lose nothing that was completed recover"),
)  # fmt: skip


@pytest.fixture
def given() -> ReportInput:
    return replace(sample(), power_cuts=CUTS)


def test_each_set_up_has_a_line_with_its_interval() -> None:
    (table,) = power_cut_tables(CUTS)
    assert table.columns == ("fs", "moments that broke it", "95 % interval", "at risk")
    assert table.rows == (
        ("xfs", "0 of 30", "0.0 % to 12 %", "21"),
        ("ext4", "27 of 30: 25 lost, 2 torn [1]", "74 % to 98 %", "29"),
        ("btrfs", "no result [2]", "", ""),
    )
    assert table.notes == (
        "first at moment 2: commit 7 is <lost>.",
        "a control failed: cuts that lose nothing that was completed recover.",
    )


@pytest.mark.parametrize("form", ["text", "md", "html", "adoc"])
def test_every_format_for_people_has_it_and_calls_nothing_safe(given: ReportInput, form: str) -> None:
    said = render(given, form)
    assert "After a power cut" in said and "0 of 30" in said
    assert "After a power cut" not in render(sample(), form)


def test_programs_get_it_as_numbers(given: ReportInput) -> None:
    first, _, last = json.loads(render(given, "json"))["facts"]["power_cuts"]
    assert (first["moments"], first["broken"], first["interval"]) == (30, 0, [0.0, 0.1157])
    assert "control" in last["reason"] and "broken" not in last
