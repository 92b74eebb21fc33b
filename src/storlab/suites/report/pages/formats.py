"""A page as text, Markdown, HTML or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from storlab.errors import UserError
from storlab.report.formats.escape import markdown
from storlab.suites.report.pages.page import Page, Table
from storlab.text import one_line

_MOST = 50  # rows of a table in a terminal; the other formats have all


def render_page(page: Page, format_: str) -> str:
    if format_ not in RENDERERS:
        raise UserError(f"--format {format_}: it is one of {', '.join(RENDERERS)}")
    return RENDERERS[format_](page)


def _text(page: Page) -> str:
    lines = [page.title, "", page.answer]
    for table in page.tables:
        lines += ["", table.title, *([f"  {one_line(table.intro)}"] if table.intro else []), *_aligned(table)]
    lines += ["", *map(one_line, page.notes)] if page.notes else []
    return "\n".join(lines) + "\n"


def _aligned(table: Table) -> Iterator[str]:
    shown = [[one_line(cell) for cell in row] for row in (table.columns, *table.rows[:_MOST])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [
            cell.rjust(width) if number in table.numbers else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()
    if len(table.rows) > _MOST:
        yield f"  and {len(table.rows) - _MOST} more"


def _markdown(page: Page) -> str:
    lines = [f"# {markdown(page.title)}", "", f"**{markdown(page.answer)}**"]
    for table in page.tables:
        lines += ["", f"## {markdown(table.title)}", *(["", markdown(table.intro)] if table.intro else []), ""]
        lines.append(f"| {' | '.join(map(markdown, table.columns))} |")
        aligned = ("---:" if number in table.numbers else "---" for number in range(len(table.columns)))
        lines.append(f"| {' | '.join(aligned)} |")
        lines += [f"| {' | '.join(map(markdown, row))} |" for row in table.rows]
    for note in page.notes:
        lines += ["", markdown(note)]
    return "\n".join(lines) + "\n"


def _html(page: Page) -> str:
    from storlab.suites.report.html import environment, styles

    return environment().get_template("suite_pages.html.j2").render(page=page, **styles())


def _json(page: Page) -> str:
    return msgspec.json.format(msgspec.json.encode(page.document), indent=2).decode() + "\n"


RENDERERS: dict[str, Callable[[Page], str]] = {"text": _text, "md": _markdown, "html": _html, "json": _json}
