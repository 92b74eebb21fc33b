"""Steady state as a table: a row a point of the primary metric, over the last rounds that the rule looked at."""

from __future__ import annotations

from storlab.analysis.summary import SteadyWindow, Summary
from storlab.grouping import grouped
from storlab.report.language import format as fmt
from storlab.report.model.tables import Table, heading, split_levels

TITLE = "Steady state"
_CAPTION = "range and slope over the last five rounds, as shares of their mean; SNIA allows 20 % and 10 %"


def steady_tables(summary: Summary) -> list[Table]:
    """One table a metric; none where the study does not stop at steady state."""
    return [_table(rows) for rows in grouped(((w.source, w.metric), w) for w in summary.steady).values()]


def _table(windows: list[SteadyWindow]) -> Table:
    shared, names = split_levels([window.levels for window in windows])
    columns = (*names, "rounds", "mean", "range", "slope", "steady")
    rows = tuple((*(window.levels[name] for name in names), *_cells(window)) for window in windows)
    first = windows[0]
    return Table(heading(first.metric, first.source, shared), columns, rows, len(names), _CAPTION)


def _cells(window: SteadyWindow) -> tuple[str, ...]:
    if window.mean is None:
        return (f"{window.last}", "–", "–", "–", "no: too few rounds")
    mean = fmt.quantity(window.mean, window.unit)
    spread = map(_share, (window.range, window.slope))
    return (f"{window.first} to {window.last}", mean, *spread, "yes" if window.steady else "no")


def _share(share: float | None) -> str:
    """With a tenth of a per cent, which tells 20.4 % from the limit."""
    return "–" if share is None else f"{fmt.number(share * 100, 1)} %"
