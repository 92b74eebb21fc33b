"""What reports in the terminal are drawn of, for any Rich console: paragraphs, tables in parts that fit, intervals."""

from __future__ import annotations

import io
import math
import textwrap
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
from storlab.report.language.words import MARKS
from storlab.report.model.tables import Span, Table
from storlab.text import one_line

_FOREST = range(12, 37)  # columns for drawn intervals: with fewer, they say nothing
_NAME = 16  # columns of a name that is not broken, where there are other labels that may be
_BETWEEN = 3  # columns between two columns of a table
STYLES: dict[Verdict, str] = {
    "better": "bold green",
    "worse": "bold red",
    "equivalent": "bold cyan",
    "undecided": "bold yellow",
}
_LEAST = 1.1  # the axis reaches this far at least, or noise would look like a difference


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
        for part in parts_of(table, width):
            yield Text()
            yield from drawn_table(part, width)


def parts_of(table: Table, width: int) -> Iterator[Table]:
    """``table`` in as few parts as fit, each with its labels, in which no word is broken.

    A divisible one gets parts in which no label is broken either.
    """
    table = replace(table, columns=tuple(map(one_line, table.columns)))
    if table.divisible and sum(_sizes(table)) > width + _BETWEEN:
        columns = _narrowed(table)
        words = (new for old, new in zip(table.columns, columns, strict=True) if old in table.words)
        table = replace(table, columns=columns, words=(*table.words, *words))
    sizes = _sizes(table)
    least = _widest_words(table)
    labels = list(range(table.labels))
    room = width + _BETWEEN - sum(sizes[i] if table.divisible else least[i] + _BETWEEN for i in labels)
    parts: list[list[int]] = [[]]
    for column in range(table.labels, len(sizes)):
        if parts[-1] and sum(sizes[i] for i in (*parts[-1], column)) > room:
            parts.append([])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        kept = [*labels, *part]
        shown = replace(table.of_columns(kept), notes=table.notes if number == len(parts) - 1 else ())
        yield shown if number == 0 else replace(shown, title=f"{table.title}, continued", caption="", spans=())


def _narrowed(table: Table) -> tuple[str, ...]:
    """The headings of numbers in lines as wide as the numbers, as far as spaces and hyphens allow."""
    columns = list(table.columns)
    for number in range(table.labels, len(columns)):
        widest = max((cell_len(row[number]) for row in table.rows), default=1)
        lines = textwrap.wrap(columns[number], max(1, widest), break_long_words=False)
        columns[number] = "\n".join(lines) if lines else columns[number]
    return tuple(columns)


def _sizes(table: Table) -> list[int]:
    return [
        max(map(cell_len, (*heading.split("\n"), *(row[number] for row in table.rows)))) + _BETWEEN
        for number, heading in enumerate(table.columns)
    ]


def _widest_words(table: Table) -> list[int]:
    """Of each label's column the widest word, or the whole name where that is short and there are other labels."""
    columns = list(zip(table.columns, *table.rows, strict=True))[: table.labels]
    words = [max((cell_len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    whole = [max(map(cell_len, column)) for column in columns]
    named = table.labels > 2 and whole[0] <= _NAME
    return [whole[0] if named and number == 0 else word for number, word in enumerate(words)]


def _label_widths(table: Table, width: int) -> list[int]:
    """What each label's column may have: what it takes unbroken, as far as there is room, a word at least."""
    sizes, widths = _sizes(table), _widest_words(table)
    natural = [size - _BETWEEN for size in sizes[: table.labels]]
    room = width + _BETWEEN - sum(sizes[table.labels :]) - _BETWEEN * table.labels - sum(widths)
    for _ in range(max(0, room)):
        wanted = [full - now for full, now in zip(natural, widths, strict=True)]
        if max(wanted, default=0) <= 0:
            break
        widths[wanted.index(max(wanted))] += 1
    return widths


def drawn_table(table: Table, width: int) -> Iterator[RenderableType]:
    """One of ``parts_of``, whose headings have the line breaks that they should have."""
    heading = foreign(table.title, "bold")
    if table.caption:
        heading.append(f"  {table.caption}", "dim")
    yield heading
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1))
    widths = _label_widths(table, width)
    for number, column in enumerate(table.columns):
        justify: JustifyMethod = "right" if table.is_number(number) else "left"
        fixed = widths[number] if number < table.labels else None
        rich.add_column(Text(column), justify=justify, no_wrap=fixed is None, overflow="fold", width=fixed)
    rows = [[foreign(cell, _cell_style(cell)) for cell in row] for row in table.rows]
    room = min(width - sum(_sizes(table)), _FOREST[-1])
    if any(table.spans) and room in _FOREST:
        styles = [next((style for cell in row if (style := _cell_style(cell))), "") for row in table.rows]
        rich.add_column(Text("│ = 1×"), no_wrap=True)
        rows = [[*row, line] for row, line in zip(rows, forest(table.spans, room, styles), strict=True)]
    for row in rows:
        rich.add_row(*row)
    yield rich
    for number, note in enumerate(table.notes, start=1):
        yield foreign(f"[{number}] {note}", "dim")


def _cell_style(cell: str) -> str:
    return next((style for verdict, style in STYLES.items() if cell.startswith(f"{MARKS[verdict]} ")), "")


def foreign(text: str, style: str = "") -> Text:
    """Text that may be a user's: on one line, its brackets no markup."""
    return Text(one_line(text), style)


def forest(spans: Sequence[Span | None], width: int, styles: Sequence[str]) -> list[Text]:
    """Each span as ``├──●──┤`` on one log axis, which always holds 1 (``│``); empty for a span that is missing."""
    ends = [math.log(end) for span in spans if span is not None for end in span]
    low = min([*ends, -math.log(_LEAST)])
    high = max([*ends, math.log(_LEAST)])

    def column(ratio: float) -> int:
        return round((math.log(ratio) - low) / (high - low) * (width - 1))

    return [
        _line(None if span is None else tuple(column(end) for end in span), column(1.0), width, style)
        for span, style in zip(spans, styles, strict=True)
    ]


def _line(columns: tuple[int, ...] | None, one: int, width: int, style: str) -> Text:
    signs = [" "] * width
    signs[one] = "│"
    if columns is not None:
        low, value, high = columns
        signs[low : high + 1] = "─" * (high - low + 1)
        signs[low], signs[high] = "├", "┤"
        if low <= one <= high:
            signs[one] = "┼"
        signs[value] = "●"
    line = Text("".join(signs), "dim")
    if columns is not None and style:
        line.stylize(f"not dim {style}", columns[0], columns[2] + 1)
    return line
