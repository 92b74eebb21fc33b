"""How trials get a database's data must be the same wherever cells are compared: what shares extents writes otherwise.

First writes take shared extents apart, so a difference between cells could be that of cloning, and not what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from storlab.layers.database.base import DatabaseLayer
from storlab.study.cells import Cell
from storlab.study.chains import Link
from storlab.study.read_cells import Report
from storlab.units import shown


def check_cloning(cells: Sequence[Cell], report: Report) -> None:
    """Report levels that differ in the way of cloning, unless that is all that they differ in."""
    for factor in cells[0].levels if cells else ():
        beside: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            others = tuple(level for name, level in cell.levels.items() if name != factor)
            beside.setdefault(others, []).append(cell)
        for neighbours in beside.values():
            _check(factor, neighbours, report)


def _check(factor: str, cells: Sequence[Cell], report: Report) -> None:
    """Of cells that differ in one factor."""
    links = [(link, link.layer) for cell in cells for link in _links(cell)]
    ways = {layer.clone: link for link, layer in links if isinstance(layer, DatabaseLayer)}
    if len(ways) < 2 or len({_without_cloning(cell) for cell in cells}) == 1:
        return
    *_, last = listed = sorted(ways)
    message = (
        f"levels of {factor} get their data by clone = {' and '.join(map(shown, listed))}, and differ in more than "
        "that: write the same for all of them, or let clone alone be a factor"
    )
    report((*ways[last].origin, "clone"), message)


def _links(cell: Cell) -> list[Link]:
    return [link for chain in cell.chains for link in chain.links]


def _without_cloning(cell: Cell) -> tuple[str, ...]:
    """All else that is measured in this cell."""
    layers = [(link.layer, {"clone"} if isinstance(link.layer, DatabaseLayer) else None) for link in _links(cell)]
    stacks = [f"{layer.layer} {layer.model_dump_json(exclude=apart)}" for layer, apart in layers]
    return (*stacks, *(f"{load.name} {load.workload.model_dump_json()}" for load in cell.loads))
