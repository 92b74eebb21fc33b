"""Who waited for locks: a row a function, a column a level of the factor that is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storlab.analysis.summary import Estimate, Summary
from storlab.locks.metrics import CALLER, LOCKS, PER_OPERATION, TIME, WAITS
from storlab.metrics import Declarations, MetricSpec, without_end
from storlab.report.model import words
from storlab.report.model.nodes import Grid, Numbers, Row, grid_table, grids
from storlab.report.model.tables import PROBE, Table

_LOCKS = f"{PROBE}locks"
_MOST = 12
"""Callers in a table: those with the longest time, in the level where it is longest."""


def is_of_caller(estimate: Estimate, declared: Declarations) -> bool:
    """Whether it is in these tables, and too long a list for any other."""
    return without_end(estimate.source) == _LOCKS and declared[estimate.source].find(estimate.metric).family == CALLER


def lock_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """Waits and time by caller, for each operation where loads count them, and how many different locks there were."""
    numbers, tables = Numbers(summary), list[Table]()
    of_callers = [e for e in summary.estimates if is_of_caller(e, declared)]
    sources = dict.fromkeys(e.source for e in of_callers)
    for source in sources:
        end = source.removeprefix(_LOCKS)
        for grid in grids(summary):
            mine = [e for e in of_callers if e.source == source and e.cell in grid.cells.values()]
            callers = _longest(mine, declared)
            for what, spec, each in _columns(mine):
                rows = [Row(_label(name), (source, spec.name.format(caller=name), None), like=what) for name in callers]
                tables += grid_table(f"{what}{each}{_where(grid, end)}", grid, rows, numbers, of="who waited")
    return tables


def _columns(estimates: Sequence[Estimate]) -> Iterator[tuple[str, MetricSpec, str]]:
    """What each table is of, and what it is divided by."""
    known = {e.metric for e in estimates}
    for what, spec in (("Time waited for locks", TIME), ("Waits for locks", WAITS)):
        per = PER_OPERATION[spec.name]
        divided = any(name.startswith(per.name.partition("{")[0]) for name in known)
        yield (what, per, " per operation") if divided else (what, spec, "")
    yield "Different locks waited for", LOCKS, ""


def _longest(estimates: Sequence[Estimate], declared: Declarations) -> list[str]:
    times: dict[str, float] = {}
    for e in estimates:
        spec = declared[e.source].find(e.metric)
        if e.metric == TIME.name.format(caller=spec.subject):
            times[spec.subject] = max(e.mean, times.get(spec.subject, 0.0))
    return sorted(times, key=lambda name: -times[name])[:_MOST]


def _label(caller: str) -> str:
    """ "zio_dva_throttle (mutex)"."""
    lock, _, function = caller.partition(".")
    return f"{function} ({lock})"


def _where(grid: Grid, end: str) -> str:
    said = ", ".join(part for part in (end, words.levels(grid.within)) if part)
    return f": {said}" if said else ""
