"""Reports: what a run found, for people (terminal, Markdown, HTML, AsciiDoc) and for programs (CSV, JSON).

A renderer's module is imported when it is first used: the terminal's report must not wait for the charts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from storlab.errors import UserError
from storlab.report.input import ReportInput
from storlab.text import spelled

__all__ = ["FORMATS", "ReportInput", "render"]

Renderer = Callable[[ReportInput], str]


def _lazily(module: str, function: str) -> Renderer:
    def rendered(given: ReportInput) -> str:
        renderer: Renderer = getattr(import_module(f"storlab.report.{module}"), function)
        return renderer(given)

    return rendered


def render_json(given: ReportInput) -> str:
    """Every field of ``Summary`` by its name, unrounded and in base units; ``cautions``, which all must read, in facts.

    Numbers that are no number are null.
    """
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    from storlab.report.conformance import check_facts

    checks = list(check_facts(given))
    more = {"cautions": given.cautions, "checks": checks}
    facts = given.summary.facts | {name: found for name, found in more.items() if found}
    return spelled(orjson.dumps(replace(given.summary, facts=facts), default=str, option=options).decode())


FORMATS: dict[str, Renderer] = {
    "text": _lazily("terminal", "render_text"),
    "md": _lazily("markdown", "render_markdown"),
    "html": _lazily("html", "render_html"),
    "csv": _lazily("csv", "render_csv"),
    "json": render_json,
    "adoc": _lazily("adoc", "render_adoc"),
}
"""Of any run."""

PUBLISHED: dict[str, Renderer] = {"virtiofs-tests": _lazily("virtiofs_tests", "render_virtiofs_tests")}
"""Tables as other tools publish them, of runs that were imported from there."""

OTHER_NAMES = {"markdown": "md"}
"""What `storlab compare` and others call a format, and its name here."""


def render(given: ReportInput, format_name: str) -> str:
    """``given`` in the format of that name; ``UserError`` for a format that is none of them."""
    renderer = (FORMATS | PUBLISHED).get(OTHER_NAMES.get(format_name, format_name))
    if renderer is None:
        raise UserError(f"there is no report format {format_name!r}; choose one of {', '.join([*FORMATS, *PUBLISHED])}")
    return renderer(given)
