"""What is shown, before any format draws it: a document of sections, each of a few kinds of blocks.

Whoever has something to show makes a document once; terminal, HTML, Markdown, AsciiDoc and JSON each visit it
(``storlab.report.formats``). Texts are plain: they may be a user's, and each format escapes them. Numbers are
finished text, but for what is drawn. No block has markup: a cell or a line has a *tone*, which says what kind of answer
it is, and notes, which are its footnotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len

if TYPE_CHECKING:
    from storlab.report.charts.theme import Chart

Tone = Literal[
    "", "better", "worse", "equivalent", "undecided", "described", "missing", "hit", "passed",
    "strong", "soft", "caution", "note",
]  # fmt: skip
"""What kind of answer something is, and so its colour; or how much it matters: ``strong``, ``soft``."""

_WORDS = frozenset({"verdict", "status", "reason", "better", "modes", "after a power cut"})
_NARROW, _LETTERS = 7, 68  # columns, and letters with the gaps between columns, that fit into half of a page
_GAP = 2


class Cell(str):
    """A table's text with its tone and the sentences that are its footnotes. A tone's mark begins the text."""

    tone: Tone
    notes: tuple[str, ...]

    def __new__(cls, text: str, notes: Iterable[str] = (), tone: Tone = "") -> Cell:
        cell = super().__new__(cls, text)
        cell.tone, cell.notes = tone, tuple(notes)
        return cell


def tone_of(text: str) -> Tone:
    """Of a cell; plain text has none."""
    return text.tone if isinstance(text, Cell) else ""


@dataclass(frozen=True)
class Span:
    """A ratio with its interval, and the ratio of each round, for formats that can draw.

    ``far``: outliers of these; ``sure``: whether there is an interval, else its ends are the ratio.
    """

    low: float
    value: float
    high: float
    points: tuple[float, ...] = ()
    far: tuple[float, ...] = ()
    sure: bool = True


@dataclass(frozen=True)
class Plot:
    """Ratios of a table's rows on one logarithmic axis. ``margin``: the zone around 1 in which sides are equivalent.

    ``spans``: one a row, if it has any; ``domain``: all that the axis must hold, also of a table beside this one.
    """

    title: str
    spans: tuple[Span | None, ...]
    margin: float = 0.0
    domain: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Table:
    """Rows of finished text. The first ``labels`` columns name the row; the others hold its numbers.

    ``divisible``: if not all columns fit side by side, the table may be shown in parts, each with its labels; else its
    rows become lines. ``words``: columns that hold no numbers, beside those of which that is known.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1
    caption: str = ""
    plot: Plot | None = None
    divisible: bool = False
    words: tuple[str, ...] = ()
    more: tuple[str, ...] = ()  # footnotes of the table as a whole
    narrow: Table | None = None  # what is shown where not all columns fit

    @property
    def notes(self) -> tuple[str, ...]:
        """The footnotes in the order of their numbers: each sentence once."""
        texts = (self.caption, *self.columns, *(cell for row in self.rows for cell in row))
        own = (note for text in texts if isinstance(text, Cell) for note in text.notes)
        return tuple(dict.fromkeys((*own, *self.more)))

    def texts(self) -> tuple[tuple[Cell, ...], tuple[tuple[Cell, ...], ...]]:
        """The caption and the headings; and the rows: with the numbers of their footnotes, as ``12 [1]``."""
        numbers = {note: f"[{number}]" for number, note in enumerate(self.notes, start=1)}

        def numbered(text: str) -> Cell:
            marks = dict.fromkeys(numbers[note] for note in (text.notes if isinstance(text, Cell) else ()))
            return Cell(" ".join([text, *marks]), tone=tone_of(text))

        headings = tuple(map(numbered, (self.caption, *self.columns)))
        return headings, tuple(tuple(map(numbered, row)) for row in self.rows)

    @property
    def wide(self) -> bool:
        """Whether two such tables don't fit side by side on a page: labels break between words, numbers nowhere."""
        columns = enumerate(zip(self.columns, *self.rows, strict=True))
        texts = (" ".join(column).split() if at < self.labels else column for at, column in columns)
        letters = sum(max(map(cell_len, those), default=0) + _GAP for those in texts)
        return len(self.columns) > _NARROW or letters > _LETTERS or self.plot is not None

    def of_columns(self, kept: Sequence[int]) -> Table:
        """Only these columns, by index."""
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=rows)

    def is_number(self, column: int) -> bool:
        return column >= self.labels and self.columns[column] not in {*_WORDS, *self.words}


