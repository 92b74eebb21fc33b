"""Steady state as a table: shares stand beside the limits that they are held against."""

from __future__ import annotations

from storlab.analysis.summary import SteadyWindow, Summary
from storlab.report.model.steady import steady_tables
from storlab.report.model.tables import Table


def table(*windows: SteadyWindow) -> Table:
    (only,) = steady_tables(Summary("t", "iops", 0.95, 8, "", steady=windows))
    return only


def window(cell: int, mean: float | None, spread: float | None, slope: float | None, *, steady: bool) -> SteadyWindow:
    return SteadyWindow(cell, {"fs": f"fs{cell}"}, "load", "bandwidth", "B/s", 4, 8, mean, spread, slope, steady)


def test_a_share_just_above_its_limit_does_not_read_as_the_limit() -> None:
    over, within = window(1, 1e6, 0.204, 0.05, steady=False), window(2, 1e6, 0.196, 0.1, steady=True)
    shown = table(over, within)
    assert [row[3:] for row in shown.rows] == [("20.4 %", "5.0 %", "no"), ("19.6 %", "10.0 %", "yes")]


def test_too_few_rounds_have_no_shares() -> None:
    few = table(window(1, None, None, None, steady=False), window(2, 1e6, 0.1, 0.1, steady=True))
    assert few.rows[0][2:] == ("–", "–", "–", "no: too few rounds")
