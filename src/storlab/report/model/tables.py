"""The tables of a report as plain text in rows: every format draws the same ones in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from storlab.analysis.summary import CellState, Comparison, Estimate, Summary
from storlab.analysis.wording import endless
from storlab.grouping import grouped
from storlab.metrics import PROBE as PROBE
from storlab.report.language import format as fmt
from storlab.report.language import words

ALL_CELLS = "all cells"
_WORDS = frozenset({"verdict", "status", "reason", "better", "modes"})
_CELLS_A_TABLE = 3  # more columns than that don't fit a page
_NARROW, _LETTERS = 7, 68  # columns, and letters with the gaps between columns, that fit into half of one
_GAP = 2


Span = tuple[float, float, float]
"""An interval and what lies in it: low, value, high."""


@dataclass(frozen=True)
class Table:
    """Rows of finished text. The first ``labels`` columns name the row; the others hold its numbers.

    ``notes`` are the footnotes that cells refer to as ``[1]``, ``[2]``, … ``spans`` are the rows' ratios with their
    intervals as numbers, for formats that can draw them. ``divisible``: where not all columns fit side by side, the
    table may be shown in parts, each with its labels. ``words``: columns that hold no numbers, beside those of
    which that is known.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1
    caption: str = ""
    notes: tuple[str, ...] = ()
    spans: tuple[Span | None, ...] = ()
    divisible: bool = False
    words: tuple[str, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether two such tables don't fit side by side on a page: labels break between words, numbers nowhere."""
        columns = enumerate(zip(self.columns, *self.rows, strict=True))
        texts = (" ".join(column).split() if at < self.labels else column for at, column in columns)
        letters = sum(max(map(cell_len, those), default=0) + _GAP for those in texts)
        return len(self.columns) > _NARROW or letters > _LETTERS

    def of_columns(self, kept: Sequence[int]) -> Table:
        """Only these columns, by index."""
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=rows)

    def is_number(self, column: int) -> bool:
        return column >= self.labels and self.columns[column] not in {*_WORDS, *self.words}


class Notes:
    """Footnotes of one table: each sentence once, numbered in the order of their first mention."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str, warnings: Iterable[str]) -> str:
        """``text`` with the numbers of these footnotes."""
        numbers = [self._numbers.setdefault(words.stop(w), len(self._numbers) + 1) for w in warnings]
        return " ".join([text, *(f"[{number}]" for number in numbers)])

    def sentences(self) -> tuple[str, ...]:
        return tuple(self._numbers)


def without_notes(table: Table, left_out: Callable[[str], bool]) -> Table:
    """``table`` without footnotes that are ``left_out``; the others are renumbered."""
    kept = [note for note in table.notes if not left_out(note)]
    numbers = {f"[{at}]": f"[{kept.index(n) + 1}]" if n in kept else "" for at, n in enumerate(table.notes, 1)}
    rows = tuple(tuple(" ".join(_renumbered(cell, numbers)) for cell in row) for row in table.rows)
    return replace(table, rows=rows, notes=tuple(kept))


def with_note(tables: Sequence[Table], begins: str, sentence: str) -> list[Table] | None:
    """The tables with a footnote to each row whose label ``begins`` so; ``None`` where there is no such row."""
    noted = [_with_note(table, begins, sentence) for table in tables]
    return noted if any(new is not old for new, old in zip(noted, tables, strict=True)) else None


def _with_note(table: Table, begins: str, sentence: str) -> Table:
    if not any(row[0].startswith(begins) for row in table.rows):
        return table
    mark = f"[{len(table.notes) + 1}]"
    rows = tuple((f"{row[0]} {mark}", *row[1:]) if row[0].startswith(begins) else row for row in table.rows)
    return replace(table, rows=rows, notes=(*table.notes, sentence))


def _renumbered(cell: str, numbers: Mapping[str, str]) -> Iterator[str]:
    yield from (word for old in cell.split(" ") if (word := numbers.get(old, old)) or old not in numbers)


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
    first, notes = group[0], Notes()
    shared, factors = split_levels([e.levels for e in group])
    shown = fmt.common_scale([e.mean for e in group], first.unit)
    rows = []
    for e in group:
        mean = fmt.quantity(e.mean, e.unit, e.low, e.high, within=shown)
        span = fmt.interval(e.low, e.high, e.unit, e.mean, within=shown) or "none"
        numbers = (mean, span, fmt.share(e.cv) or "unknown", notes.mark(str(e.rounds), e.warnings))
        rows.append((*(e.levels.get(factor, "") for factor in factors), *numbers))
    confidences = list(dict.fromkeys(fmt.confidence(e.confidence) for e in group))
    title, columns = (
        heading(first.metric, first.source, shared),
        (*factors, "mean", f"{'/'.join(confidences)} interval"),
    )
    said = (words.direction(first.better), notes.sentences())
    return Table(title, (*columns, "spread", "rounds"), tuple(rows), len(factors), *said)


def span_of(c: Comparison) -> Span | None:
    """What a format can draw of a comparison; ``None`` without an interval, or with one that has no end."""
    if c.low is None or c.ratio is None or c.high is None or endless(c.low) or endless(c.high):
        return None
    return c.low, c.ratio, c.high


def absent_table(summary: Summary) -> Table | None:
    """Cells that weren't measured in full, each reason once; ``None`` where there are none."""
    groups = grouped(((cell.status, cell.reasons), cell) for cell in summary.cells if cell.status != "measured")
    if not groups:
        return None
    rows = []
    for (status, reasons), cells in groups.items():
        reason = " ".join(words.stop(r) for r in reasons) or "No reason was recorded."
        failed = sum(cell.failed for cell in cells)
        count = f" ({failed} of {fmt.plural(failed + sum(cell.rounds for cell in cells), 'trial')})" if failed else ""
        rows.append((together(cells, summary.cells), f"{status}{count}", reason))
    return Table("Incomplete cells", ("cell", "status", "reason"), tuple(rows))


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
    notes, metrics = Notes(), dict[str, dict[int, Estimate]]()
    for e in group:
        metrics.setdefault(e.metric, {})[e.cell] = e
    alone = all(e.low is None for e in group)

    def tell(e: Estimate) -> str:
        return _alone(e, notes) if alone else _with_interval(e, notes)

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
    return Table(title, columns, tuple(rows), 1, caption, notes.sentences())


def _alone(e: Estimate, notes: Notes) -> str:
    """Where nothing has an interval, that is said once for all."""
    return notes.mark(fmt.quantity(e.mean, e.unit), [w for w in e.warnings if not words.is_of_rounds(w)])


def _with_interval(e: Estimate, notes: Notes) -> str:
    shown = fmt.scale(e.mean, e.unit)
    value = fmt.quantity(e.mean, e.unit, e.low, e.high, within=shown)
    if e.low is not None and e.low == e.high:
        return notes.mark(f"{value} (always)", e.warnings)
    span = fmt.interval(e.low, e.high, e.unit, e.mean, within=fmt.Scale(shown.factor, "")) or "no interval"
    return notes.mark(f"{value} ({span})", e.warnings)
