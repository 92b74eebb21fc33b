"""What the virtual machines of a run were: one row for all that were alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storlab.report import format as fmt
from storlab.report.factsheet import alike, facts_of
from storlab.report.input import Facts, ReportInput
from storlab.report.tables import Table, together
from storlab.report.words import compact

_COLUMNS = {
    "accelerator": "accelerator",
    "machine": "machine",
    "cpu": "CPU model",
    "cpus": "CPUs",
    "memory": "memory",
    "qemu": "QEMU",
    "kernel": "kernel",
    "image": "image",
    "boot": "boot",
    "pinning": "pinning",
}
"""What is shown, in this order, with a column's heading; whatever else is known of a guest follows."""

_APART = frozenset({"disk", "boot_seconds"})  # the disk is in the table of its modes, times are never alike

Row = tuple[tuple[str, str], ...]


def guests_table(given: ReportInput) -> Table | None:
    """A row for all guests that were alike; ``None`` where there were none."""
    found = [(_row(facts), (cell, node)) for cell, nodes in given.guests.items() for node, facts in nodes.items()]
    groups = [(dict(row), places) for row, places in alike(found)]
    if not groups:
        return None
    names = list(dict.fromkeys([*_COLUMNS, *(name for row, _ in groups for name in row)]))
    shown = [name for name in names if any(row.get(name) for row, _ in groups)]
    rows = [
        (_guests(places), _cells(given, places), *(row.get(name, "") for name in shown), _boot_times(given, places))
        for row, places in groups
    ]
    columns = ("guests", "cells", *(_COLUMNS.get(name, name) for name in shown), "boot time")
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    drawn = tuple(tuple(row[i] for i in kept) for row in rows)
    return Table("Guests", tuple(columns[i] for i in kept), drawn, len(kept))


def _row(facts: Facts) -> Row:
    """Name and text of every fact that can be alike; of nested facts each leaf."""
    kept = {name: value for name, value in facts.items() if name not in _APART}
    texts = {fact.name: fact.text for fact in facts_of(kept)}
    memory = facts.get("memory")
    if isinstance(memory, int | float) and not isinstance(memory, bool):
        texts["memory"] = fmt.quantity(float(memory), "B")
    return tuple(texts.items())


def _guests(places: Iterable[tuple[int, str]]) -> str:
    return compact(list(dict.fromkeys(node for _, node in places)))


def _cells(given: ReportInput, places: Iterable[tuple[int, str]]) -> str:
    """Where this is only so in some of the cells in which these guests were: in which."""
    mine, nodes = {cell for cell, _ in places}, {node for _, node in places}
    having = {cell for cell, guests in given.guests.items() if nodes & guests.keys()}
    states = [state for state in given.summary.cells if state.cell in mine]
    return together(states, given.summary.cells) if mine != having and states else ""


def _boot_times(given: ReportInput, places: Iterable[tuple[int, str]]) -> str:
    times = [seconds for cell, node in places if (seconds := _seconds(given.guests[cell][node])) is not None]
    if not times:
        return ""
    low, high = fmt.duration(min(times)), fmt.duration(max(times))
    return low if low == high else f"{low} to {high}"


def _seconds(facts: Mapping[str, object]) -> float | None:
    seconds = facts.get("boot_seconds")
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None
