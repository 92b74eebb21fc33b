"""Documents as plain lines, however long: people search them, and programs of theirs read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storlab.report.document import Block, Document, Group, Sentences, Table
from storlab.text import one_line

_MOST = 50  # lines or rows of a kind; the other formats have all


def render_text(document: Document, *, answer_last: bool = False, titled: bool = True) -> str:
    """``answer_last``: it stands where the prompt comes."""
    title, answer = [one_line(document.title)] if titled else [], ["", *_lines(document.head, "")]
    sections = []
    for each in document.sections:
        heads = ["", one_line(each.title)] if each.titled else [""]
        sections += [*heads, *_lines(each.blocks, "  " if each.titled else "")]
    return "\n".join([*title, *sections, *answer] if answer_last else [*title, *answer, *sections]) + "\n"


def _lines(blocks: Iterable[Block], indent: str) -> Iterator[str]:
    for block in blocks:
        match block:
            case Sentences():
                yield from _some([one_line(line.text) for line in block.lines], indent)
            case Table():
                (_, *columns), rows = block.texts()
                cells = [[one_line(cell) for cell in row] for row in (columns, *rows)]
                widths = [max(map(len, column)) for column in zip(*cells[: _MOST + 1], strict=True)]
                shown = (
                    "  ".join(
                        cell.rjust(width) if block.is_number(number) else cell.ljust(width)
                        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
                    ).rstrip()
                    for row in cells
                )
                yield from (indent + next(shown), *_some(list(shown), indent))
            case Group():
                yield from ([indent + one_line(block.title)] if block.title else [])
                yield from _lines(block.blocks, f"{indent}  ")


def _some(lines: list[str], indent: str) -> Iterator[str]:
    yield from (indent + line for line in lines[:_MOST])
    if len(lines) > _MOST:
        yield f"{indent}and {len(lines) - _MOST} more"
