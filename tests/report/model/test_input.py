"""What a report shows to people: units by which they know metrics, and the factors that tell cells apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from storlab.report.formats.csv import render_csv
from storlab.report.formats.terminal import render_text
from storlab.report.model.input import ReportInput

from ..sample import sample

ONE = {"scheduler": "kyber"}


def with_one_level(given: ReportInput) -> ReportInput:
    """The same run of a study that has one more factor, of one level."""

    def more(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(row, levels=row.levels | ONE) for row in rows)

    found = given.summary
    summary = replace(
        found,
        cells=more(found.cells),
        estimates=more(found.estimates),
        by_node=more(found.by_node),
        comparisons=tuple(replace(c, within=c.within | ({} if c.pooled else ONE)) for c in found.comparisons),
    )
    return replace(given, summary=summary)


def test_a_factor_with_one_level_is_in_no_heading_beside_others() -> None:
    shown = render_text(with_one_level(sample()), 100, full=True)
    assert shown.replace(" · everywhere scheduler=kyber", "") == render_text(sample(), 100, full=True)


def test_of_a_run_with_one_cell_its_levels_are_told() -> None:
    run = with_one_level(sample())
    first = run.summary.cells[0].cell
    found = replace(
        run.summary,
        cells=run.summary.cells[:1],
        estimates=tuple(e for e in run.summary.estimates if e.cell == first),
        comparisons=(),
        by_node=(),
    )
    assert "kyber" in render_text(replace(run, summary=found), 100)


def test_a_program_reads_every_level() -> None:
    assert "kyber" in render_csv(with_one_level(sample()))
