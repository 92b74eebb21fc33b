"""What the charts of sweeps are drawn of: points of curves from a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from storlab.analysis.data import Knee, Line, Sweep
from storlab.analysis.summary import Estimate, Summary
from storlab.grouping import grouped
from storlab.report.charts.theme import MOST_LINES
from storlab.report.language import words

POINTS = {"number": pl.Float64, "label": pl.String, "line": pl.String, "mean": pl.Float64}
POINTS |= {"low": pl.Float64, "high": pl.Float64}


@dataclass(frozen=True)
class Group:
    """Lines that share a chart: they differ in ``by`` alone; ``within``: the levels that they have in common."""

    by: str
    within: dict[str, str]
    lines: tuple[Line, ...]


def groups(sweep: Sweep) -> Iterator[Group]:
    """Lines side by side by the last other factor that varies, at most as many as colours tell apart."""
    names = [name for name in sweep.lines[0].levels if len({line.levels[name] for line in sweep.lines}) > 1]
    by = names[-1] if names else ""
    found = grouped(
        (tuple((name, level) for name, level in line.levels.items() if name in names and name != by), line)
        for line in sweep.lines
    )
    for within, lines in found.items():
        for begin in range(0, len(lines), MOST_LINES):
            yield Group(by, dict(within), tuple(lines[begin : begin + MOST_LINES]))


def curve(summary: Summary, group: Group, source: str, metric: str) -> tuple[pl.DataFrame, str]:
    """``POINTS`` of what was measured, and their unit."""
    known = {e.cell: e for e in summary.estimates if (e.source, e.metric) == (source, metric)}
    rows = [
        (step.number, step.level, line.levels.get(group.by, ""), *_span(known[step.cell]))
        for line in group.lines
        for step in line.steps
        if step.cell in known
    ]
    unit = next((e.unit for e in known.values()), "")
    return pl.DataFrame(rows, schema=POINTS, orient="row"), unit


def _span(e: Estimate) -> tuple[float, float, float]:
    return e.mean, e.mean if e.low is None else e.low, e.mean if e.high is None else e.high


def levels_of(sweep: Sweep) -> list[str]:
    """The factor's levels in ascending order; a line may lack some."""
    numbers = {step.level: step.number for line in sweep.lines for step in line.steps}
    return sorted(numbers, key=numbers.__getitem__)


def knees_of(summary: Summary, group: Group, source: str, throughput: str, latency: str) -> list[Knee]:
    """Those on the lines of ``group``, of this load's latency against its throughput."""
    lines, key = [line.levels for line in group.lines], (source, throughput, latency)
    return [k for k in summary.knees if k.levels in lines and (k.source, k.throughput, k.latency) == key]


def marks_of(knees: Sequence[Knee], group: Group) -> list[tuple[str, str]]:
    """Where ``knees`` are marked: line and level."""
    return [(knee.levels.get(group.by, ""), knee.level) for knee in knees if knee.level is not None]


def place(group: Group) -> str:
    """ "fs=xfs"; nothing where all lines are in one chart."""
    return words.levels(group.within)
