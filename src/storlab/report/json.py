"""The summary as JSON, in base units: what ``summary.json`` holds, and the cautions, without which none may read it.

Numbers that are no number are null.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from storlab.report.input import ReportInput


def render_json(given: ReportInput) -> str:
    """Every field of ``storlab.analysis.summary.Summary`` by its name, unrounded; ``cautions`` are in ``facts``."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    cautions = [str(caution) for caution in given.manifest.get("cautions") or ()]
    facts = given.summary.facts | ({"cautions": cautions} if cautions else {})
    return orjson.dumps(replace(given.summary, facts=facts), default=str, option=options).decode()
