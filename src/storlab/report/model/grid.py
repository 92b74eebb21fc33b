"""Many cells as a grid, a metric a table: levels of one factor side by side, those of the others below each other.

A row a cell can be read for a dozen of them; of a hundred nobody compares the third with the eightieth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from storlab.analysis.summary import CellState, Estimate
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.tables import Notes, Table, by_metric, estimate_table, heading, matrix_tables, split_levels

MANY = 24
"""Cells that still read well one below the other."""
_MOST_ACROSS = 12


def measured_tables(estimates: Sequence[Estimate], cells: Sequence[CellState]) -> list[Table]:
    """One table a metric of a source: a grid where there are many cells, else a row a cell."""
    return [grid_table(group, cells) or estimate_table(group) for group in by_metric(estimates)]


def further_tables(estimates: Sequence[Estimate], cells: Sequence[CellState]) -> list[Table]:
    """Metrics that nobody asked about: all of a source in one table, or a grid each where there are many cells."""
    noted = _with_gaps(estimates, cells)
    if len(cells) <= MANY:
        return matrix_tables(noted)
    grids = [(group, grid_table(group, cells)) for group in by_metric(noted)]
    rest = [e for group, grid in grids if grid is None for e in group]
    return [*(grid for _, grid in grids if grid is not None), *matrix_tables(rest)]


def _with_gaps(estimates: Sequence[Estimate], cells: Sequence[CellState]) -> list[Estimate]:
    """With a warning where there is no value in some rounds of the cell: a disk that did nothing has no row there."""
    done = {cell.cell: cell.rounds for cell in cells}
    return [_with_gap(e, rounds) if e.rounds < (rounds := done.get(e.cell, 0)) else e for e in estimates]


def _with_gap(e: Estimate, rounds: int) -> Estimate:
    gap = f"A value in {e.rounds} of {fmt.plural(rounds, 'round')} only: the mean is of these."
    return replace(e, warnings=(*e.warnings, gap))


@dataclass(frozen=True)
class _Shape:
    """``down``: levels of the factors ``beside`` of each row; ``across``: levels of the factor ``side_by_side``."""

    beside: tuple[str, ...]
    side_by_side: str
    down: tuple[tuple[str, ...], ...]
    across: tuple[str, ...]


def grid_table(group: Sequence[Estimate], cells: Sequence[CellState]) -> Table | None:
    """One metric of one source, of ``group``; ``None`` where the cells are few, or no factor has few levels.

    ``cells``: all of the run, in whose order rows and columns stand, and which say why a number is missing.
    """
    shared, factors = split_levels([e.levels for e in group])
    shape = _shape(group, cells, factors) if len(group) > MANY and len(factors) > 1 else None
    if shape is None:
        return None
    first, notes = group[0], Notes()
    common = tuple(w for w in group[0].warnings if all(w in e.warnings for e in group))
    numbers = {_place(e.levels, shape): e for e in group}
    states = {_place(cell.levels, shape): cell for cell in cells if shared.items() <= cell.levels.items()}
    label = notes.mark(shape.beside[-1], common)
    scales = {fmt.scale(e.mean, e.unit) for e in group}
    shown = next(iter(scales)) if len(scales) == 1 else None  # one display unit of all goes into the caption
    rows = []
    for row in shape.down:
        found = [(numbers.get((row, level)), states.get((row, level))) for level in shape.across]
        rows.append((*row, *(_cell(e, state, notes, common, shown) for e, state in found)))
    counts = sorted({e.rounds for e in group})
    plain = fmt.plural(counts[0], "round") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} rounds"
    interval = f"mean over {plain} ± half of its {fmt.confidence(first.confidence)} interval"
    unit = f"in {shown.symbol}" if shown is not None and shown.symbol else ""
    told = interval if any(e.low is not None for e in group) else f"mean over {plain}"
    title, caption = heading(first.metric, first.source, shared), (words.direction(first.better), unit, told)
    columns = (*shape.beside[:-1], label, *(words.named(shape.side_by_side, level) for level in shape.across))
    said = (", ".join(filter(None, caption)), notes.sentences())
    return Table(title, columns, tuple(rows), len(shape.beside), *said, divisible=True)


def _shape(group: Sequence[Estimate], cells: Sequence[CellState], factors: tuple[str, ...]) -> _Shape | None:
    everything = [cell.levels for cell in cells] or [e.levels for e in group]
    having = {name: {e.levels.get(name, "") for e in group} for name in factors}
    side = min(factors, key=lambda name: len(having[name]))
    if len(having[side]) > _MOST_ACROSS:
        return None
    order = {
        name: [level for level in dict.fromkeys(levels.get(name, "") for levels in everything) if level in having[name]]
        for name in factors
    }
    beside = tuple(name for name in factors if name != side)
    rows = {tuple(e.levels.get(name, "") for name in beside) for e in group}
    down = sorted(rows, key=lambda row: [order[name].index(level) for name, level in zip(beside, row, strict=True)])
    return _Shape(beside, side, tuple(down), tuple(order[side]))


def _place(levels: dict[str, str], shape: _Shape) -> tuple[tuple[str, ...], str]:
    return tuple(levels.get(name, "") for name in shape.beside), levels.get(shape.side_by_side, "")


def _cell(
    e: Estimate | None, state: CellState | None, notes: Notes, common: tuple[str, ...], shown: fmt.Scale | None
) -> str:
    if e is None:
        return "–" if state is None or state.status in ("measured", "partly failed") else state.status
    own = [warning for warning in e.warnings if warning not in common]
    bare = None if shown is None else fmt.Scale(shown.factor, "")
    return notes.mark(fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=bare), own)
