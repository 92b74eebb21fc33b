"""A report on a run of a suite in any format."""

from __future__ import annotations

from storlab.errors import UserError
from storlab.suites.records import SuiteRun
from storlab.suites.report.html import render_html
from storlab.suites.report.ktap import render_ktap
from storlab.suites.report.programs import render_json, render_junit
from storlab.suites.report.text import render_markdown, render_text, render_zts
from storlab.suites.report.view import view_of


def render(run: SuiteRun, format_: str, *, brief: bool = False) -> str:
    """The report. ``brief``: of the text, without what was printed while it ran. Raises ``UserError``."""
    view = view_of(run)
    match format_:
        case "text":
            return render_text(view, brief=brief)
        case "zts":
            return render_zts(view)
        case "md":
            return render_markdown(view)
        case "html":
            return render_html(view, run.last_words)
        case "junit":
            return render_junit(view)
        case "ktap":
            return render_ktap(view)
        case "json":
            return render_json(view)
    raise UserError(f"there is no format {format_}")
