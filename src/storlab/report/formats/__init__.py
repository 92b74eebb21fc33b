"""The formats in which `storlab report` and `storlab compare` write, each a line of one table.

A format's module is imported when it is first used: the terminal's report must not wait for the charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from storlab.base.errors import UserError

if TYPE_CHECKING:
    from storlab.report.model.input import ReportInput


@dataclass(frozen=True)
class Format:
    """``places`` are functions of this package by their modules: each takes what the one before gives."""

    name: str
    places: tuple[str, ...]
    other_names: tuple[str, ...] = ()

    def render(self, given: Any) -> Any:
        """``given`` in this format: text, or of PDF bytes."""
        for place in self.places:
            module, _, function = place.partition(":")
            given = getattr(import_module(f"storlab.report.{module}"), function)(given)
        return given


_DOCUMENT, _PAGE = "sections:report_document", "sections:page_document"
_COMPARISON = "model.across:comparison_document"

REPORTS = (
    Format("text", (_DOCUMENT, "formats.terminal:render_text")),
    Format("md", (_DOCUMENT, "formats.markdown:render_markdown"), ("markdown",)),
    Format("html", (_PAGE, "formats.html:render_html")),
    Format("csv", ("formats.csv:render_csv",)),
    Format("json", ("formats.programs:render_json",)),
    Format("adoc", ("sections:notes_document", "formats.adoc:render_adoc"), ("asciidoc",)),
)
"""Of any run."""

FULL = Format("full text", (_DOCUMENT, "formats.terminal:render_full"))
"""``text`` with all tables; an option asks for it."""

PRINTED = Format("pdf", (_PAGE, "formats.html:render_html", "formats.html:print_page"))
"""Not text, and made by a browser, if there is one."""

PUBLISHED = (
    Format("virtiofs-tests", ("formats.published:render_virtiofs_tests",)),
    Format("bonnie", ("formats.published:render_bonnie",)),
)
"""Tables as other tools publish them, of runs of these tools or imported from there."""

COMPARISONS = (
    Format("text", (_COMPARISON, "formats.terminal:render_text")),
    Format("md", (_COMPARISON, "formats.markdown:render_comment"), ("markdown",)),
    Format("json", ("formats.programs:render_comparison",)),
    Format("junit", ("formats.programs:render_junit",)),
)
"""Of several runs compared."""


def names(formats: Iterable[Format]) -> list[str]:
    """As the command line offers them."""
    return [each.name for each in formats]


def find(name: str, formats: Sequence[Format]) -> Format:
    """The one of that name; ``UserError`` for a name that is none of theirs."""
    for each in formats:
        if name in (each.name, *each.other_names):
            return each
    raise UserError(f"unknown format {name!r}; choose one of {', '.join(names(formats))}")


def render(given: ReportInput, name: str) -> str:
    """A run's report in the format of that name; ``UserError`` for a format that is none of them."""
    rendered: str = find(name, (*REPORTS, *PUBLISHED)).render(given)
    return rendered
