"""Documents as AsciiDoc, for lab notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storlab.base.text import plain
from storlab.report.document import Block, Code, Document, Facts, Figure, Group, Line, Sentences, Table
from storlab.report.formats.escape import adoc as escaped

_ADMONITIONS = {"caution": "CAUTION: ", "note": "NOTE: "}


def render_adoc(document: Document) -> str:
    """All of it but its charts."""
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"= {escaped(document.title)}", "")
    yield from _blocks(document.head, "==")
    for section in document.sections:
        if lines := list(_blocks(section.blocks, "===")):
            yield from (*([f"== {escaped(section.title)}", ""] if section.title else []), *lines)


def _blocks(blocks: Iterable[Block], mark: str) -> Iterator[str]:
    for block in blocks:
        yield from _block(block, mark)


def _block(block: Block, mark: str) -> Iterator[str]:
    match block:
        case Sentences():
            for line in block.lines:
                yield from _line(line, "*") if line.mark else (*_paragraph(line), "")
            yield from [""] * bool(block.lines and block.lines[-1].mark)
        case Table():
            (caption, *columns), rows = block.texts()
            if block.title:
                yield f".{escaped(f'{block.title} ({caption})' if caption else block.title)}"
            yield from (f'[cols="{",".join("1" * len(columns))}"]', "|===")
            yield f"|{' | '.join(map(escaped, columns))}"
            for row in rows:
                yield from ("", *(f"|{escaped(cell)}" for cell in row))
            yield from ("|===", "")
            yield from (line for i, note in enumerate(block.notes, 1) for line in (escaped(f"[{i}] {note}"), ""))
        case Facts():
            for name, facts in block.parts:
                yield from (f"{mark} {escaped(': '.join(filter(None, (block.title, name))))}", "")
                yield from (f"* {escaped(f'{fact.mark} {fact.name}: {fact.text}'.lstrip())}" for fact in facts)
                yield ""
        case Code():
            yield from ([escaped(f"{block.title}:"), ""] if block.title else [])
            lines = plain(block.text).rstrip("\n").split("\n")
            # Longer than any line of dashes in the block, so that nothing in it ends the block.
            dashes = (len(line) for line in lines if line.startswith("----") and not line.strip("-"))
            fence = "-" * (max(dashes, default=3) + 1)
            yield from (fence, *lines, fence, "")
        case Group():
            yield from ([f"{mark} {escaped(block.title)}", ""] if block.title else [])
            yield from _blocks(block.blocks, f"{mark}=")
        case Figure():
            pass


def _paragraph(line: Line) -> Iterator[str]:
    text = escaped(line.text)
    yield f"*{text}*" if line.tone in ("strong", "hit", "passed") else f"{_ADMONITIONS.get(line.tone, '')}{text}"
    yield from ("", *(f"* {escaped(each.text)}" for each in line.under)) if line.under else ()


def _line(line: Line, bullet: str) -> Iterator[str]:
    mark = "" if line.mark in "·-" else f"{line.mark} "
    yield f"{bullet} {mark}{escaped(line.text)}"
    for each in line.under:
        yield from _line(each, f"{bullet}*")
