"""Documents in a terminal, for any Rich console as wide as that is: two screens of what weighs most, or all of it.

Foreign text is in ``Text`` objects, so its brackets are no markup.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.console import Group as Together
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from storlab.base.text import one_line, plain
from storlab.report.document import (
    FIRST,
    WHOLE,
    Block,
    Code,
    Document,
    Facts,
    Figure,
    Group,
    Line,
    Section,
    Sentences,
    Span,
    Table,
    Tone,
    tone_of,
)
from storlab.report.language import format as fmt
from storlab.report.language import words

WIDTH = 80
STYLES: dict[Tone, str] = {
    "better": "bold green", "worse": "bold red", "equivalent": "bold cyan", "undecided": "bold yellow",
    "described": "bold", "missing": "yellow", "hit": "bold red", "passed": "green", "strong": "bold", "soft": "dim",
    "caution": "bold yellow", "note": "yellow",
}  # fmt: skip
_LOUD = ("hit", "caution")  # not the mark alone has their colour
_LINES = 92  # of what is shown without being asked for: two screens, with room for the shell's own lines
_MOST = 8  # sentences of a list, unless all are asked for
_ROWS = 20  # of a table of the first section
_FOREST = range(12, 37)  # columns for drawn intervals: with fewer, they say nothing
_NAME = 16  # columns of a name that is not broken, if there are other labels that may be
_BETWEEN = 3  # columns between two columns of a table
_LEAST = 1.1  # the axis reaches this far at least, or noise would look like a difference


@dataclass(frozen=True)
class Shown:
    """A document for any Rich console. ``full``: all of it."""

    document: Document
    full: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        yield foreign(self.document.title, "bold")
        for block in self.document.head:
            yield from _block(block, width, self.full)
        left, hidden = _LINES, list[str]()
        drawn = dict[str, Together]()
        for each in sorted(self.document.sections, key=lambda each: each.weight):
            group = Together(*_section(each, width, self.full or not self.document.more))
            if not group.renderables:
                continue
            height = 0 if self.full or each.weight == FIRST else in_columns(group, width).count("\n")
            if each.weight == FIRST and not self.full:
                left -= in_columns(group, width).count("\n")
            if self.full or each.weight == FIRST or (each.weight < WHOLE and height <= left):
                left -= height
                drawn[each.id] = group
            elif each.weight < WHOLE:
                hidden.append(each.title[:1].lower() + each.title[1:])
        yield from (drawn[each.id] for each in self.document.sections if each.id in drawn)
        if hidden and self.document.more:
            yield Text()
            yield foreign(f"More: {words.listed(hidden)}; {self.document.more}", "dim")


def render_text(document: Document, width: int = WIDTH, *, full: bool = False) -> str:
    """Plain text without colour, ``width`` columns wide."""
    return in_columns(Shown(document, full), width)


def render_full(document: Document) -> str:
    """As ``render_text``, with all that there is."""
    return render_text(document, full=True)


def in_columns(drawn: RenderableType, width: int) -> str:
    """``drawn`` as plain text without colour, ``width`` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(drawn, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip("\n").split("\n"))


def _section(section: Section, width: int, full: bool) -> Iterator[RenderableType]:
    blocks = section.blocks if full or section.brief is None else section.brief
    parts = list(_apart(blocks, width, full, cut=section.weight == FIRST and not full))
    if parts and section.titled and section.title:
        yield Text()
        yield Rule(foreign(section.title, "bold"), align="left", style="dim")
        yield from parts[1:] if isinstance(blocks[0], Sentences) else parts
    else:
        yield from parts


def _apart(blocks: Iterable[Block], width: int, full: bool, cut: bool = False) -> Iterator[RenderableType]:
    """Blocks with a blank line before each."""
    for block in blocks:
        if (parts := list(_block(block, width, full, cut))) and parts:
            yield Text()
            yield from parts


