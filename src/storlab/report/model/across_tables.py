"""Runs compared, as tables: ratios with their intervals, and how much samples vary within trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storlab.analysis.runs.across_runs import RunComparison, RunsCompared
from storlab.analysis.variability.across_runs import Spread, Varying
from storlab.grouping import grouped
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model import across
from storlab.report.model.gates import OUTCOMES
from storlab.report.model.tables import Notes, Table, heading, span_of, split_levels
from storlab.timeseries.variability import squared

_UNKNOWN = "–"


def ratio_tables(given: RunsCompared, *, gates: bool = False) -> list[Table]:
    """One table a metric of a source: a row a comparison that has an answer, the pooled ones first.

    ``gates``: with a column for each of them.
    """
    answers = (c for group in across.groups(given).values() for c in group)
    metrics = grouped(((c.comparison.source, c.comparison.metric), c) for c in answers)
    return [_ratios(given, group, gates) for group in metrics.values()]


def _ratios(given: RunsCompared, group: Sequence[RunComparison], with_gates: bool) -> Table:
    first, notes = group[0].comparison, Notes()
    shared, factors = _split([c.comparison.within for c in group if not c.comparison.pooled])
    gates = list(dict.fromkeys(result.gate for c in group for result in c.gates)) if with_gates else []
    where = factors if len(factors) < 2 else ("where",)
    judged = any(c.basis == "interleaved" for c in group)
    counts = {across.rounds(c) for c in group}
    counted = len(counts) > 1 or len(group) == 1
    rows = []
    for c in group:
        answer = c.comparison
        outcomes = {result.gate: OUTCOMES[result.outcome] for result in c.gates}
        doubts = [answer.reason] if c.basis == "interleaved" and answer.verdict == "undecided" else []
        side = answer.a if counted else notes.mark(answer.a, answer.warnings)
        place = [_where(c, factors)] if factors else []
        span = fmt.ratio_interval(answer.low, answer.high, answer.ratio) or "none"
        verdict = [notes.mark(f"{across.mark(c)} {across.verdict(c)}", doubts)] if judged else []
        rounds = [notes.mark(across.rounds(c), answer.warnings)] if counted else []
        hit = (outcomes.get(gate, "") for gate in gates)
        rows.append((side, *place, across.ratio(c), span, *verdict, *rounds, *hit))
    how, many = "" if judged else "described, not judged", "" if counted else f"{counts.pop()} rounds"
    return Table(
        title=heading(first.metric, first.source, shared),
        columns=(given.factor, *where, "ratio", "interval", *["verdict"] * judged, *["rounds"] * counted, *gates),
        rows=tuple(rows),
        labels=1 + len(where),
        caption="; ".join(filter(None, (f"÷ {first.b}", words.direction(first.better), how, many))),
        notes=notes.sentences(),
        spans=tuple(span_of(c.comparison) for c in group),
        words=tuple(gates),
    )


def _split(places: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Levels that all rows share, which are those of the only one too, and the factors that vary."""
    return (dict(places[0]), ()) if len(places) == 1 else split_levels(places)


def _where(c: RunComparison, factors: Sequence[str]) -> str:
    """Where a row holds, without what all rows share; of a single factor the level, as its name heads the column."""
    answer = c.comparison
    if answer.pooled:
        return words.POOLED
    return answer.within[factors[0]] if len(factors) == 1 else words.levels({f: answer.within[f] for f in factors})


def variability_tables(given: RunsCompared) -> list[Table]:
    """One table a metric of a source, the baseline first. Nothing in it is judged.

    A column a side where there is one combination only, else a row a side.
    """
    metrics = grouped(((found.source, found.metric), found) for found in given.variability)
    return [_variability(given.factor, group) for group in metrics.values()]


def _variability(factor: str, group: Sequence[Varying]) -> Table:
    first, notes = group[0], Notes()
    shared, factors = _split([found.within for found in group])
    sides: dict[tuple[str, ...], tuple[Spread, str, str]] = {}
    for found in group:
        where = tuple(found.within[name] for name in factors)
        sides.setdefault((found.b, *where), (found.of_b, _UNKNOWN, ""))
        sides[(found.a, *where)] = (found.of_a, _factor(found), _outlier_factor(found))
    means = fmt.common_scale([side.mean for side, *_ in sides.values() if side.mean is not None], first.unit)
    rows = [
        (*label, *spread_cells(side, said, first.unit, means, _UNKNOWN, more))
        for label, (side, said, more) in sides.items()
    ]
    told = [notes.mark("factor", [f"Variance factor: how many times larger or smaller than that of {first.b}."])]
    many = any(side.trials > 1 for side, *_ in sides.values())
    caption = f"within {'trials, mean over rounds' if many else 'one trial a side'}; described, not judged"
    title = f"Variability of {heading(first.metric, first.source, shared)}"
    if factors:
        columns = (factor, *factors, "mean", "variance", *told, "σ", "cv", "outliers", "stall")
        caption += f"; {outliers_from(first.whiskers)}"
        labels = 1 + len(factors)
        return Table(title, columns, tuple(rows), labels, caption, notes.sentences(), divisible=True)
    across_columns = tuple(
        zip((*_NAMES, f"outliers ({first.whiskers:g} IQR)", "longest stall"), *(row[1:] for row in rows), strict=True)
    )
    return Table(title, (factor, *(row[0] for row in rows)), across_columns, 1, caption, divisible=True)


_NAMES = ("mean", "variance (σ²)", "variance factor", "standard deviation (σ)", "coefficient of variation")


def outliers_from(whiskers: float) -> str:
    """For the caption of a table with outliers: from how far off the quartiles samples count as such."""
    return f"outliers beyond {whiskers:g} IQR"


def spread_cells(
    side: Spread, factor: str, unit: str, means: fmt.Scale | None, unknown: str, more: str
) -> tuple[str, ...]:
    """How much the samples of one side vary: ``_NAMES``, outliers with ``more`` about their number, longest stall."""
    cv, outliers, stall = side.cv, side.outliers, side.longest_stall
    return (
        unknown if side.mean is None else fmt.quantity(side.mean, unit, within=means),
        unknown if side.variance is None else fmt.quantity(side.variance, squared(unit)),
        factor,
        unknown if side.sigma is None else fmt.quantity(side.sigma, unit),
        unknown if cv is None else fmt.part(cv) if cv < 0.1 else fmt.share(cv),
        unknown if outliers is None else _counted(outliers, more),
        unknown if stall is None else fmt.duration(stall) if stall else "none",
    )


def _counted(outliers: float, more: str) -> str:
    number = fmt.number(outliers, 0 if outliers.is_integer() else 1)
    return f"{number} ({more})" if more else number


def _outlier_factor(found: Varying) -> str:
    """How many times more or fewer outliers than the baseline: "1.31× more"; nothing where that can't be told."""
    mine, theirs = found.of_a.outliers, found.of_b.outliers
    if not mine or not theirs or mine == theirs:
        return ""
    return f"{fmt.ratio(max(mine, theirs) / min(mine, theirs))} {'more' if mine > theirs else 'fewer'}"


def _factor(found: Varying) -> str:
    """The variance factor as seen from the baseline: "1.31× larger"."""
    if not found.larger:
        return "same"
    how = "larger" if found.larger == found.a else "smaller"
    return f"much {how}" if found.factor is None else f"{fmt.ratio(found.factor)} {how}"
