"""The summary as JSON, in base units: what ``summary.json`` holds. Numbers that are no number are null."""

from __future__ import annotations

import orjson

from storlab.report.input import ReportInput


def render_json(given: ReportInput) -> str:
    """Every field of ``storlab.analysis.summary.Summary`` under its own name, unrounded."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(given.summary, default=str, option=options).decode()