def _block(block: Block, width: int, full: bool, cut: bool = False) -> Iterator[RenderableType]:
    match block:
        case Sentences():
            yield from _sentences(block.lines, full)
        case Table():
            fits = block.narrow is None or sum(_sizes(block)) <= width + _BETWEEN
            whole = block.narrow if block.narrow and not fits else block
            rest = len(block.rows) - _ROWS if cut else 0
            kept = replace(whole, rows=whole.rows[:_ROWS]) if rest > 0 else whole
            for number, part in enumerate(parts_of(kept, width)):
                yield from [Text()] * (number > 0)
                yield from drawn_table(part, width)
            if rest > 0:
                yield foreign(f"and {fmt.plural(rest, 'further row')}", "dim")
        case Facts():
            for name, facts in block.parts:
                if title := ": ".join(filter(None, (block.title, name))):
                    yield foreign(title, "bold")
                grid = RichTable.grid(padding=(0, 2, 0, 0))
                marked = any(fact.mark for fact in facts)
                for fact in facts:
                    mark = [Text(fact.mark, STYLES.get(fact.tone, ""))] * marked
                    shown = Text(plain(fact.text)) if fact.block else foreign(fact.text)
                    grid.add_row(*mark, foreign(fact.name, "" if marked else "dim"), shown)
                yield grid
        case Code():
            yield from [foreign(f"{block.title}:")] if block.title else []
            # Each line is whole, however narrow the terminal is, since it is copied.
            lines = textwrap.indent(plain(block.text).rstrip("\n"), " " * 4)
            yield Text(lines, no_wrap=True, overflow="ignore")
        case Group() if full or not block.folded:
            parts = list(_apart(block.blocks, width, full))
            yield from (foreign(block.title, "bold"), *parts[1:]) if parts and block.title else parts[1:]
        case Group() | Figure():
            pass


def _sentences(lines: Sequence[Line], full: bool) -> Iterator[RenderableType]:
    listed = [line for line in lines if line.mark]
    shown = lines if full or len(listed) <= _MOST + 1 else lines[:_MOST]
    for line in shown:
        yield from _line(line)
    if (more := len(lines) - len(shown)) > 0:
        yield bullet(lines[0].mark, STYLES.get(lines[0].tone, ""), f"and {more:,} more: `--full` shows all")


def _line(line: Line, indent: int = 0) -> Iterator[RenderableType]:
    style = STYLES.get(line.tone, "")
    if mark := line.mark or ("!" if line.tone in ("caution", "note") else ""):
        yield bullet(mark, style or "dim", line.text, indent, style if line.tone in _LOUD else "")
    else:
        yield Padding(foreign(line.text, style), (0, 0, 0, indent))
    for each in line.under:
        yield from _line(each, indent + 2)


def bullet(mark: str, mark_style: str, sentence: str, indent: int = 0, style: str = "") -> RenderableType:
    """A paragraph that hangs on its mark."""
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, mark_style), foreign(sentence, style))
    return Padding(grid, (0, 0, 0, indent))


def foreign(text: str, style: str = "") -> Text:
    """Text that may be a user's: on one line, its brackets no markup."""
    return Text(one_line(text), style)


