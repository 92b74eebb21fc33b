"""Who waited for locks: a row a function, a column a level of the factor that is compared."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.analysis.summary import Estimate, Summary
from storlab.metrics import Declarations, MetricSpec, without_end
from storlab.probes.locks.metrics import (
    CALLER,
    GROUP,
    GROUP_TIME,
    GROUP_WAITS,
    LOCKS,
    PER_OPERATION,
    SHARES,
    TIME,
    WAITS,
)
from storlab.report.document import Table
from storlab.report.language import words
from storlab.report.model.nodes import Grid, Numbers, Row, grid_table, grids
from storlab.report.model.tables import PROBE

_LOCKS = f"{PROBE}locks"
_MOST = 12
"""Callers in a table: those with the longest time, in the level where it is longest."""
_GROUPS = {
    "Time waited for locks by group": GROUP_TIME,
    "Waits for locks by group": GROUP_WAITS,
    "Share of all groups' time waited": SHARES[GROUP_TIME.name],
    "Share of all groups' waits": SHARES[GROUP_WAITS.name],
}
_CALLERS = {"Time waited for locks": TIME, "Waits for locks": WAITS, "Different locks waited for": LOCKS}


def is_in_lock_tables(estimate: Estimate, declared: Declarations) -> bool:
    """Whether it is in these tables, and part of too long a list for any other."""
    return _word(estimate, declared) in (GROUP, CALLER)


def _word(estimate: Estimate, declared: Declarations) -> str:
    return declared[estimate.source].find(estimate.metric).family if without_end(estimate.source) == _LOCKS else ""


def lock_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """Waits and time by group and by caller, for each operation where loads count them; of groups their shares, of
    callers how many different locks there were.
    """
    numbers, tables = Numbers(summary), list[Table]()
    listed = [e for e in summary.estimates if is_in_lock_tables(e, declared)]
    for source in dict.fromkeys(e.source for e in listed):
        end = source.removeprefix(_LOCKS)
        for grid in grids(summary):
            mine = [e for e in listed if e.source == source and e.cell in grid.cells.values()]
            for word, kinds, time in ((GROUP, _GROUPS, GROUP_TIME), (CALLER, _CALLERS, TIME)):
                names = _longest([e for e in mine if _word(e, declared) == word], declared, time)
                for what, spec in kinds.items():
                    shown, each = _divided(spec, mine)
                    rows = [
                        Row(_label(name), (source, shown.name.format(**{word: name}), None), like=what)
                        for name in names
                    ]
                    tables += grid_table(f"{what}{each}{_where(grid, end)}", grid, rows, numbers, of="who waited")
    return tables


def _divided(spec: MetricSpec, estimates: Sequence[Estimate]) -> tuple[MetricSpec, str]:
    """What is shown of it, and what that is divided by."""
    per = PER_OPERATION.get(spec.name)
    if per is None or not any(e.metric.startswith(per.name.partition("{")[0]) for e in estimates):
        return spec, ""
    return per, " per operation"


def _longest(estimates: Sequence[Estimate], declared: Declarations, time: MetricSpec) -> list[str]:
    times: dict[str, float] = {}
    for e in estimates:
        spec = declared[e.source].find(e.metric)
        if e.metric == time.name.format(**{spec.family: spec.subject}):
            times[spec.subject] = max(e.mean, times.get(spec.subject, 0.0))
    return sorted(times, key=lambda name: -times[name])[:_MOST]


def _label(name: str) -> str:
    """ "zio_dva_throttle (mutex)", or the name of a group."""
    lock, _, function = name.partition(".")
    return f"{function} ({lock})" if function else name


def _where(grid: Grid, end: str) -> str:
    said = ", ".join(part for part in (end, words.levels(grid.within)) if part)
    return f": {said}" if said else ""
