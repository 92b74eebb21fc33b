"""A report for the terminal: the verdicts, then their numbers. Everything else is in the HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from storlab.analysis.summary import Verdict
from storlab.report import format as fmt
from storlab.report.escape import one_line
from storlab.report.forest import forest
from storlab.report.input import ReportInput
from storlab.report.tables import Table
from storlab.report.view import VerdictGroup, View, view
from storlab.report.words import MARKS

WIDTH = 80
_FOREST = range(12, 37)  # columns for drawn intervals: with fewer, they say nothing
_NAME = 16  # columns of a name that is not broken, where there are other labels that may be
_BETWEEN = 3  # columns between two columns of a table
_STYLES: dict[Verdict, str] = {
    "better": "bold green",
    "worse": "bold red",
    "equivalent": "bold cyan",
    "undecided": "bold yellow",
}


def render_text(given: ReportInput, width: int = WIDTH) -> str:
    """The report as plain text without colour, ``width`` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(TerminalReport(given))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip("\n").split("\n"))


class TerminalReport:
    """The report for any Rich console, as wide as that is.

    Foreign text is in ``Text`` objects, so its brackets are no markup.
    """

    def __init__(self, given: ReportInput) -> None:
        self._shown = view(given)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Rich's protocol for things that can be printed."""
        yield from _parts(self._shown, options.max_width)


def _parts(shown: View, width: int) -> Iterator[RenderableType]:
    yield _text(shown.title, "bold")
    for caution in shown.cautions:
        yield _bullet("!", "bold yellow", caution, style="bold yellow")
    if shown.facts_line:
        yield _text(shown.facts_line, "dim")
    for note in shown.platform_notes:
        yield _bullet("!", "yellow", note)
    for group in shown.verdicts:
        yield Text()
        yield from _verdicts(group)
    if shown.not_compared:
        yield Text()
        for sentence in shown.not_compared:
            yield _bullet("−", "yellow", sentence)
    yield Text()
    yield _text(" ".join(part for part in (shown.overview, shown.certainty) if part), "dim")
    if shown.warnings:
        yield Text()
        for warning in shown.warnings:
            yield _bullet("!", "yellow", warning)
    yield from _section("Measured", shown.measured, width)
    yield from _section("Node by node", [part for table in shown.nodes for part in _parts_of(table, width)], width)
    yield from _section("Block I/O", [part for table in shown.block for part in _parts_of(table, width)], width)
    yield from _section("Compared", shown.comparisons, width)
    yield from _section("Effects of factors", shown.effects, width)
    if shown.absent:
        yield Text()
        yield Rule(Text(shown.absent.title, "bold"), align="left", style="dim")
        for cells, status, reason in shown.absent.rows:
            yield _bullet("−", "yellow", f"{cells}, {status}: {reason}")
    more = [shown.guests, shown.block_details, shown.others, shown.probes, shown.setup]
    names = ("guests", "block I/O", "further metrics", "probes", "set-up")
    if any(more):
        kinds = ", ".join(name for name, tables in zip(names, more, strict=True) if tables)
        count = fmt.plural(sum(map(len, more)), "more table")
        be = "is" if count.startswith("1 ") else "are"
        yield Text()
        yield _text(f"{count} ({kinds}) {be} in the Markdown and HTML reports.", "dim")


def _verdicts(group: VerdictGroup) -> Iterator[RenderableType]:
    heading = _text(group.heading, "bold")
    if group.direction:
        heading.append(f"  {group.direction}", "dim")
    yield heading
    if group.lead:
        yield Padding(_text(group.lead), (0, 0, 0, 2))
    for line in group.lines:
        yield _bullet(line.mark, _STYLES[line.verdict], line.sentence, indent=2)
        for warning in line.warnings:
            yield _bullet("!", "yellow", warning, indent=4)


def _bullet(mark: str, mark_style: str, sentence: str, indent: int = 0, style: str = "") -> RenderableType:
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, mark_style), _text(sentence, style))
    return Padding(grid, (0, 0, 0, indent))


def _section(title: str, tables: Sequence[Table], width: int) -> Iterator[RenderableType]:
    if not tables:
        return
    if title:
        yield Text()
        yield Rule(Text(title, "bold"), align="left", style="dim")
    for table in tables:
        yield Text()
        yield from _table(table, width)


def _parts_of(table: Table, width: int) -> Iterator[Table]:
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
    heading = _text(table.title, "bold")
    if table.caption:
        heading.append(f"  {table.caption}", "dim")
    yield heading
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1))
    for number, column in enumerate(table.columns):
        justify: JustifyMethod = "right" if table.is_number(number) else "left"
        name = number == 0 and table.labels > 2 and max(cell_len(row[0]) for row in table.rows) <= _NAME
        drawn.add_column(_text(column), justify=justify, no_wrap=name or number >= table.labels, overflow="fold")
    rows = [[_text(cell, _cell_style(cell)) for cell in row] for row in table.rows]
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
        yield _text(f"[{number}] {note}", "dim")


def _cell_style(cell: str) -> str:
    return next((style for verdict, style in _STYLES.items() if cell.startswith(f"{MARKS[verdict]} {verdict}")), "")


def _text(text: str, style: str = "") -> Text:
    return Text(one_line(text), style)
