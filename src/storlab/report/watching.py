"""How probes watched, as a table: by which hook of the kernel, which disks, and why so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storlab.analysis.summary import Summary
from storlab.report.factsheet import facts_of
from storlab.report.tables import ALL_CELLS, Table, together
from storlab.report.words import compact

_PLACES = ("probe", "nodes", "cells")


def watching_table(summary: Summary) -> Table | None:
    """A row for all places where a probe watched in the same way; ``None`` where no probe says how it did."""
    entries: list[Mapping[str, Any]] = list(summary.facts.get("probes") or ())  # type: ignore[call-overload]
    if not entries:
        return None
    facts = [{f.name: f.text for f in facts_of({k: v for k, v in e.items() if k not in _PLACES})} for e in entries]
    names = list(dict.fromkeys(name for each in facts for name in each))
    rows = [
        (
            str(entry["probe"]),
            compact(entry["nodes"]),
            _cells(summary, entry["cells"]),
            *(own.get(n, "") for n in names),
        )
        for entry, own in zip(entries, facts, strict=True)
    ]
    kept = [i for i in range(len(_PLACES) + len(names)) if i != 2 or any(row[2] != ALL_CELLS for row in rows)]
    columns = (*_PLACES, *names)
    drawn = tuple(tuple(row[i] for i in kept) for row in rows)
    return Table("How probes watched", tuple(columns[i] for i in kept), drawn, len(kept))


def _cells(summary: Summary, cells: list[int]) -> str:
    """What to call them among the cells that were measured."""
    measured = [state for state in summary.cells if state.rounds]
    own = [state for state in measured if state.cell in cells]
    return ALL_CELLS if own == measured else together(own, measured)
