"""Runs compared, as tables: ratios with their intervals, and how much samples vary within trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from storlab.analysis.across_runs import RunComparison, RunsCompared
from storlab.analysis.varying import Spread, Varying
from storlab.report import across, words
from storlab.report import format as fmt
from storlab.report.tables import Notes, Span, Table, heading, split_levels

_UNKNOWN = "–"


def ratio_tables(given: RunsCompared) -> list[Table]:
    """One table a metric of a source: a row a comparison that has an answer, the pooled ones first."""
    grouped: dict[tuple[str, str], list[RunComparison]] = {}
    for group in across.groups(given).values():
        for c in group:
            grouped.setdefault((c.comparison.source, c.comparison.metric), []).append(c)
    return [_ratios(given, group) for group in grouped.values()]


def _ratios(given: RunsCompared, group: Sequence[RunComparison]) -> Table:
    first, notes = group[0].comparison, Notes()
    shared, factors = split_levels([c.comparison.within for c in group if not c.comparison.pooled])
    placed = bool(factors)
    gates = list(dict.fromkeys(result.gate for c in group for result in c.gates))
    rows = []
    for c in group:
        answer = c.comparison
        outcomes = {result.gate: across.OUTCOMES[result.outcome] for result in c.gates}
        doubts = [answer.reason] if c.basis == "interleaved" and answer.verdict == "undecided" else []
        rows.append(
            (
                f"{answer.a} vs {answer.b}",
                *([_where(c, factors)] if placed else []),
                across.ratio(c),
                fmt.ratio_interval(answer.low, answer.high, answer.ratio) or "none",
                notes.mark(f"{across.mark(c)} {across.verdict(c)}", doubts),
                notes.mark(across.rounds(c), answer.warnings),
                *(outcomes.get(gate, "") for gate in gates),
            )
        )
    return Table(
        title=heading(first.metric, first.source, shared),
        columns=(given.factor, *(["where"] if placed else []), "ratio", "interval", "verdict", "rounds", *gates),
        rows=tuple(rows),
        labels=2 if placed else 1,
        caption=words.direction(first.better),
        notes=notes.sentences(),
        spans=tuple(_span(c) for c in group),
        words=tuple(gates),
    )


def _where(c: RunComparison, factors: Sequence[str]) -> str:
    """Where a row holds, without what all rows share."""
    answer = c.comparison
    return words.POOLED if answer.pooled else words.levels({name: answer.within[name] for name in factors})


def _span(c: RunComparison) -> Span | None:
    answer = c.comparison
    if (
        answer.low is None
        or answer.ratio is None
        or answer.high is None
        or not 0 < answer.low <= answer.high < math.inf
    ):
        return None
    return answer.low, answer.ratio, answer.high


def variability_tables(given: RunsCompared) -> list[Table]:
    """One table a metric of a source: a row a side, the baseline first. Nothing in it is judged."""
    grouped: dict[tuple[str, str], list[Varying]] = {}
    for found in given.variability:
        grouped.setdefault((found.source, found.metric), []).append(found)
    return [_variability(given.factor, group) for group in grouped.values()]


def _variability(factor: str, group: Sequence[Varying]) -> Table:
    first, notes = group[0], Notes()
    shared, factors = split_levels([found.within for found in group])
    sides: dict[tuple[str, ...], tuple[Spread, str]] = {}
    for found in group:
        where = tuple(found.within[name] for name in factors)
        sides.setdefault((found.b, *where), (found.of_b, ""))
        sides[(found.a, *where)] = (found.of_a, _factor(found))
    means = fmt.common_scale([side.mean for side, _ in sides.values() if side.mean is not None], first.unit)
    rows = tuple(
        (
            *label,
            fmt.quantity(side.mean, first.unit, within=means),
            fmt.quantity(side.variance, _squared(first.unit)),
            said,
            fmt.quantity(side.sigma, first.unit),
            _UNKNOWN if side.cv is None else fmt.part(side.cv),
            _UNKNOWN if side.outliers is None else fmt.number(side.outliers, 0 if side.outliers.is_integer() else 1),
            _UNKNOWN if side.longest_stall is None else _stall(side.longest_stall),
        )
        for label, (side, said) in sides.items()
    )
    base = notes.mark("variance factor", [f"By how much the variance is larger or smaller than that of {first.b}."])
    columns = (factor, *factors, "mean", "variance", base, "σ", "cv", "outliers", "longest stall")
    many = any(side.trials > 1 for side, _ in sides.values())
    caption = f"within {'trials, mean over rounds' if many else 'one trial a side'}; described, not judged"
    title = f"Variability of {heading(first.metric, first.source, shared)}"
    return Table(title, columns, rows, 1 + len(factors), caption, notes.sentences(), divisible=True)


def _factor(found: Varying) -> str:
    """The variance factor as seen from the baseline: "1.31× larger"."""
    if not found.larger:
        return "same"
    how = "larger" if found.larger == found.a else "smaller"
    return f"much {how}" if found.factor is None else f"{fmt.ratio(found.factor)} {how}"


def _stall(seconds: float) -> str:
    return fmt.duration(seconds) if seconds else "none"


def _squared(unit: str) -> str:
    """The unit of a variance: "1/s²"."""
    return "/".join(part if part == "1" else f"{part}²" for part in unit.split("/"))
