"""Tables of estimates and of what was not measured: a row a cell, a grid of many, a column a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from storlab.analysis.summary import CellState, Estimate, Summary
from storlab.base.text import grouped
from storlab.findings import Finding
from storlab.findings.rounds import Outliers, SomeRounds, TooFewRounds
from storlab.metrics import PROBE as PROBE
from storlab.report.document import Cell, Line, Table, Tone
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.say import say

ALL_CELLS = "all cells"
_CELLS_A_TABLE = 3  # more columns than that don't fit a page


def noted(text: str, warnings: Iterable[Finding | str], tone: Tone = "") -> Cell:
    """``text`` with these footnotes; that rounds are outliers is none, for it changes no verdict."""
    notes = (each if isinstance(each, str) else say(each) for each in warnings if not isinstance(each, Outliers))
    return Cell(text, map(words.stop, notes), tone)


def with_note(tables: Sequence[Table], begins: str, sentence: str) -> list[Table] | None:
    """The tables with a footnote to each row whose label ``begins`` so; ``None`` if there is no such row."""
    if not any(row[0].startswith(begins) for table in tables for row in table.rows):
        return None

    def marked(row: tuple[str, ...]) -> tuple[str, ...]:
        return (noted(row[0], [sentence]), *row[1:]) if row[0].startswith(begins) else row

    return [replace(table, rows=tuple(map(marked, table.rows))) for table in tables]


def split_levels(all_levels: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Levels that all rows share, and the names of the factors that vary."""
    factors = tuple(dict.fromkeys(name for chosen in all_levels for name in chosen))
    if len(all_levels) < 2:
        return {}, factors
    shared = {
        name: all_levels[0].get(name, "")
        for name in factors
        if len({chosen.get(name, "") for chosen in all_levels}) == 1
    }
    return shared, tuple(name for name in factors if name not in shared)


