"""Estimates and comparisons as one long CSV table, in base units and unrounded, for spreadsheets and scripts.

One row a number with its interval. ``kind`` says which columns are filled:

    estimate    cell, levels (``factor.NAME``), mean, median, sd, cv
    node        as an estimate, with the node that it is of
    block-io    cell, levels, mean, low and high: a share of block requests, with the least and the most of any round;
                the metric is ``write.length.4k``, ``write.alignment.4k``, ``write.aligned.16k``, ``write.below.16k``
                (what these are is the reason)
    latency     cell, node (empty: all together), levels, value, low, high, operations: a percentile of operations of
                all rounds, and the bounds between which it lies for certain; the metric is ``write.latency.p99``
    effect      levels that don't vary, part (factor, interaction, others, rounds, residual), factor (``fs × bs`` for an
                interaction), value, df: a share of the variation of the metric's logarithm
    level-mean  levels: one for a factor, two for an interaction; mean: the geometric one over all combinations
    comparison  factor, a, b, pooled, levels of the other factors, ratio, margin, verdict, undecided, rounds_to_decide
    claim       part: what is claimed (``more than 2×``); a claim of a ratio: factor, a, b, the levels that both have,
                ratio; of a value: levels, value; verdict: holds, does not hold, undecided, not measured; reason: the
                claim in the study's words; warnings: why it is answered so
    check       cell, levels, value, operations: in how many of how many looks (trials, nodes) a check of a directory
                ended so; metric: its name, verdict: pass, fail or unsupported, reason
    fact        cell, levels, reason: what a load's program said of itself or of what it did (``file_size``: ``16G``)
    caution     warnings: a sentence without which the numbers would be misread; these rows come first

Text that a spreadsheet would compute has an apostrophe before it: a level named ``=1+1`` is ``'=1+1``. Numbers, and
text that is one, have none.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from storlab.analysis.data import Claim, Effects
from storlab.analysis.summary import BlockIO, Comparison, Distribution, Estimate, Share, Summary
from storlab.base.text import cell
from storlab.base.units import size_text
from storlab.metrics import percentile_name
from storlab.report.language import words
from storlab.report.language.methods import expected
from storlab.report.language.say import said as told_of
from storlab.report.language.say import say
from storlab.report.model.conformance import CellOutcome, cell_outcomes
from storlab.report.model.input import ReportInput
from storlab.report.model.setup import load_facts

_FIRST = ("kind", "source", "metric", "unit", "better")
_LAST = (
    "cell", "node", "factor", "a", "b", "pooled", "rounds", "mean", "median", "sd", "cv", "ratio", "low", "high",
    "confidence", "margin", "verdict", "undecided", "reason", "rounds_to_decide", "warnings",
    "value", "operations", "part", "df",
)  # fmt: skip


def render_csv(given: ReportInput) -> str:
    """RFC 4180 but for line ends, which are a single newline. The first line names the columns."""
    summary = given.summary
    all_levels = [
        *(e.levels for e in summary.estimates),
        *(b.levels for b in summary.block_io),
        *(d.levels for d in summary.distributions),
        *(c.within for c in summary.comparisons),
        *(_both(claim) for claim in summary.claims),
        *(check.levels for check in cell_outcomes(given)),
        *(levels for e in summary.effects for levels in (e.within, *(mean.levels for mean in e.main))),
    ]
    factors = dict.fromkeys(name for levels in all_levels for name in levels)
    columns = [*_FIRST, *(f"factor.{name}" for name in factors), *_LAST]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writerow({name: cell(name) for name in columns})
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in _rows(given))
    return out.getvalue()


def _cell(value: object) -> object:
    return cell(value) if isinstance(value, str) else value


def _rows(given: ReportInput) -> Iterator[dict[str, object]]:
    summary = given.summary
    for text in given.cautions:
        yield {"kind": "caution", "warnings": text}
    yield from map(_estimate, summary.estimates)
    yield from (_estimate(e) | {"kind": "node", "node": e.node} for e in summary.by_node)
    yield from (row for each in summary.block_io for row in _block_io(each))
    yield from (row for each in summary.distributions for row in _latency(each))
    yield from map(_comparison, summary.comparisons)
    yield from map(_claim, summary.claims)
    yield from map(_check, cell_outcomes(given))
    yield from _load_facts(summary)
    yield from (row for each in summary.effects for row in _effects(each))


def _load_facts(summary: Summary) -> Iterator[dict[str, object]]:
    levels = {state.cell: {f"factor.{name}": level for name, level in state.levels.items()} for state in summary.cells}
    for load, facts in load_facts(summary).items():
        for name, text, cells in facts:
            row: dict[str, object] = {
                "kind": "fact",
                "source": load,
                "metric": name,
                "better": "neither",
                "reason": text,
            }
            yield from (row | {"cell": cell} | levels.get(cell, {}) for cell in cells)


def _estimate(e: Estimate) -> dict[str, object]:
    row = _shared(e) | {f"factor.{name}": level for name, level in e.levels.items()}
    return row | {"kind": "estimate", "cell": e.cell, "mean": e.mean, "median": e.median, "sd": e.sd, "cv": e.cv}


def _both(claim: Claim) -> dict[str, str]:
    """The levels that both sides have; of a value, its own."""
    return {name: level for name, level in claim.left.items() if not claim.right or claim.right[name] == level}


def _claim(of: Claim) -> dict[str, object]:
    row: dict[str, object] = {
        "kind": "claim",
        "better": "neither",
        "part": expected(of.expected, of.unit),
        "reason": of.name,
    }
    row |= {name: getattr(of, name) for name in ("source", "metric", "unit", "rounds", "low", "high", "confidence")}
    row |= {"verdict": of.verdict, "warnings": " ".join(map(words.stop, told_of([of.reason, *of.warnings])))}
    row |= {f"factor.{name}": level for name, level in _both(of).items()}
    if not of.right:
        return row | {"value": of.value}
    factor = next(name for name, level in of.left.items() if of.right[name] != level)
    return row | {"factor": factor, "a": of.left[factor], "b": of.right[factor], "ratio": of.value}


def _check(of: CellOutcome) -> dict[str, object]:
    row = {"kind": "check", "source": of.source, "metric": of.check, "unit": "1", "better": "neither", "cell": of.cell}
    said = {"verdict": of.outcome.outcome, "reason": "; ".join(of.outcome.reasons)}
    counts = {"value": of.outcome.count, "operations": of.outcome.times}
    return row | {f"factor.{name}": level for name, level in of.levels.items()} | said | counts


def _block_io(row: BlockIO) -> Iterator[dict[str, object]]:
    place = {"kind": "block-io", "unit": "1", "better": "neither", "cell": row.cell, "rounds": row.rounds}
    place |= {f"factor.{name}": level for name, level in row.levels.items()} | {
        "warnings": " ".join(told_of(row.warnings))
    }

    def line(metric: str, share: Share | None, **more: str) -> dict[str, object]:
        numbers = {} if share is None else {"mean": share.mean, "low": share.low, "high": share.high}
        return place | numbers | {"metric": f"{row.operation}.{metric}", **more}

    for name, classes in (("length", row.lengths), ("alignment", row.alignments), ("offset-alignment", row.offsets)):
        yield from (line(f"{name}.{size_text(each.size)}", each.requests) for each in classes)
    for unit in row.units:
        name = f"aligned.{size_text(unit.unit)}"
        yield from (line(name, unit.requests), line(f"{name}.bytes", unit.bytes))
    for kind in row.below or ():
        what = " ".join(part for part in (kind.flags, kind.comm, kind.why) if part) or "others"
        yield line(f"below.{size_text(row.unit)}", kind.requests, reason=what)


def _latency(of: Distribution) -> Iterator[dict[str, object]]:
    place = {"kind": "latency", "source": of.source, "unit": of.unit, "better": "lower", "cell": of.cell}
    place |= {"node": of.node, "rounds": of.rounds, "operations": of.operations}
    place |= {f"factor.{name}": level for name, level in of.levels.items()}
    for each in of.percentiles:
        metric = f"{of.metric}.{percentile_name(each.percentile)}"
        yield place | {"metric": metric, "value": each.value, "low": each.low, "high": each.high}


def _comparison(c: Comparison) -> dict[str, object]:
    row = _shared(c) | {f"factor.{name}": level for name, level in c.within.items()}
    names = ("factor", "a", "b", "ratio", "margin", "verdict", "rounds_to_decide")
    row |= {"undecided": c.undecided.kind if c.undecided is not None else None, "reason": say(c.reason)}
    return row | {"kind": "comparison", "pooled": str(c.pooled).lower()} | {name: getattr(c, name) for name in names}


def _effects(of: Effects) -> Iterator[dict[str, object]]:
    place = {name: getattr(of, name) for name in ("source", "metric", "unit", "better", "rounds")}
    place |= {f"factor.{name}": level for name, level in of.within.items()} | {
        "warnings": " ".join(told_of(of.warnings))
    }
    for share in of.shares:
        parts = {"part": share.part, "factor": " × ".join(share.factors), "value": share.share, "df": share.df}
        yield place | {"kind": "effect", "unit": "1", "better": "neither"} | parts
    for mean in (*of.main, *of.pairs):
        levels = {f"factor.{name}": level for name, level in mean.levels.items()}
        yield place | {"kind": "level-mean", "factor": " × ".join(mean.levels), "mean": mean.mean} | levels


def _shared(of: Estimate | Comparison) -> dict[str, object]:
    names = ("source", "metric", "unit", "better", "rounds", "low", "high", "confidence")
    return {name: getattr(of, name) for name in names} | {"warnings": " ".join(told_of(of.warnings))}
