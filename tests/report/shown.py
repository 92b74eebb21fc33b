"""What a report shows of a run, for tests: its sections, their tables and sentences, and its charts."""

from collections.abc import Iterable

from storlab.analysis.summary import Comparison, Summary
from storlab.report.charts.all import all_panels
from storlab.report.charts.theme import WIDE, WIDTH
from storlab.report.document import Block, Figure, Group, Section, Sentences, Table, walk
from storlab.report.formats.terminal import render_text
from storlab.report.model.input import ReportInput
from storlab.report.model.questions import Values, question_group
from storlab.report.sections import report_document


def section(given: ReportInput, id_: str) -> Section:
    """The one of that name; an empty one if there is none."""
    found = {each.id: each for each in report_document(given).sections}
    return found.get(id_, Section(id_, "", ()))


def tables(blocks: Iterable[Block]) -> list[Table]:
    """All of them, those in groups, too."""
    return [block for block in walk(blocks) if isinstance(block, Table)]


def questions(given: ReportInput) -> list[Group]:
    return [
        block for block in walk(section(given, "comparisons").blocks) if isinstance(block, Group) and not block.folded
    ]


def question(*comparisons: Comparison) -> Group:
    return question_group(comparisons, Values(Summary("", "", 0.95, 0, None)))


def rows(table: Table) -> list[tuple[str, ...]]:
    """With the numbers of footnotes."""
    return [tuple(map(str, row)) for row in table.texts()[1]]


def lines(blocks: Iterable[Block]) -> list[str]:
    """What sentences say, each with its mark."""
    found = (line for block in walk(blocks) if isinstance(block, Sentences) for line in block.lines)
    return [f"{line.mark} {line.text}".strip() for line in found]


def drawn(given: ReportInput) -> list[Figure]:
    return [panel.figure for panel in all_panels(given)]


def kind(figure: Figure) -> str:
    """What kind of chart it is, by the name of its file."""
    return figure.name.partition("-")[0]


def width(figure: Figure) -> int:
    return WIDE if figure.wide else WIDTH


def svg(figure: Figure) -> str:
    return figure.svg(width(figure))


def text_of(given: ReportInput, width: int = 80, *, full: bool = False) -> str:
    return render_text(report_document(given), width, full=full)
