"""A run of a suite as one HTML file that needs nothing else, in the style of reports on studies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jinja2
import msgspec
from markupsafe import Markup

from storlab.grouping import grouped
from storlab.report.formats import html as html_page
from storlab.report.language.format import duration
from storlab.suites.model import Attempt, Outcome
from storlab.suites.report.text import not_kept
from storlab.suites.report.view import ORDER, Row, View

_MOST = 60  # tests whose last words are shown


def render_html(view: View, printed: Callable[[Attempt], str]) -> str:
    """The page: what was not expected first, then everything by group. ``printed``: the end of what a script said."""
    view = replace(view, rows=tuple(map(_with_cut, view.rows)))
    total = sum(view.counts.values()) or 1
    return (
        environment()
        .get_template("suite.html.j2")
        .render(
            view=view,
            asked=view.run.asked,
            shares=[(str(o), view.counts[o], view.counts[o] / total * 100) for o in ORDER if view.counts.get(o)],
            words=[(row, printed(row.attempt)) for row in view.unexpected[:_MOST]],
            groups=list(grouped((row.attempt.group, row) for row in view.rows).items()),
            **html_page.script("suite.js"),
            **styles(),
        )
    )


def styles() -> dict[str, Markup]:
    return {"css": html_page.style("report.css"), "own_css": html_page.style("suite.css")}


def environment() -> jinja2.Environment:
    return html_page.environment({"duration": duration, "tone": _tone})


def _with_cut(row: Row) -> Row:
    """The row, whose reason also says that output is missing: the page shows reasons of all tests, with those that
    passed.
    """
    if not row.attempt.dropped:
        return row
    reason = "; ".join(filter(None, (row.attempt.reason, not_kept(row))))
    return replace(row, attempt=msgspec.structs.replace(row.attempt, reason=reason))


def _tone(row: Row) -> str:
    if row.surprising:
        return "bad"
    return {Outcome.PASS: "good", Outcome.SKIP: "skipped"}.get(row.attempt.outcome, "known")
