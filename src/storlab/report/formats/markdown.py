"""Documents as Markdown (CommonMark with GitHub's tables), for issues, pull requests and wikis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storlab.base.text import plain
from storlab.report.document import Block, Code, Document, Facts, Figure, Group, Line, Sentences, Table
from storlab.report.formats.escape import markdown as escaped

_QUOTED = {"caution": "> **Caution:** ", "note": "> **Note:** "}


def render_markdown(document: Document, level: int = 1) -> str:
    """All of it but its charts, which need the HTML page. ``level``: of the first heading."""
    return "\n".join(_lines(document, "#" * level)).rstrip() + "\n"


def render_comment(document: Document) -> str:
    """The same for a comment, say on a pull request, whose first heading is none of a page."""
    return render_markdown(document, level=3)


def _lines(document: Document, mark: str) -> Iterator[str]:
    yield from (f"{mark} {escaped(document.title)}", "")
    yield from _blocks(document.head, f"{mark}#")
    for section in document.sections:
        if lines := list(_blocks(section.blocks, f"{mark}##")):
            yield from (*([f"{mark}# {escaped(section.title)}", ""] if section.title else []), *lines)


def _blocks(blocks: Iterable[Block], mark: str) -> Iterator[str]:
    for block in blocks:
        yield from _block(block, mark)


def _block(block: Block, mark: str) -> Iterator[str]:
    match block:
        case Sentences():
            for line in block.lines:
                yield from _line(line) if line.mark else (*_paragraph(line), "")
            yield from [""] * bool(block.lines and block.lines[-1].mark)
        case Table():
            (caption, *columns), rows = block.texts()
            if block.title:
                yield from (f"{mark} {escaped(block.title)}{f' ({escaped(caption)})' if caption else ''}", "")
            yield f"| {' | '.join(map(escaped, columns))} |"
            yield f"| {' | '.join('---:' if block.is_number(i) else '---' for i in range(len(columns)))} |"
            yield from (f"| {' | '.join(map(escaped, row))} |" for row in rows)
            yield ""
            for number, note in enumerate(block.notes, start=1):
                yield from (f"\\[{number}\\] {escaped(note)}", "")
        case Facts():
            for name, facts in block.parts:
                yield from (f"{mark} {escaped(': '.join(filter(None, (block.title, name))))}", "")
                yield from (f"- {escaped(f'{fact.mark} {fact.name}'.lstrip())}: {escaped(fact.text)}" for fact in facts)
                yield ""
        case Code():
            yield from ([f"{escaped(block.title)}:", ""] if block.title else [])
            # An indented block: no line of it can end it, as one could end a fenced block.
            yield from (*(f"    {line}" for line in plain(block.text).rstrip("\n").split("\n")), "")
        case Group():
            yield from ([f"{mark} {escaped(block.title)}", ""] if block.title else [])
            yield from _blocks(block.blocks, f"{mark}#")
        case Figure():
            pass


def _paragraph(line: Line) -> Iterator[str]:
    text = escaped(line.text)
    yield f"**{text}**" if line.tone in ("strong", "hit", "passed") else f"{_QUOTED.get(line.tone, '')}{text}"
    yield from (f"- {escaped(each.text)}" for each in line.under)


def _line(line: Line, indent: str = "") -> Iterator[str]:
    mark = "" if line.mark in "·-" else f"{line.mark} "
    yield f"{indent}- {mark}{escaped(line.text)}"
    for each in line.under:
        yield from _line(each, f"{indent}  ")
