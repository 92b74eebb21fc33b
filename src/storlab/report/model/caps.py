"""Tunables that had less effect than was asked for, because another one or the machine caps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storlab.grouping import grouped
from storlab.report.model.input import Facts, ReportInput
from storlab.report.model.tables import among


def capped(given: ReportInput) -> list[str]:
    """A sentence for each tunable above its cap, with the cells where it was."""
    known = [state for state in given.summary.cells if state.cell in given.facts]
    found = (
        (said, cell)
        for cell, nodes in given.facts.items()
        for layers in nodes.values()
        for facts in layers.values()
        for said in _allocators(facts)
    )
    return [f"{among(cells, known)}: {said}" for said, cells in grouped(found).items()]


def _allocators(facts: Facts) -> Iterator[str]:
    """Of a pool; the facts may be of an imported run, so each is looked at."""
    of = facts.get("allocators")
    if not isinstance(of, Mapping):
        return
    asked, effective, limit, cpus = (of.get(name) for name in ("asked", "effective", "limited_by", "cpus"))
    if isinstance(asked, int) and isinstance(effective, int) and effective < asked:
        module = facts.get("module")
        value = module.get(limit) if isinstance(module, Mapping) and isinstance(limit, str) else None
        known = isinstance(value, int) and isinstance(cpus, int)
        because = f": {limit} = {value} with {cpus} CPU{'' if cpus == 1 else 's'}" if known else ""
        yield f"spa_num_allocators: {asked} asked for, {effective} in effect{because}"
