"""Which charts of sweeps a report has: curves, heat maps, latency against throughput; and what they are drawn of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from storlab.analysis.data import Knee, Line, Sweep
from storlab.analysis.summary import Estimate, Summary
from storlab.base.text import grouped
from storlab.report.charts.curves import Marks, curve_chart, heat_map_chart, hockey_stick_chart, in_words
from storlab.report.charts.panel import Panel, file_stem, panel
from storlab.report.charts.theme import FAR, MOST_LINES
from storlab.report.language import words
from storlab.report.model.factors import asked, knee_sentence
from storlab.report.model.tables import heading

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


# The panels of a report's sweeps: curves, heat maps, and latency against throughput.


def sweep_panels(summary: Summary, taken: set[str]) -> Iterator[Panel]:
    """Of the first sweep, and of the first two together; nothing where there are none."""
    for sweep in summary.sweeps[:1]:
        for source, metric in asked(summary):
            for group in groups(sweep):
                yield from _curve(summary, sweep, group, (source, metric), taken)
        for other in summary.sweeps[1:2]:
            for source, metric in asked(summary)[:1]:
                yield from _heat_maps(summary, (sweep, other), (source, metric), taken)
        for group in groups(sweep):
            yield from _hockey_sticks(summary, group, taken)


def _curve(summary: Summary, sweep: Sweep, group: Group, key: tuple[str, str], taken: set[str]) -> Iterator[Panel]:
    points, unit = curve(summary, group, *key)
    if points["number"].n_unique() > 1:
        title = f"{heading(key[1], key[0], group.within)} over {sweep.factor}"
        stem = file_stem("curve", [title], taken)
        lines = [line.levels for line in group.lines]
        limits = dict.fromkeys(o.limit for o in summary.objectives if (o.source, o.metric) == key and o.levels in lines)
        knees = [k for k in summary.knees if k.source == key[0] and key[1] in (k.throughput, k.latency)]
        marks = Marks(
            tuple(limit for limit in limits if limit is not None),
            tuple(marks_of([knee for knee in knees if knee.levels in lines], group)),
        )
        signs = [*(["dashed: the objective"] if marks.limits else []), *(["rings: knees"] if marks.knees else [])]
        title += f" ({'; '.join(signs)})" if signs else ""
        draw = partial(curve_chart, points, sweep.factor, group.by, key[1], unit, marks)
        least, most = (float(str(end)) for end in (points["mean"].min(), points["mean"].max()))
        log = {"draw_log": partial(draw, log=True), "log_first": most > FAR * least}
        both: dict[str, Any] = log if least > 0 else {}
        told = in_words(points, sweep.factor, key[1], unit)
        yield panel("sweeps", stem, "", title, told, partial(draw, log=False), **both, wide=True)


def _heat_maps(summary: Summary, sweeps: tuple[Sweep, Sweep], key: tuple[str, str], taken: set[str]) -> Iterator[Panel]:
    (across, columns), (down, lines) = ((sweep.factor, levels_of(sweep)) for sweep in sweeps)
    found = [e for e in summary.estimates if (e.source, e.metric) == key]
    others = grouped((tuple((n, v) for n, v in e.levels.items() if n not in (across, down)), e) for e in found)
    for within, points in others.items():
        rows = [(e.levels[across], e.levels[down], e.mean) for e in points]
        squares = pl.DataFrame(rows, schema=["across", "down", "mean"], orient="row")
        title = f"{heading(key[1], key[0], dict(within))}, {across} × {down}"
        draw = partial(heat_map_chart, squares, (across, columns), (down, lines), key[1], points[0].unit)
        best = max(rows, key=lambda row: row[2])
        alt = f"{key[1]} by {across} and {down}; largest at {across}={best[0]}, {down}={best[1]}."
        yield panel("sweeps", file_stem("heat-map", [title], taken), "", title, alt, draw)


def _hockey_sticks(summary: Summary, group: Group, taken: set[str]) -> Iterator[Panel]:
    kinds = dict.fromkeys((knee.source, knee.throughput, knee.latency) for knee in summary.knees)
    for source, throughput, latency in kinds:
        rates, _ = curve(summary, group, source, throughput)
        times, _ = curve(summary, group, source, latency)
        keys = ["line", "label"]
        points = rates.select(*keys, rate="mean").join(times.select(*keys, time="mean"), on=keys, maintain_order="left")
        if points.height > 1:
            own = knees_of(summary, group, source, throughput, latency)
            draw = partial(hockey_stick_chart, points, marks_of(own, group), (throughput, latency, group.by))
            title = ": ".join(filter(None, (f"{latency} against {throughput}", source, place(group))))
            alt = f"Latency against throughput. {' '.join(map(knee_sentence, own))}"
            yield panel("sweeps", file_stem("hockey-stick", [title], taken), "", title, alt, draw)
