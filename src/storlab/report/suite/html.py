"""A run of a suite as one HTML file that needs nothing else, in the style of reports on studies."""

from __future__ import annotations

import base64
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import jinja2
from markupsafe import Markup

from storlab.report.model.format import duration
from storlab.report.suite.view import ORDER, Row, View
from storlab.suite.model import Attempt, Outcome
from storlab.text import plain

_TEMPLATES = Path(__file__).parent.parent / "formats" / "templates"
_MOST = 60  # tests whose last words are shown


def render_html(view: View, printed: Callable[[Attempt], str]) -> str:
    """The page: what was not expected first, then everything by group. ``printed``: the end of what a script said."""
    script = (_TEMPLATES / "suite.js").read_text("utf-8")
    total = sum(view.counts.values()) or 1
    return (
        environment()
        .get_template("suite.html.j2")
        .render(
            view=view,
            asked=view.run.asked,
            shares=[(str(o), view.counts[o], view.counts[o] / total * 100) for o in ORDER if view.counts.get(o)],
            words=[(row, printed(row.attempt)) for row in view.unexpected[:_MOST]],
            groups=_groups(view),
            script=Markup(script),
            script_hash=base64.b64encode(sha256(script.encode()).digest()).decode(),
            **styles(),
        )
    )


def styles() -> dict[str, Markup]:
    """What all pages on suites look like."""
    own = (_TEMPLATES / "suite.css").read_text("utf-8")
    return {"css": Markup((_TEMPLATES / "report.css").read_text("utf-8")), "own_css": Markup(own)}


def environment() -> jinja2.Environment:
    """For templates of pages on suites: every text is escaped, and has no sign that a page would act on."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    made.filters |= {"duration": duration, "tone": _tone}
    return made


def _groups(view: View) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in view.rows:
        groups.setdefault(row.attempt.group, []).append(row)
    return list(groups.items())


def _tone(row: Row) -> str:
    """How a result is coloured."""
    if row.surprising:
        return "bad"
    return {Outcome.PASS: "good", Outcome.SKIP: "skipped"}.get(row.attempt.outcome, "known")
