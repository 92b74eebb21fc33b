"""Variability within trials in tables: how much samples vary, in the words people use, and what was found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from storlab.analysis.variability.across_runs import Spread
from storlab.report.language import format as fmt
from storlab.report.model.across_tables import outliers_from, spread_cells
from storlab.report.model.input import ReportInput
from storlab.report.model.nodes import Grid, grids
from storlab.report.model.tables import Notes, Table, heading
from storlab.timeseries.variability import STATISTICS, times_least, whiskers_of

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
    notes, rows = Notes(), []
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
        notes.mark(f"{caption}; {outliers_from(whiskers)}", [_DESCRIBED]),
        notes.sentences(),
        divisible=True,
    )


def _more(factor: float | None) -> str:
    """How many times the fewest outliers these are, where there are any more: "1.31×"."""
    return fmt.ratio(factor) if factor is not None and factor > 1 else ""


def _checked(title: str, caption: str, factor: str, found: Mapping[str, pl.DataFrame]) -> Table:
    notes = Notes()
    worth, steady = notes.mark("worth", [_WORTH]), notes.mark("steady (SNIA)", [_STEADY])
    found_in = ("warm-up", steady, "steady (fio)", "drift", "changes of the level")
    columns = (factor or "cell", "samples", worth, *found_in)
    rows = []
    for level, each in found.items():
        numbers = (_range(each[name], lambda n: fmt.number(n)) for name in ("n", "effective"))
        warm_up = _in_rounds(each, pl.col("warm_up_effect") != 0, "warm_up", fmt.duration, "none")
        known = ((name, pl.col(name).is_not_null()) for name in ("steady_snia", "steady_fio"))
        since = (_in_rounds(each, there, name, fmt.duration, "never", "after ") for name, there in known)
        rows.append((level, *numbers, warm_up, *since, _drift(each), _changes(each)))
    return Table(title, columns, tuple(rows), 1, caption, notes.sentences(), divisible=True)


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
