"""Variability within trials in tables: how much samples vary, in the words people use, and what was found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from storlab.analysis.runs.across_runs import RunsCompared
from storlab.analysis.variability import Spread, Varying
from storlab.grouping import grouped
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.model.input import ReportInput
from storlab.report.model.nodes import Grid, grids
from storlab.report.model.tables import heading, noted, split_all
from storlab.timeseries.variability import STATISTICS, squared, times_least, whiskers_of

_FEW = 0.5  # of the trials: where fewer have samples enough, those that have are an odd choice
_MOST = 4  # changes of a level that are listed one by one
_DESCRIBED = (
    "Samples of one trial depend on each other: they say how that trial went, and not how the next will go. The "
    "factor is how many times the smallest variance it is, that in brackets how many times the fewest outliers; the "
    "stall is the longest. Outliers are farther than so many interquartile ranges from the quartiles."
)
_WORTH = "How many independent samples these are worth, as far as their autocorrelation tells."
_STEADY = (
    "Five parts in a row, of a minute or a 25th of a shorter trial. SNIA: within 20 % of each other, rising or falling "
    "by at most 10 %. fio: all of their samples within 10 % of the mean."
)


def variability_tables(given: ReportInput) -> list[Table]:
    """For each load and each series that was looked at: its variability, and what the checks of it found."""
    found = given.findings
    done = {cell.cell: cell.rounds for cell in given.summary.cells}
    tables: list[Table] = []
    for source, metric in found.select("source", "metric").unique(maintain_order=True).iter_rows():
        rows = found.filter(source=source, metric=metric)
        for grid in grids(given.summary):
            own = {level: rows.filter(cell=cell) for level, cell in grid.cells.items()}
            own = {level: each for level, each in own.items() if each.height}
            trials = sum(done.get(cell, 0) for cell in grid.cells.values())
            if own and sum(each.height for each in own.values()) >= _FEW * trials:
                tables += _tables(given, source, metric, grid, own)
    return tables


def _tables(
    given: ReportInput, source: str, metric: str, grid: Grid, found: Mapping[str, pl.DataFrame]
) -> Iterator[Table]:
    estimates = {(e.cell, e.metric): e for e in given.summary.estimates if e.source == source}
    whiskers = whiskers_of(given.declared[source], metric)
    names = {name: given.declared[source].statistic(metric, name) for name in STATISTICS}
    where = heading(metric, source, grid.within)
    unit = str(next(iter(found.values()))["unit"][0])
    varied = {}
    for level, rows in found.items():
        each = (estimates.get((grid.cells[level], name)) for name in (metric, *names.values()))
        varied[level] = Spread(rows.height, *(None if e is None else e.mean for e in each))
    several = any(rows.height > 1 for rows in found.values())
    caption = "within trials, mean over rounds" if several else "within one trial"
    if all(side.mean is not None and side.variance is not None for side in varied.values()):
        yield _varying(f"Variability of {where}", caption, grid.factor, unit, varied, whiskers)
    yield _checked(f"Course of {where}", "of all rounds" if several else "of one trial", grid.factor, found)


def _varying(
    title: str, caption: str, compared: str, unit: str, varied: Mapping[str, Spread], whiskers: float
) -> Table:
    rows = []
    factors = times_least([side.variance for side in varied.values() if side.variance is not None])
    most = dict(zip(varied, times_least([side.outliers or 0.0 for side in varied.values()]), strict=True))
    means = fmt.common_scale([side.mean for side in varied.values() if side.mean is not None], unit)
    for (level, side), factor in zip(varied.items(), factors, strict=True):
        times = "unknown" if factor is None else fmt.ratio(factor)
        rows.append((level, *spread_cells(side, times, unit, means, "unknown", _more(most[level]))))
    columns = (compared or "cell", "mean", "variance", "factor", "σ", "cv", "outliers", "stall")
    return Table(
        title,
        columns,
        tuple(rows),
        1,
        noted(f"{caption}; {outliers_from(whiskers)}", [_DESCRIBED]),
        divisible=True,
    )


def _more(factor: float | None) -> str:
    """How many times the fewest outliers these are, where there are any more: "1.31×"."""
    return fmt.ratio(factor) if factor is not None and factor > 1 else ""


def _checked(title: str, caption: str, factor: str, found: Mapping[str, pl.DataFrame]) -> Table:
    worth, steady = noted("worth", [_WORTH]), noted("steady (SNIA)", [_STEADY])
    found_in = ("warm-up", steady, "steady (fio)", "drift", "changes of the level")
    columns = (factor or "cell", "samples", worth, *found_in)
    rows = []
    for level, each in found.items():
        numbers = (_range(each[name], lambda n: fmt.number(n)) for name in ("n", "effective"))
        warm_up = _in_rounds(each, pl.col("warm_up_effect") != 0, "warm_up", fmt.duration, "none")
        known = ((name, pl.col(name).is_not_null()) for name in ("steady_snia", "steady_fio"))
        since = (_in_rounds(each, there, name, fmt.duration, "never", "after ") for name, there in known)
        rows.append((level, *numbers, warm_up, *since, _drift(each), _changes(each)))
    return Table(title, columns, tuple(rows), 1, caption, divisible=True)


def _drift(found: pl.DataFrame) -> str:
    gradual = _in_rounds(found, pl.col("drift_share") != 0, "drift_share", fmt.percent, "")
    steps = _in_rounds(found, pl.col("drift_steps") != 0, "drift_steps", lambda n: f"{fmt.percent(n)} in steps", "")
    return "; ".join(filter(None, (gradual, steps))) or "none detected"


def _range(values: pl.Series, words: Callable[[float], str]) -> str:
    """The least and the largest: "4 s to 12 s"; one of them where they read the same."""
    least, most = words(float(str(values.min()))), words(float(str(values.max())))
    return least if least == most else f"{least} to {most}"


def _in_rounds(
    found: pl.DataFrame, there: pl.Expr, column: str, words: Callable[[float], str], none: str, before: str = ""
) -> str:
    those = found.filter(there & pl.col(column).is_not_null())
    if those.is_empty():
        return none
    shown = f"{before}{_range(those[column], words)}"
    return shown if those.height == found.height else f"{shown} ({those.height} of {found.height} rounds)"


def _changes(found: pl.DataFrame) -> str:
    if found.height > 1:
        counts = found["changes"].list.len()
        told = _range(counts, lambda n: fmt.number(n))
        return "none" if told == "0" else f"{told} a trial"
    changes: Sequence[Mapping[str, float]] = found["changes"][0].to_list()
    if not changes:
        return "none"
    mean = abs(float(found["mean"][0])) or 1.0
    told = ", ".join(
        f"{fmt.percent((change['after'] - change['before']) / mean)} at {fmt.duration(change['t'])}"
        for change in changes[:_MOST]
    )
    return f"{told} and {len(changes) - _MOST} more" if len(changes) > _MOST else told


def variability_between_runs(given: RunsCompared) -> list[Table]:
    """One table a metric of a source, the baseline first. Nothing in it is judged.

    A column a side where there is one combination only, else a row a side.
    """
    metrics = grouped(((found.source, found.metric), found) for found in given.variability)
    return [_between_runs(given.factor, group) for group in metrics.values()]


def _between_runs(factor: str, group: Sequence[Varying]) -> Table:
    first = group[0]
    shared, factors = split_all([found.within for found in group])
    sides: dict[tuple[str, ...], tuple[Spread, str, str]] = {}
    for found in group:
        where = tuple(found.within[name] for name in factors)
        sides.setdefault((found.b, *where), (found.of_b, "–", ""))
        sides[(found.a, *where)] = (found.of_a, _variance_factor(found), _outlier_factor(found))
    means = fmt.common_scale([side.mean for side, *_ in sides.values() if side.mean is not None], first.unit)
    rows = [
        (*label, *spread_cells(side, said, first.unit, means, "–", more)) for label, (side, said, more) in sides.items()
    ]
    told = [noted("factor", [f"Variance factor: how many times larger or smaller than that of {first.b}."])]
    many = any(side.trials > 1 for side, *_ in sides.values())
    caption = f"within {'trials, mean over rounds' if many else 'one trial a side'}; described, not judged"
    title = f"Variability of {heading(first.metric, first.source, shared)}"
    if factors:
        columns = (factor, *factors, "mean", "variance", *told, "σ", "cv", "outliers", "stall")
        caption += f"; {outliers_from(first.whiskers)}"
        labels = 1 + len(factors)
        return Table(title, columns, tuple(rows), labels, caption, divisible=True)
    across_columns = tuple(
        zip((*_NAMES, f"outliers ({first.whiskers:g} IQR)", "longest stall"), *(row[1:] for row in rows), strict=True)
    )
    return Table(title, (factor, *(row[0] for row in rows)), across_columns, 1, caption, divisible=True)


def variance_unit(unit: str) -> str:
    """Of IOPS that of rates: nobody knows their square by name."""
    return squared("1/s" if unit == "IOPS" else unit)


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
        unknown if side.variance is None else fmt.quantity(side.variance, variance_unit(unit)),
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


def _variance_factor(found: Varying) -> str:
    """The variance factor as seen from the baseline: "1.31× larger"."""
    if not found.larger:
        return "same"
    how = "larger" if found.larger == found.a else "smaller"
    return f"much {how}" if found.factor is None else f"{fmt.ratio(found.factor)} {how}"
