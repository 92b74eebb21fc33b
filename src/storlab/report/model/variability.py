"""What varies, in tables: samples within trials and what was found in them, and latencies of all operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from storlab.analysis.runs.across_runs import RunsCompared
from storlab.analysis.summary import Distribution, Percentile, Summary
from storlab.analysis.variability import Spread, Varying
from storlab.base.text import grouped
from storlab.metrics import Declarations, percentile_name
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.model.input import ReportInput
from storlab.report.model.nodes import Grid, grids
from storlab.report.model.tables import heading, noted, split_all, split_levels
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


# Latencies of all operations as tables: a row a cell, and below it its nodes; a column a percentile.

ROUGH = 0.1
"""A percentile that may be off by more than this share of itself is shown by its bounds."""
_BRIEF = 2
"""Tables that are shown where not everything is."""
FEW = 10
"""With fewer operations beyond it, a percentile is shown with a note."""
_MISSING = 0.01
"""The share of operations that may be in no histogram unsaid: what ended after the last line of a log is in none."""

_LATENCIES_FEW = "Fewer than ten operations are slower: another run may well give a different value."
_ROUGH = (
    "In the last bin, which holds everything slower: its lower edge, and the slowest operation where that is known."
)
_NOT_ALL = "Not all operations are in its histograms: the percentiles are of those that are."

_Key = tuple[int, str, str, str | None]
"""Cell, source, metric and node."""


def latency_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """One table a metric and source. A load that only writes has the same latencies twice: they are shown once."""
    known = _latencies_counted(summary, declared)
    shown: list[object] = []
    tables = []
    for group in grouped(((each.source, each.metric), each) for each in summary.distributions).values():
        same = [(each.cell, each.node, each.operations, each.percentiles) for each in group]
        if same not in shown:
            shown.append(same)
            tables.append(_table(group, known))
    return tables


def asked_latencies(summary: Summary, declared: Declarations) -> list[Table]:
    """Of the operations that the study asks about, and of syncs; the first ones where it asks about no operation."""
    operation = summary.primary.partition(".")[0]
    found = tuple(d for d in summary.distributions if d.metric in ("latency", "sync.latency", f"{operation}.latency"))
    tables = latency_tables(replace(summary, distributions=found) if found else summary, declared)[:_BRIEF]
    return [_without_rare(table) for table in tables]


def _without_rare(table: Table) -> Table:
    """Without the percentiles that need most operations, and those between others; so that it fits 80 columns."""
    return table.of_columns([at for at, name in enumerate(table.columns) if name not in ("p95", "p99.99")])


def _latencies_counted(summary: Summary, declared: Declarations) -> dict[_Key, int]:
    """How many operations there were in all rounds, where fewer are in histograms: some jobs of a load may have none.

    As the source itself counted what it gives the mean latency of.
    """
    sums = {(e.cell, e.source, e.metric, e.node): e.mean * e.rounds for e in (*summary.estimates, *summary.by_node)}
    found = {}
    for each in summary.distributions:
        specs = declared[each.source]
        count = specs.find(specs.statistic(each.metric, "mean")).weight
        whole = sums.get((each.cell, each.source, count, each.node), 0.0)
        if each.operations < (1 - _MISSING) * whole:
            found[_key(each)] = round(whole)
    return found


def _key(each: Distribution) -> _Key:
    return each.cell, each.source, each.metric, each.node


def _table(group: Sequence[Distribution], counted: Mapping[_Key, int]) -> Table:
    first = group[0]
    shared, factors = split_levels([each.levels for each in group])
    several = any(each.node for each in group)
    rows = []
    for each in group:
        levels = [each.levels.get(factor, "") for factor in factors]
        node = [each.node or "all together"] if several else []
        whole = counted.get(_key(each))
        operations = str(each.operations)
        if whole is not None:
            operations = noted(f"{operations} of {whole}", [_NOT_ALL])
        told = [_cell(percentile, each.unit) for percentile in each.percentiles]
        rows.append((*levels, *node, operations, *told))
    names = [percentile_name(each.percentile) for each in first.percentiles]
    labels = (*factors, *(["node"] if several else []))
    title, columns = heading(first.metric, first.source, shared), (*labels, "operations", *names)
    caption = _caption(group, several, all_counted=not any(_key(each) in counted for each in group))
    return Table(title, columns, tuple(rows), len(labels), caption, divisible=True)


def _caption(group: Sequence[Distribution], several: bool, *, all_counted: bool) -> str:
    of = "rounds, nodes and jobs" if several else "rounds and jobs"
    errors = [e for each in group for p in each.percentiles if (e := p.error) is not None and e <= ROUGH]
    exact = ""
    if any(errors):
        most = math.ceil(max(errors) * 1000 - 1e-9) / 10  # rounded up, for it is a bound
        exact = f", exact to {fmt.number(most, 1)} %"
    if not all_counted:
        return f"of all operations in the histograms of all {of}, merged{exact}"
    return f"of all operations of all {of}, from merged histograms{exact}"


def _cell(percentile: Percentile, unit: str) -> str:
    error = percentile.error
    few = [_LATENCIES_FEW] if percentile.beyond < FEW else []
    if error is not None and error <= ROUGH:
        return noted(fmt.quantity(percentile.value, unit), few)
    low = fmt.quantity(percentile.low, unit)
    if percentile.high is None:
        return noted(f"{low} or more", [_ROUGH, *few])
    return noted(f"{low} to {fmt.quantity(percentile.high, unit)}", [_ROUGH, *few])
