"""The formats in which `storlab report` and `storlab compare` write, each a line of one table.

A format's module is imported when it is first used: the terminal's report must not wait for the charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.report.model.input import ReportInput


@dataclass(frozen=True)
class Format:
    """``place`` is the module of this package, and the function in it that takes what is to be shown."""

    name: str
    place: str
    other_names: tuple[str, ...] = ()

    def render(self, given: Any) -> Any:
        """``given`` in this format: text, or of PDF bytes."""
        module, _, function = self.place.partition(":")
        return getattr(import_module(f"{__name__}.{module}"), function)(given)


REPORTS = (
    Format("text", "terminal:render_text"),
    Format("md", "markdown:render_markdown", ("markdown",)),
    Format("html", "html:render_html"),
    Format("csv", "csv:render_csv"),
    Format("json", "json:render_json"),
    Format("adoc", "adoc:render_adoc", ("asciidoc",)),
)
"""Of any run."""

FULL = Format("full text", "terminal:render_full")
"""``text`` with all tables; an option asks for it."""

PRINTED = Format("pdf", "pdf:render_pdf")
"""Not text, and made by a browser, where there is one."""

PUBLISHED = (
    Format("virtiofs-tests", "virtiofs_tests:render_virtiofs_tests"),
    Format("bonnie", "bonnie:render_bonnie"),
)
"""Tables as other tools publish them, of runs of these tools or imported from there."""

COMPARISONS = (
    Format("text", "across:render_text"),
    Format("md", "across:render_markdown", ("markdown",)),
    Format("json", "json:render_comparison"),
    Format("junit", "across:render_junit"),
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