def parts_of(table: Table, width: int) -> Iterator[Table]:
    """``table`` in as few parts as fit, each with its labels, in which no word is broken.

    A divisible one gets parts in which no label is broken either. Footnotes are numbered, and no cell's any more.
    """
    (caption, *columns), rows = table.texts()
    notes = table.notes
    table = replace(table, caption=caption, columns=tuple(map(one_line, columns)), rows=rows, more=())
    if table.divisible and sum(_sizes(table)) > width + _BETWEEN:
        narrow = _narrowed(table)
        of_words = (new for old, new in zip(table.columns, narrow, strict=True) if old in table.words)
        table = replace(table, columns=narrow, words=(*table.words, *of_words))
    sizes = _sizes(table)
    least = _widest_words(table)
    labels = list(range(table.labels))
    room = width + _BETWEEN - sum(sizes[i] if table.divisible else least[i] + _BETWEEN for i in labels)
    parts: list[list[int]] = [[]]
    for column in range(table.labels, len(sizes)):
        if parts[-1] and sum(sizes[i] for i in (*parts[-1], column)) > room and not table.plot:
            parts.append([])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        kept = [*labels, *part]
        shown = replace(table.of_columns(kept), more=notes if number == len(parts) - 1 else ())
        yield shown if number == 0 else replace(shown, title=f"{table.title}, continued", caption="", plot=None)


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
    """Of each label's column the widest word, or the whole name if that is short and there are other labels."""
    columns = list(zip(table.columns, *table.rows, strict=True))[: table.labels]
    of_words = [max((cell_len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    whole = [max(map(cell_len, column)) for column in columns]
    named = table.labels > 2 and whole[0] <= _NAME
    return [whole[0] if named and number == 0 else word for number, word in enumerate(of_words)]


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
        heading.append(f"{'  ' if table.title else ''}{one_line(table.caption)}", "dim")
    if heading.plain:
        yield heading
    if table.plot and sum(_sizes(table)) > width + _BETWEEN:
        for row in table.rows:
            style = next((STYLES[tone] for cell in row if (tone := tone_of(cell))), "")
            named = zip(table.columns, row, strict=True)
            yield bullet("·", style or "dim", " ".join(_in_line(name, cell, table) for name, cell in named if cell))
    else:
        yield _rich_table(table, width)
    for number, note in enumerate(table.more, start=1):
        yield foreign(f"[{number}] {note}", "dim")


def _in_line(name: str, cell: str, table: Table) -> str:
    """A cell without its column: what it is stands beside it, if it doesn't say so itself."""
    return f"{name} {cell}" if name in table.words else f"in {cell} {name}" if name == "rounds" else cell


def _rich_table(table: Table, width: int) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1))
    widths = _label_widths(table, width)
    for number, column in enumerate(table.columns):
        justify: JustifyMethod = "right" if table.is_number(number) else "left"
        fixed = widths[number] if number < table.labels else None
        rich.add_column(Text(column), justify=justify, no_wrap=fixed is None, overflow="fold", width=fixed)
    rows = [[foreign(cell, STYLES.get(tone_of(cell), "")) for cell in row] for row in table.rows]
    spans = table.plot.spans if table.plot else ()
    room = min(width - sum(_sizes(table)), _FOREST[-1])
    if any(spans) and room in _FOREST:
        styles = [next((STYLES[tone] for cell in row if (tone := tone_of(cell))), "") for row in table.rows]
        rich.add_column(Text("│ = 1×"), no_wrap=True)
        rows = [[*row, line] for row, line in zip(rows, forest(spans, room, styles), strict=True)]
    for row in rows:
        rich.add_row(*row)
    return rich


def forest(spans: Sequence[Span | None], width: int, styles: Sequence[str]) -> list[Text]:
    """Each span as ``├──●──┤`` on one log axis, which always holds 1 (``│``); empty for a span that is missing."""
    ends = [math.log(end) for span in spans if span is not None for end in (span.low, span.value, span.high)]
    low = min([*ends, -math.log(_LEAST)])
    high = max([*ends, math.log(_LEAST)])

    def column(ratio: float) -> int:
        return round((math.log(ratio) - low) / (high - low) * (width - 1))

    lines = []
    for span, style in zip(spans, styles, strict=True):
        signs = [" "] * width
        signs[column(1.0)] = "│"
        if span is None:
            lines.append(Text("".join(signs), "dim"))
            continue
        first, value, last = map(column, (span.low, span.value, span.high))
        signs[first : last + 1] = "─" * (last - first + 1)
        signs[first], signs[last] = ("├", "┤") if span.sure else (" ", " ")
        if first <= column(1.0) <= last:
            signs[column(1.0)] = "┼"
        signs[value] = "●" if span.sure else "○"
        line = Text("".join(signs), "dim")
        if style:
            line.stylize(f"not dim {style}", first, last + 1)
        lines.append(line)
    return lines
