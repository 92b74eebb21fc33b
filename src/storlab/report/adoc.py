"""A report as AsciiDoc in the manner of lab notes: per combination one small table of nodes, then the host's load.

    === filesystem=ext4

    ==== load=random-write

    write.bandwidth

    [cols="1,1"]
    |===
    |Node | Bandwidth

    |a
    |24.7 MiB/s
    |===

    host load average: 7.12, 3.37, 2.19

Numbers of single nodes are medians of the rounds; the interval belongs to all nodes together and stands below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from storlab.analysis.summary import Estimate
from storlab.report import format as fmt
from storlab.report import words
from storlab.report.escape import adoc as escaped
from storlab.report.escape import plain
from storlab.report.frames import per_node
from storlab.report.input import ReportInput
from storlab.report.reproduce import commands
from storlab.report.view import View, split_primary, view

_LOADS = ("load.1m", "load.5m", "load.15m")


def render_adoc(given: ReportInput) -> str:
    """The verdicts, a section a combination of levels, what is missing, and how to run it again."""
    return "\n".join(_lines(view(given), given)).rstrip() + "\n"


def _lines(shown: View, given: ReportInput) -> Iterator[str]:
    yield from (f"= {escaped(shown.title)}", "")
    for text in (shown.description, shown.facts_line, *shown.platform_notes):
        if text:
            yield from (escaped(text), "")
    yield from ("== Verdicts", "")
    for group in shown.verdicts:
        yield from (escaped(f"{group.heading} ({group.direction})" if group.direction else group.heading), "")
        yield from (f"- {line.mark} {escaped(' '.join((line.sentence, *line.warnings)))}" for line in group.lines)
        yield ""
    if shown.not_compared:
        yield from (*(f"- {escaped(sentence)}" for sentence in shown.not_compared), "")
    for text in (shown.overview, shown.certainty):
        if text:
            yield from (escaped(text), "")
    for warning in shown.warnings:
        yield from (f"WARNING: {escaped(warning)}", "")
    yield from _results(given)
    if shown.absent:
        yield from ("== Not measured in full", "")
        yield from (f"- {escaped(f'{cells}, {status}: {reason}')}" for cells, status, reason in shown.absent.rows)
        yield ""
    yield from _reproduce(given)


def _results(given: ReportInput) -> Iterator[str]:
    primary, _ = split_primary(given.summary)
    cells: dict[int, list[Estimate]] = {}
    for estimate in primary:
        cells.setdefault(estimate.cell, []).append(estimate)
    if cells:
        yield from ("== Results", "")
    above: dict[str, str] = {}
    # Cells of one level of the first factor belong under one heading, in the study's order of levels.
    first_levels = list(dict.fromkeys(tuple(e[0].levels.items())[:1] for e in cells.values()))
    for estimates in sorted(cells.values(), key=lambda e: first_levels.index(tuple(e[0].levels.items())[:1])):
        levels = list(estimates[0].levels.items())
        first, rest = dict(levels[:1]), dict(levels[1:])
        if first and first != above:
            yield from (f"=== {escaped(words.levels(first))}", "")
            above = first
        if rest:
            yield from (f"==== {escaped(words.levels(rest))}", "")
        for estimate in estimates:
            yield from _estimate(estimate, given)
        yield from _host_load(estimates[0].cell, given.summary.estimates)


def _estimate(e: Estimate, given: ReportInput) -> Iterator[str]:
    yield from (escaped(f"{e.metric}"), "")
    nodes = per_node(given.metrics, e.source, e.metric).filter(pl.col("cell") == e.cell, pl.col("node").is_not_null())
    values = nodes.group_by("node", maintain_order=True).agg(pl.col("value").median()).sort("node")
    if values.height:
        name = e.metric.rsplit(".", 1)[-1].capitalize()
        yield from ('[cols="1,1"]', "|===", f"|Node | {escaped(name)}")
        for node, value in values.iter_rows():
            yield from ("", f"|{escaped(node)}", f"|{escaped(fmt.quantity(value, e.unit))}")
        yield from ("|===", "")
    mean = fmt.quantity(e.mean, e.unit, e.low, e.high)
    span = fmt.interval(e.low, e.high, e.unit, e.mean)
    bounds = f"{fmt.confidence(e.confidence)} interval {span}" if span else "no interval"
    rounds = fmt.plural(e.rounds, "round")
    sentences = " ".join(words.stop(warning) for warning in e.warnings)
    yield from (escaped(f"all nodes together: {mean}, {bounds}, {rounds}. {sentences}".rstrip()), "")


def _host_load(cell: int, estimates: Sequence[Estimate]) -> Iterator[str]:
    loads = {e.metric: e.mean for e in estimates if e.cell == cell and e.source == "probe:host-load"}
    if all(name in loads for name in _LOADS):
        yield from (f"host load average: {', '.join(fmt.number(loads[name], 2) for name in _LOADS)}", "")


def _reproduce(given: ReportInput) -> Iterator[str]:
    lines = commands(given.manifest)
    study = str(given.manifest.get("study_text") or "")
    if not lines and not study:
        return
    yield from ("== How to reproduce", "")
    for block in (lines, plain(study).rstrip("\n").split("\n") if study else []):
        if block:
            fence = _fence(block)
            yield from (fence, *(plain(line) for line in block), fence, "")


def _fence(block: Sequence[str]) -> str:
    """A delimiter longer than any line of dashes in ``block``, so that nothing in it ends the block."""
    longest = max((len(line) for line in block if line.startswith("----") and not line.strip("-")), default=3)
    return "-" * (longest + 1)