@dataclass(frozen=True)
class Line:
    """A sentence. With a mark it hangs on it, in a list; ``under`` are lines that belong to it."""

    text: str
    mark: str = ""
    tone: Tone = ""
    under: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Sentences:
    """Paragraphs, or a list where lines have marks."""

    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        return ""


@dataclass(frozen=True)
class Figure:
    """A chart. ``name`` is a file's stem, unique in a document; ``alt`` says in words what it shows.

    ``draw`` makes it, and ``draw_log`` the same on a logarithmic scale, if that is worth a look; ``log_first``: which
    of them is shown before anybody asks. ``wide``: it needs the whole width of a page. ``file``: it is written as a
    file only, as the page has the same in another form.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[], Chart] = field(compare=False)
    draw_log: Callable[[], Chart] | None = field(default=None, compare=False)
    log_first: bool = False
    wide: bool = False
    file: bool = False
    about: str = ""  # what it is a chart of, for its title as a file
    _drawn: dict[tuple[int, bool], str] = field(default_factory=dict, compare=False, repr=False)

    def svg(self, width: int, *, log: bool = False) -> str:
        """The chart as an SVG document; drawn once, for page and files."""
        from storlab.report.charts.theme import to_svg  # large, and an extra

        if (width, log) not in self._drawn:
            draw = self.draw_log if log and self.draw_log is not None else self.draw
            self._drawn[width, log] = to_svg(draw(), width=width)
        return self._drawn[width, log]


@dataclass(frozen=True)
class Fact:
    """``block``: several lines, to be shown as a tool printed them. ``mark``: a sign before the name."""

    name: str
    text: str
    block: bool = False
    mark: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Facts:
    """Names with their texts, in parts that may have names; folded where a format can fold."""

    title: str
    parts: tuple[tuple[str, tuple[Fact, ...]], ...]


@dataclass(frozen=True)
class Code:
    """Lines to copy, or a file as it is; folded if it has a title."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Group:
    """Blocks under a title of their own. ``folded``: details, where a format can fold."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


Block = Sentences | Table | Figure | Facts | Code | Group

FIRST, SOON, LATER, LAST, WHOLE = range(5)
"""Weights of sections: always shown; on a terminal's two screens if there is room, in this order; only with all."""


@dataclass(frozen=True)
class Section:
    """``id``: an anchor, unique in a document. ``brief``: what is shown instead of ``blocks`` where little is."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    weight: int = SOON
    brief: tuple[Block, ...] | None = None
    titled: bool = True  # else the title is for the table of contents alone


@dataclass(frozen=True)
class Document:
    """``head``: what stands below the title, before all sections. ``more``: a command that shows all of it."""

    title: str
    head: tuple[Block, ...] = ()
    sections: tuple[Section, ...] = ()
    more: str = ""


def said(*texts: str, tone: Tone = "", mark: str = "") -> tuple[Sentences, ...]:
    """A block of these sentences, without those that are empty; none if all are."""
    lines = tuple(Line(text, mark, tone) for text in texts if text)
    return (Sentences(lines),) if lines else ()


def section(id_: str, title: str, *blocks: Block | None, **more: object) -> tuple[Section, ...]:
    """The section, or nothing if there is nothing in it."""
    there = tuple(block for block in blocks if block is not None and not _is_empty(block))
    return (Section(id_, title, there, **more),) if there else ()  # type: ignore[arg-type]


def _is_empty(block: Block) -> bool:
    return isinstance(block, Group) and not block.blocks


def walk(blocks: Iterable[Block]) -> Iterator[Block]:
    """All of them, and those within groups."""
    for block in blocks:
        yield block
        if isinstance(block, Group):
            yield from walk(block.blocks)


def figures(document: Document) -> list[Figure]:
    """Every chart of it."""
    blocks = walk(block for section in document.sections for block in section.blocks)
    return [block for block in blocks if isinstance(block, Figure)]
