"""Sweeps in words and tables: a row a step, and the sentences about knees and objectives."""

from __future__ import annotations

from storlab.analysis.data import Knee, Line, Objective, Sweep
from storlab.analysis.summary import Summary
from storlab.metrics import named
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.say import say
from storlab.report.model.tables import heading


def asked(summary: Summary) -> list[tuple[str, str]]:
    """Source and metric of the curves that are shown: the primary metric's, and those of objectives."""
    known = dict.fromkeys((e.source, e.metric) for e in summary.estimates)
    objectives = [(each.source, each.metric) for each in summary.objectives]
    return [key for key in dict.fromkeys([*named(summary.primary, known), *objectives]) if key in known]


def sweep_tables(summary: Summary) -> list[Table]:
    """One table a metric: steps of the first sweep below each other, its lines side by side."""
    return [_table(summary, sweep, key) for sweep in summary.sweeps[:1] for key in asked(summary)]


def _table(summary: Summary, sweep: Sweep, key: tuple[str, str]) -> Table:
    found = {e.cell: e for e in summary.estimates if (e.source, e.metric) == key}
    shared = {name: level for name, level in sweep.lines[0].levels.items() if _same(sweep, name)}
    levels = {step.level: None for line in sweep.lines for step in line.steps}
    shown = fmt.common_scale([e.mean for e in found.values()], next((e.unit for e in found.values()), ""))
    rows = []
    for level in levels:
        row = [level]
        for line in sweep.lines:
            e = next((found.get(step.cell) for step in line.steps if step.level == level), None)
            row.append("–" if e is None else fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=shown))
        rows.append(tuple(row))
    columns = (sweep.factor, *(_line_name(line, shared) for line in sweep.lines))
    caption = "mean over rounds ± half of its interval"
    title = f"{heading(key[1], key[0], shared)} over {sweep.factor}"
    return Table(title, columns, tuple(rows), 1, caption, divisible=True)


def _same(sweep: Sweep, name: str) -> bool:
    return len({line.levels[name] for line in sweep.lines}) == 1


def _line_name(line: Line, shared: dict[str, str]) -> str:
    own = {name: level for name, level in line.levels.items() if name not in shared}
    return words.levels(own) or "mean"


def sweep_sentences(summary: Summary) -> list[str]:
    """What is said of each line: first objectives, then knees."""
    return [*map(objective_sentence, summary.objectives), *map(knee_sentence, summary.knees)]


def knee_sentence(knee: Knee) -> str:
    """ "Knee of latency.mean against iops, numjobs=1: iodepth 8 (4 to 8 …), 12k IOPS at 640 µs."."""
    where = ", ".join(filter(None, (knee.source, words.levels(knee.levels))))
    lead = f"Knee of {knee.latency} against {knee.throughput} ({where})"
    if knee.level is None or knee.rate is None or knee.time is None:
        return f"{lead}: {say(knee.reason)}"
    span = f"{fmt.plural(knee.rounds, 'round')}, too few for an interval"
    if knee.low is not None and knee.high is not None and knee.confidence is not None:
        ends = knee.low if knee.low == knee.high else f"{knee.low} to {knee.high}"
        span = f"{fmt.confidence(knee.confidence)} bootstrap interval: {ends}"
    at = f"{fmt.quantity(knee.rate, fmt.unit_of(knee.throughput, '1/s'))} at {fmt.quantity(knee.time, 's')}"
    return f"{lead}: {knee.factor} {knee.level} ({span}), {at}."


def objective_sentence(found: Objective) -> str:
    """ "latency.p99 is below 5 ms (numjobs=1): established up to iodepth 16; established not to be from 64 on. …"."""
    side = "below" if found.below else "above"
    limit = "its limit" if found.limit is None else fmt.quantity(found.limit, found.unit)
    where = ", ".join(filter(None, (found.source, words.levels(found.levels))))
    if found.missing:
        return f"{found.metric} {side} {limit} ({where}): missing. {say(found.reason)}"
    holds = f"established up to {found.factor} {found.holds_to}" if found.holds_to else "established at no step"
    fails = f"; not so from {found.fails_from} on" if found.fails_from else ""
    about = f"; the fitted curve crosses it at about {found.crossing:.3g}" if found.crossing is not None else ""
    sure = fmt.plural(found.rounds, "round")
    if found.confidence is not None:
        sure = f"{fmt.confidence(found.confidence)} confidence, {sure}"
    return f"{found.metric} {side} {limit} ({where}): {holds}{fails}{about} ({sure}). {say(found.reason)}"
