"""What reports in a terminal are drawn of: bullets, and tables under a rule, for any Rich console."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from storlab.analysis.summary import Verdict
from storlab.report.escape import one_line
from storlab.report.forest import forest
from storlab.report.tables import Table
from storlab.report.words import MARKS

WIDTH = 80
_FOREST = range(12, 37)  # columns for drawn intervals: with fewer, they say nothing
_NAME = 16  # columns of a name that is not broken, where there are other labels that may be
_BETWEEN = 3  # columns between two columns of a table
STYLES: dict[Verdict, str] = {
    "better": "bold green",
    "worse": "bold red",
    "equivalent": "bold cyan",
    "undecided": "bold yellow",
}


def in_columns(drawn: RenderableType, width: int) -> str:
    """``drawn`` as plain text without colour, ``width`` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(drawn)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip("\n").split("\n"))


def bullet(mark: str, mark_style: str, sentence: str, indent: int = 0, style: str = "") -> RenderableType:
    """A paragraph that hangs on its mark."""
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, mark_style), foreign(sentence, style))
    return Padding(grid, (0, 0, 0, indent))


def section(title: str, tables: Sequence[Table], width: int) -> Iterator[RenderableType]:
    """The tables under their title; nothing where there are none."""
    if not tables:
        return
    if title:
        yield Text()
        yield Rule(Text(title, "bold"), align="left", style="dim")
    for table in tables:
        yield Text()
        yield from _table(table, width)


def parts_of(table: Table, width: int) -> Iterator[Table]:
    """``table``, where it can be divided, in as few parts as fit side by side, each with its labels."""
    if not table.divisible:
        yield table
        return
    sizes = [max(map(cell_len, column)) + _BETWEEN for column in zip(table.columns, *table.rows, strict=True)]
    labels = list(range(table.labels))
    room = width + _BETWEEN - sum(sizes[: table.labels])
    parts: list[list[int]] = [[]]
    for column in range(table.labels, len(sizes)):
        if parts[-1] and sum(sizes[i] for i in (*parts[-1], column)) > room:
            parts.append([])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        kept = [*labels, *part]
        yield replace(
            table,
            title=table.title if number == 0 else f"{table.title}, continued",
            caption=table.caption if number == 0 else "",
            columns=tuple(table.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
            notes=table.notes if number == len(parts) - 1 else (),
        )


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    heading = foreign(table.title, "bold")
    if table.caption:
        heading.append(f"  {table.caption}", "dim")
    yield heading
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1))
    for number, column in enumerate(table.columns):
        justify: JustifyMethod = "right" if table.is_number(number) else "left"
        name = number == 0 and table.labels > 2 and max(cell_len(row[0]) for row in table.rows) <= _NAME
        drawn.add_column(foreign(column), justify=justify, no_wrap=name or number >= table.labels, overflow="fold")
    rows = [[foreign(cell, _cell_style(cell)) for cell in row] for row in table.rows]
    used = sum(max(map(cell_len, column)) + _BETWEEN for column in zip(table.columns, *table.rows, strict=True))
    room = min(width - used, _FOREST[-1])
    if any(table.spans) and room in _FOREST:
        styles = [next((style for cell in row if (style := _cell_style(cell))), "") for row in table.rows]
        drawn.add_column(Text("│ = 1×"), no_wrap=True)
        rows = [[*row, line] for row, line in zip(rows, forest(table.spans, room, styles), strict=True)]
    for row in rows:
        drawn.add_row(*row)
    yield drawn
    for number, note in enumerate(table.notes, start=1):
        yield foreign(f"[{number}] {note}", "dim")


def _cell_style(cell: str) -> str:
    return next((style for verdict, style in STYLES.items() if cell.startswith(f"{MARKS[verdict]} {verdict}")), "")


def foreign(text: str, style: str = "") -> Text:
    """Text that may be a user's: on one line, its brackets no markup."""
    return Text(one_line(text), style)
