"""Latencies of all operations as tables: a row a cell, and below it its nodes; a column a percentile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from storlab.analysis.summary import Distribution, Percentile, Summary
from storlab.grouping import grouped
from storlab.metrics import Declarations, percentile_name
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.model.tables import heading, noted, split_levels

ROUGH = 0.1
"""A percentile that may be off by more than this share of itself is shown by its bounds."""
_BRIEF = 2
"""Tables that are shown where not everything is."""
FEW = 10
"""With fewer operations beyond it, a percentile is shown with a note."""
_MISSING = 0.01
"""The share of operations that may be in no histogram unsaid: what ended after the last line of a log is in none."""

_FEW = "Fewer than ten operations are slower: another run may well give a different value."
_ROUGH = (
    "In the last bin, which holds everything slower: its lower edge, and the slowest operation where that is known."
)
_NOT_ALL = "Not all operations are in its histograms: the percentiles are of those that are."

_Key = tuple[int, str, str, str | None]
"""Cell, source, metric and node."""


def latency_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """One table a metric and source. A load that only writes has the same latencies twice: they are shown once."""
    known = _counted(summary, declared)
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


def _counted(summary: Summary, declared: Declarations) -> dict[_Key, int]:
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
    few = [_FEW] if percentile.beyond < FEW else []
    if error is not None and error <= ROUGH:
        return noted(fmt.quantity(percentile.value, unit), few)
    low = fmt.quantity(percentile.low, unit)
    if percentile.high is None:
        return noted(f"{low} or more", [_ROUGH, *few])
    return noted(f"{low} to {fmt.quantity(percentile.high, unit)}", [_ROUGH, *few])
