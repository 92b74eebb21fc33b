"""Reports and comparisons as JSON: every field by its name, unrounded and in base units."""

from __future__ import annotations

from dataclasses import replace

import orjson

from storlab.analysis.runs.across_runs import RunsCompared
from storlab.report.model.across import cautions
from storlab.report.model.conformance import check_facts
from storlab.report.model.input import ReportInput
from storlab.report.model.power_cuts import power_cut_facts
from storlab.text import spelled

_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def render_json(given: ReportInput) -> str:
    """Every field of ``Summary``; ``cautions``, which all must read, in facts. Numbers that are no number are null."""
    cuts = power_cut_facts(given.power_cuts)
    more = {"cautions": given.cautions, "checks": list(check_facts(given)), "power_cuts": cuts}
    facts = given.summary.facts | {name: found for name, found in more.items() if found}
    data = replace(given.summary, facts=facts)
    return spelled(orjson.dumps(data, default=str, option=_INDENTED | orjson.OPT_NON_STR_KEYS).decode())


def render_comparison(given: RunsCompared) -> str:
    """Every field of ``RunsCompared``, and whether its gates failed."""
    data = {"failed": given.failed, **{key: getattr(given, key) for key in given.__dataclass_fields__}}
    data["cautions"] = cautions(given)
    return spelled(orjson.dumps(data, option=_INDENTED).decode())
