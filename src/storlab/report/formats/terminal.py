"""A report for the terminal: verdicts, then their numbers; and what such reports are drawn of, for any Rich console."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from storlab.analysis.summary import GateResult, Verdict
from storlab.report.model import format as fmt
from storlab.report.model import words
from storlab.report.model.claims import LEAD as CLAIMS
from storlab.report.model.claims import ClaimLine
from storlab.report.model.input import ReportInput
from storlab.report.model.power_cuts import TITLE as POWER_CUTS
from storlab.report.model.questions import SPREAD
from storlab.report.model.steady import TITLE as STEADY_STATE
from storlab.report.model.tables import Span, Table, without_notes
from storlab.report.model.view import VerdictGroup, VerdictLine, View, open_lines
from storlab.report.model.why import EVIDENCE
from storlab.report.model.words import MARKS
from storlab.text import one_line

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
            yield from _table(part, width)


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


def _table(table: Table, width: int) -> Iterator[RenderableType]:
    """One of ``parts_of``, whose headings have the line breaks that they should have."""
    heading = foreign(table.title, "bold")
    if table.caption:
        heading.append(f"  {table.caption}", "dim")
    yield heading
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1))
    widths = _label_widths(table, width)
    for number, column in enumerate(table.columns):
        justify: JustifyMethod = "right" if table.is_number(number) else "left"
        fixed = widths[number] if number < table.labels else None
        drawn.add_column(Text(column), justify=justify, no_wrap=fixed is None, overflow="fold", width=fixed)
    rows = [[foreign(cell, _cell_style(cell)) for cell in row] for row in table.rows]
    room = min(width - sum(_sizes(table)), _FOREST[-1])
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


def render_text(given: ReportInput, width: int = WIDTH, *, full: bool = False) -> str:
    """The report as plain text without colour, ``width`` columns wide."""
    return in_columns(TerminalReport(given, full=full), width)


def render_full(given: ReportInput) -> str:
    """As ``render_text``, with every table that there is."""
    return render_text(given, full=True)


class TerminalReport:
    """The report for any Rich console, as wide as that is: two screens of it, or all that there is.

    Foreign text is in ``Text`` objects, so its brackets are no markup.
    """

    def __init__(self, given: ReportInput, *, full: bool = False) -> None:
        self._shown, self._full = View(given), full

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        first = Group(*_first(self._shown, width, self._full))
        left = _LINES - _height(first, width)
        yield first
        hidden = []
        for name, parts in _further(self._shown, width, self._full):
            drawn = Group(*parts)
            if not drawn.renderables:
                continue
            height = _height(drawn, width)
            if self._full or height <= left:
                left -= height
                yield drawn
            else:
                hidden.append(name)
        if not self._full and "latency" not in hidden and len(self._shown.latencies) > len(self._shown.latencies_brief):
            hidden.append("latencies of other operations")
        if hidden:
            yield Text()
            yield foreign(f"More: {words.listed(hidden)}; see `storlab report RUN --full` or the HTML report.", "dim")


_LINES = 92  # of what is shown without being asked for: two screens, with room for the shell's own lines
_ROWS = 20  # of a matrix: more are in the full report


def _height(drawn: RenderableType, width: int) -> int:
    return in_columns(drawn, width).count("\n")


def _first(shown: View, width: int, full: bool) -> Iterator[RenderableType]:
    """The answer and the numbers that it rests on."""
    yield foreign(shown.title, "bold")
    for caution in shown.cautions:
        yield bullet("!", "bold yellow", caution, style="bold yellow")
    if shown.facts_line:
        yield foreign(shown.facts_line, "dim")
    for note in shown.platform_notes:
        yield bullet("!", "yellow", note)
    yield Text()
    yield foreign(shown.answer, "bold")
    for table in shown.matrix:
        yield from _matrix(table, width, full)
    if full or not shown.matrix:
        for group in shown.verdicts:
            yield Text()
            yield from _question(group, width, full)
        if not full and (lines := open_lines(shown.verdicts)):
            yield Text()
            for sentence in lines:
                yield bullet(MARKS["undecided"], STYLES["undecided"], sentence)
    else:
        yield from (bullet_of for group in shown.verdicts for bullet_of in _gates(group))
    if shown.not_compared:
        yield Text()
        for sentence in shown.not_compared:
            yield bullet("−", "yellow", sentence)
    yield Text()
    yield foreign(" ".join(part for part in (shown.overview, shown.resting, shown.certainty) if part), "dim")
    if shown.claims:
        yield from _claims(shown.claims)
    if shown.warnings:
        yield Text()
        for warning in shown.warnings:
            yield bullet("!", "yellow", warning)


def _further(shown: View, width: int, full: bool) -> Iterator[tuple[str, Iterator[RenderableType]]]:
    """What follows as far as there is room, what says most first; each with its name."""
    yield "incomplete cells", _absent(shown)
    yield "steady state", section(STEADY_STATE, shown.steady, width)
    yield "sweeps", _sweeps(shown, width)
    yield "power cuts", section(POWER_CUTS, shown.power_cuts, width)
    yield "conformance", section("Conformance", shown.conformance_brief, width)
    if full or not shown.sweeps:  # else the sweeps' tables have them
        yield "measured values", section("Measured", _briefly(shown.measured, full), width)
    if not full:
        yield "evidence of why", _evidence(shown)
    single = shown.rounds == 1  # then there is little else; else rounds are what counts
    if single:
        yield "variability", section("Variability", shown.variability, width)
    yield "block I/O", section("Block I/O", shown.block, width)
    if not full:
        yield "latency", section("Latency", shown.latencies_brief, width)
    yield "effects of factors", section("Effects of factors", shown.effects, width)
    yield "nodes", section("Per node", shown.nodes, width)
    if full:
        yield "latency", section("Latency", shown.latencies, width)
    if not single:
        yield "variability", section("Variability", shown.variability, width)
    yield "guests", section("Guests", shown.guests, width)
    yield "details of block I/O", section("Block I/O in detail", shown.block_details, width)
    yield "further metrics", section("Further metrics", _briefly(shown.others, full), width)
    yield "probes", section("Probes", _briefly(shown.probes, full), width)
    yield "environment", section("Environment", shown.setup, width)


def _briefly(tables: Sequence[Table], full: bool) -> list[Table]:
    """Without footnotes that change the reading of no number, unless everything is asked for."""
    return list(tables) if full else [without_notes(table, words.is_of_outliers) for table in tables]


def _sweeps(shown: View, width: int) -> Iterator[RenderableType]:
    yield from section("Sweeps", shown.sweeps, width)
    for sentence in shown.sweep_lines:
        yield bullet("·", "dim", sentence)


def _absent(shown: View) -> Iterator[RenderableType]:
    if shown.absent:
        yield Text()
        yield Rule(Text(shown.absent.title, "bold"), align="left", style="dim")
        for cells, status, reason in shown.absent.rows:
            yield bullet("−", "yellow", f"{cells}, {status}: {reason}")


def _matrix(table: Table, width: int, full: bool) -> Iterator[RenderableType]:
    rest = len(table.rows) - _ROWS
    kept = table if full or rest <= 0 else replace(table, rows=table.rows[:_ROWS])
    for part in parts_of(kept, width):
        yield Text()
        yield from _table(part, width)
    if kept is not table:
        yield foreign(f"and {fmt.plural(rest, 'further question')}", "dim")


def _question(group: VerdictGroup, width: int, full: bool) -> Iterator[RenderableType]:
    """The table, and of what it does not say the sentences: what an open comparison lacks, and gates."""
    table = group.table if full else _brief(group.table)
    for number, part in enumerate(parts_of(table, width)):
        if number:
            yield Text()
        yield from _table(part, width)
    for line in group.lines:
        if full and line.verdict == "undecided":
            yield bullet(line.mark, STYLES[line.verdict], line.sentence)
        for result in line.gates:
            yield gate_bullet(result, indent=2)
    if full:
        for line in group.lines:
            if line.why:
                yield from _why(line)


def _brief(table: Table) -> Table:
    """Without what changes the reading of no verdict."""
    kept = [at for at, column in enumerate(table.columns) if column != SPREAD]
    return without_notes(table.of_columns(kept), words.is_of_outliers)


def _why(line: VerdictLine) -> Iterator[RenderableType]:
    yield bullet(line.mark, STYLES[line.verdict], f"{words.stop(line.claim)} {EVIDENCE if line.differs else ''}")
    for sentence in line.why:
        yield bullet("·", "dim", sentence, indent=2)


def _evidence(shown: View) -> Iterator[RenderableType]:
    """The surest difference underneath each of the first comparisons, each said once."""
    said = dict.fromkeys(line.why[0] for group in shown.verdicts for line in group.lines if line.differs)
    if said:
        yield Text()
        yield Rule(Text("Underneath", "bold"), align="left", style="dim")
        yield foreign("The surest difference of each comparison: evidence, not a cause.", "dim")
    for sentence in list(said)[:_MOST_EVIDENCE]:
        yield bullet("·", "dim", sentence)


_MOST_EVIDENCE = 4


def _gates(group: VerdictGroup) -> Iterator[RenderableType]:
    for line in group.lines:
        for result in line.gates:
            yield gate_bullet(result, indent=0)


_CLAIMS = {"holds": "bold green", "does not hold": "bold red", "undecided": "bold yellow", "not measured": "dim"}


def _claims(claims: Sequence[ClaimLine]) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(Text("Claims", "bold"), align="left", style="dim")
    yield foreign(CLAIMS, "dim")
    for line in claims:
        yield bullet(line.mark, _CLAIMS[line.verdict], line.sentence)
        for note in line.notes:
            yield bullet("·", "dim", note, indent=2)


_OUTCOMES = {"hit": ("✗", "bold red"), "passed": ("✓", "green"), "undecided": ("?", "yellow")}


def gate_bullet(result: GateResult, indent: int) -> RenderableType:
    """What came of a gate, with a shape for each outcome."""
    mark, style = _OUTCOMES[result.outcome]
    return bullet(mark, style, words.gate(result), indent, "bold red" if result.outcome == "hit" else "")
