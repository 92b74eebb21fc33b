"""Estimates and comparisons as one long CSV table, in base units and unrounded, for spreadsheets and scripts.

One row a number with its interval. ``kind`` says which columns are filled:

    estimate    cell, levels (``factor.NAME``), mean, median, sd, cv
    node        as an estimate, with the node that it is of
    comparison  factor, a, b, pooled, levels of the other factors, ratio, margin, verdict, rounds_to_decide
    caution     warnings: a sentence without which the numbers would be misread; these rows come first

Text stands as it is: a level named ``=1+1`` is written so, and a spreadsheet should import it as text.
"""

from __future__ import annotations

import csv
import io

from storlab.analysis.summary import Comparison, Estimate
from storlab.report.input import ReportInput

_FIRST = ("kind", "source", "metric", "unit", "better")
_LAST = (
    "cell", "node", "factor", "a", "b", "pooled", "rounds", "mean", "median", "sd", "cv", "ratio", "low", "high",
    "confidence", "margin", "verdict", "reason", "rounds_to_decide", "warnings",
)  # fmt: skip


def render_csv(given: ReportInput) -> str:
    """RFC 4180 but for line ends, which are a single newline. The first line names the columns."""
    summary = given.summary
    factors = dict.fromkeys(
        name
        for levels in (*(e.levels for e in summary.estimates), *(c.within for c in summary.comparisons))
        for name in levels
    )
    columns = [*_FIRST, *(f"factor.{name}" for name in factors), *_LAST]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({"kind": "caution", "warnings": str(text)} for text in given.manifest.get("cautions") or ())
    writer.writerows(map(_estimate, summary.estimates))
    writer.writerows(_estimate(e) | {"kind": "node", "node": e.node} for e in summary.by_node)
    writer.writerows(map(_comparison, summary.comparisons))
    return out.getvalue()


def _estimate(e: Estimate) -> dict[str, object]:
    row = _shared(e) | {f"factor.{name}": level for name, level in e.levels.items()}
    return row | {"kind": "estimate", "cell": e.cell, "mean": e.mean, "median": e.median, "sd": e.sd, "cv": e.cv}


def _comparison(c: Comparison) -> dict[str, object]:
    row = _shared(c) | {f"factor.{name}": level for name, level in c.within.items()}
    names = ("factor", "a", "b", "ratio", "margin", "verdict", "reason", "rounds_to_decide")
    return row | {"kind": "comparison", "pooled": str(c.pooled).lower()} | {name: getattr(c, name) for name in names}


def _shared(of: Estimate | Comparison) -> dict[str, object]:
    names = ("source", "metric", "unit", "better", "rounds", "low", "high", "confidence")
    return {name: getattr(of, name) for name in names} | {"warnings": " ".join(of.warnings)}