def split_all(all_levels: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """As ``split_levels``; of a single row all levels are shared."""
    return (dict(all_levels[0]), ()) if len(all_levels) == 1 else split_levels(all_levels)


def heading(metric: str, source: str, shared: Mapping[str, str]) -> str:
    """ "write.bandwidth: random-write, bs=4k"; a level that only repeats the workload's name is left out."""
    rest = words.levels({name: level for name, level in shared.items() if level != source})
    where = ", ".join(part for part in (source, rest) if part)
    return f"{metric}: {where}" if where else metric


def by_metric(estimates: Iterable[Estimate]) -> list[list[Estimate]]:
    """Estimates of one metric of one source together, in their order."""
    return list(grouped(((e.source, e.metric), e) for e in estimates).values())


def estimate_table(group: Sequence[Estimate]) -> Table:
    """A row a cell, of one metric of one source."""
    first = group[0]
    shared, factors = split_levels([e.levels for e in group])
    shown = fmt.common_scale([e.mean for e in group], first.unit)
    rows = []
    for e in group:
        mean = fmt.quantity(e.mean, e.unit, e.low, e.high, within=shown)
        span = fmt.interval(e.low, e.high, e.unit, e.mean, within=shown) or "none"
        numbers = (mean, span, fmt.share(e.cv) or "unknown", noted(str(e.rounds), e.warnings))
        rows.append((*(e.levels.get(factor, "") for factor in factors), *numbers))
    confidences = list(dict.fromkeys(fmt.confidence(e.confidence) for e in group))
    columns = (*factors, "mean", f"{'/'.join(confidences)} interval", "spread", "rounds")
    title = heading(first.metric, first.source, shared)
    return Table(title, columns, tuple(rows), len(factors), words.direction(first.better))


def absent_lines(summary: Summary) -> tuple[Line, ...]:
    """Cells that weren't measured in full, each reason once."""
    groups = grouped(((cell.status, cell.reasons), cell) for cell in summary.cells if cell.status != "measured")
    lines = []
    for (status, reasons), cells in groups.items():
        reason = " ".join(words.stop(r) for r in reasons) or "No reason was recorded."
        failed = sum(cell.failed for cell in cells)
        count = f" ({failed} of {fmt.plural(failed + sum(cell.rounds for cell in cells), 'trial')})" if failed else ""
        lines.append(Line(f"{together(cells, summary.cells)}, {status}{count}: {reason}", "−", "missing"))
    return tuple(lines)


def together(cells: Sequence[CellState], all_cells: Sequence[CellState]) -> str:
    """What to call several cells: by the levels that they, and no others, have; else one by one."""
    if len(cells) == len(all_cells) > 1:
        return ALL_CELLS
    if len(cells) > 1 and (chosen := _chosen_levels(cells, all_cells)):
        named = ", ".join(f"{factor}={' or '.join(levels)}" for factor, levels in chosen.items())
        return f"{named} ({fmt.plural(len(cells), 'cell')})"
    return "; ".join(words.levels(cell.levels) or f"cell {cell.cell}" for cell in cells)


def among(cells: Iterable[int], known: Sequence[CellState]) -> str:
    """What to call cells, by their numbers, among those of which something is known."""
    mine = set(cells)
    own = [state for state in known if state.cell in mine]
    return ALL_CELLS if own == known else together(own, known)


def _chosen_levels(cells: Sequence[CellState], all_cells: Sequence[CellState]) -> dict[str, list[str]]:
    """The levels that make up ``cells``, of the factors that not all levels of are there; empty where none do."""
    chosen = {}
    for factor in dict.fromkeys(name for cell in cells for name in cell.levels):
        own = list(dict.fromkeys(cell.levels.get(factor, "") for cell in cells))
        if len(own) < len({cell.levels.get(factor, "") for cell in all_cells}):
            chosen[factor] = own
    same = [cell for cell in all_cells if all(cell.levels.get(name) in own for name, own in chosen.items())]
    return chosen if len(same) == len(cells) else {}


def matrix_tables(estimates: Sequence[Estimate]) -> list[Table]:
    """One table a workload or probe: a row a metric, a column a cell, ``_CELLS_A_TABLE`` at a time."""
    tables = []
    for source, group in grouped((e.source, e) for e in estimates).items():
        cells = {e.cell: e.levels for e in group}
        shared, factors = split_levels(list(cells.values()))
        names = {c: ", ".join(words.named(f, of.get(f, "")) for f in factors) or "all" for c, of in cells.items()}
        where = words.levels({name: level for name, level in shared.items() if level != source})
        title = ": ".join(part for part in (source.removeprefix(PROBE), where) if part)
        numbers = list(names)
        for start in range(0, len(numbers), _CELLS_A_TABLE):
            shown = {cell: names[cell] for cell in numbers[start : start + _CELLS_A_TABLE]}
            tables.append(_matrix(title, [e for e in group if e.cell in shown], shown))
    return tables


def _matrix(title: str, group: Sequence[Estimate], cells: Mapping[int, str]) -> Table:
    metrics = dict[str, dict[int, Estimate]]()
    for e in group:
        metrics.setdefault(e.metric, {})[e.cell] = e
    alone = all(e.low is None for e in group)

    def tell(e: Estimate) -> str:
        return _alone(e) if alone else _with_interval(e)

    rows: list[tuple[str, ...]] = []
    for metric, found in metrics.items():
        better = next(iter(found.values())).better
        numbers = [tell(found[cell]) if cell in found else "not measured" for cell in cells]
        rows.append((metric, *numbers, better if words.direction(better) else ""))
    columns = ("metric", *cells.values(), "better")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    single = all(e.rounds == 1 for e in group)
    of = "of one round" if single else "mean over rounds"
    caption = f"{of}, too few for intervals" if alone else f"{of}, with its interval"
    return Table(title, columns, tuple(rows), 1, caption)


def _alone(e: Estimate) -> str:
    """Where nothing has an interval, that is said once for all."""
    return noted(fmt.quantity(e.mean, e.unit), [w for w in e.warnings if not isinstance(w, TooFewRounds)])


def _with_interval(e: Estimate) -> str:
    shown = fmt.scale(e.mean, e.unit)
    value = fmt.quantity(e.mean, e.unit, e.low, e.high, within=shown)
    if e.low is not None and e.low == e.high:
        return noted(f"{value} (always)", e.warnings)
    span = fmt.interval(e.low, e.high, e.unit, e.mean, within=fmt.Scale(shown.factor, "")) or "no interval"
    return noted(f"{value} ({span})", e.warnings)


# Many cells as a grid, a metric a table: levels of one factor side by side, those of the others below each other.
# A row a cell can be read for a dozen of them; of a hundred nobody compares the third with the eightieth.

MANY = 24
"""Cells that still read well one below the other."""
_MOST_ACROSS = 12


def measured_tables(estimates: Sequence[Estimate], cells: Sequence[CellState]) -> list[Table]:
    """One table a metric of a source: a grid where there are many cells, else a row a cell."""
    return [grid_table(group, cells) or estimate_table(group) for group in by_metric(estimates)]


def further_tables(estimates: Sequence[Estimate], cells: Sequence[CellState]) -> list[Table]:
    """Metrics that nobody asked about: all of a source in one table, or a grid each where there are many cells."""
    known = _with_gaps(estimates, cells)
    if len(cells) <= MANY:
        return matrix_tables(known)
    grids = [(group, grid_table(group, cells)) for group in by_metric(known)]
    rest = [e for group, grid in grids if grid is None for e in group]
    return [*(grid for _, grid in grids if grid is not None), *matrix_tables(rest)]


def _with_gaps(estimates: Sequence[Estimate], cells: Sequence[CellState]) -> list[Estimate]:
    """With a warning where there is no value in some rounds of the cell: a disk that did nothing has no row there."""
    done = {cell.cell: cell.rounds for cell in cells}
    return [_with_gap(e, rounds) if e.rounds < (rounds := done.get(e.cell, 0)) else e for e in estimates]


def _with_gap(e: Estimate, rounds: int) -> Estimate:
    return replace(e, warnings=(*e.warnings, SomeRounds(e.rounds, rounds)))


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
    first = group[0]
    common = tuple(w for w in group[0].warnings if all(w in e.warnings for e in group))
    numbers = {_place(e.levels, shape): e for e in group}
    states = {_place(cell.levels, shape): cell for cell in cells if shared.items() <= cell.levels.items()}
    label = noted(shape.beside[-1], common)
    scales = {fmt.scale(e.mean, e.unit) for e in group}
    shown = next(iter(scales)) if len(scales) == 1 else None  # one display unit of all goes into the caption
    rows = []
    for row in shape.down:
        found = [(numbers.get((row, level)), states.get((row, level))) for level in shape.across]
        rows.append((*row, *(_cell(e, state, common, shown) for e, state in found)))
    counts = sorted({e.rounds for e in group})
    plain = fmt.plural(counts[0], "round") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} rounds"
    interval = f"mean over {plain} ± half of its {fmt.confidence(first.confidence)} interval"
    unit = f"in {shown.symbol}" if shown is not None and shown.symbol else ""
    told = interval if any(e.low is not None for e in group) else f"mean over {plain}"
    title, caption = heading(first.metric, first.source, shared), (words.direction(first.better), unit, told)
    columns = (*shape.beside[:-1], label, *(words.named(shape.side_by_side, level) for level in shape.across))
    return Table(title, columns, tuple(rows), len(shape.beside), ", ".join(filter(None, caption)), divisible=True)


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


def _cell(e: Estimate | None, state: CellState | None, common: tuple[Finding, ...], shown: fmt.Scale | None) -> str:
    if e is None:
        return "–" if state is None or state.status in ("measured", "partly failed") else state.status
    own = [warning for warning in e.warnings if warning not in common]
    bare = None if shown is None else fmt.Scale(shown.factor, "")
    return noted(fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=bare), own)
