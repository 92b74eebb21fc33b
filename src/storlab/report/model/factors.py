"""What factors do to a metric, as tables: shares of its variation, means of levels, and the steps of sweeps."""

from __future__ import annotations

from collections.abc import Iterator

from storlab.analysis.data import Effects, Knee, Line, Objective, Share, Sweep, interactions
from storlab.analysis.summary import Summary
from storlab.metrics import named
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.methods import effects_method
from storlab.report.language.phrases import lowered
from storlab.report.language.say import say
from storlab.report.model.tables import heading, noted

_OTHERS = {
    "others": "other interactions",
    "rounds": "rounds",
    "blocks": "boots and set-ups of a round",
    "residual": "between trials of a cell",
}
_STRONG = 0.01  # of the variation: what is weaker is hardly seen in means
_MOST = 2
_ELSEWHERE = "are in the charts of the HTML report and in CSV"
_CAPTION = "share of the variation of its logarithm"


def effect_tables(summary: Summary) -> list[Table]:
    """Two tables a metric of a source: shares, where there are any, and means of the levels of each factor."""
    return [table for found in summary.effects for table in _tables(found)]


def how_made(summary: Summary) -> list[str]:
    """One sentence for each way in which shares were made."""
    kinds = dict.fromkeys(found.blocks for found in summary.effects if found.shares and found.blocks is not None)
    return [f"Effects of factors: {lowered(effects_method(blocks))}" for blocks in kinds]


def title(found: Effects) -> str:
    """The metric and where it was measured."""
    return heading(found.metric, found.source, found.within)


def part_name(share: Share) -> str:
    """ "fs", "fs × bs", "rounds"."""
    return " × ".join(share.factors) or _OTHERS[share.part]


def in_words(found: Effects) -> str:
    """The shares in one sentence, largest first."""
    ordered = sorted(found.shares, key=lambda share: -share.share)
    return ", ".join(f"{part_name(share)} {fmt.part(share.share)}" for share in ordered)


def _tables(found: Effects) -> list[Table]:
    tables = []
    if found.shares:
        rows = [(part_name(share), fmt.part(share.share)) for share in found.shares]
        rows[0] = (rows[0][0], noted(rows[0][1], found.warnings))
        tables.append(Table(title(found), ("part", "share"), tuple(rows), 1, _CAPTION))
    if found.main:
        shown = fmt.common_scale([mean.mean for mean in found.main], found.unit)
        lines = [
            (factor, level, fmt.quantity(mean.mean, found.unit, within=shown))
            for mean in found.main
            for factor, level in mean.levels.items()
        ]
        caption = "geometric mean over all combinations with other factors"
        below = () if found.shares else tuple(words.stop(say(warning)) for warning in found.warnings)
        tables.append(
            Table(f"{title(found)}, by level", ("factor", "level", "mean"), tuple(lines), 2, caption, more=below)
        )
    return [*tables, *_interactions(found)]


def _interactions(found: Effects) -> Iterator[Table]:
    """The strongest of two factors: means, and how many times that of the first column each is."""
    strong = interactions(found, _STRONG)
    shown, weaker = strong[:_MOST], len(strong) - _MOST
    for each in shown:
        unit = fmt.common_scale([mean for row in each.means for mean in row if mean is not None], found.unit)
        rows = tuple(
            (level, *(_mean(*cell, found.unit, unit) for cell in zip(means, (None, *ratios[1:]), strict=True)))
            for level, means, ratios in zip(each.rows, each.means, each.ratios, strict=True)
        )
        left = [f"Weaker ones ({weaker}) {_ELSEWHERE}"] if weaker > 0 and each is shown[-1] else []
        same = f"means by {each.across}, and times {each.columns[0]}: the same in every row if they don't interact"
        named, caption = f"{title(found)}, {each.down} × {each.across}", noted(same, left)
        yield Table(named, (each.down, *each.columns), rows, 1, caption, divisible=True)


def _mean(mean: float | None, ratio: float | None, unit: str, within: fmt.Scale | None) -> str:
    """ "412 MiB/s (1.31×)"; without a ratio in the first column, as it is what the others are times of."""
    shown = "none" if mean is None else fmt.quantity(mean, unit, within=within)
    return shown if ratio is None else f"{shown} ({fmt.ratio(ratio)})"


# Sweeps in words and tables: a row a step, and the sentences about knees and objectives.


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
